-- Extends the place of a waiter while somebody else is in front of it, without the row of the name.
-- Otherwise a hand-off would wait for all waiters that ask meanwhile, and many waiters ask often.
-- Sets answer and number, or leaves answer NULL if the row is needed.
--
-- This is safe for the reasons that the schema of the PostgreSQL store gives (keep_place). A claim that
-- waits is granted nothing by asking, and advance.sql would do nothing. One statement checks all of
-- that. The update waits for a transaction that has locked the claim and finds what it left, and
-- advance.sql waits for the update. If the update finds that it is the waiter's turn, the transaction
-- ends, so that nothing is locked when the next one waits for the row of the name.
IF wait_us AND NOT barges THEN
    --#include now.sql
    SELECT held.first_us INTO ends_us FROM holdfast_claims mine
        JOIN (SELECT MIN(until_us) AS first_us FROM holdfast_claims WHERE name = the_name AND state < 3) held
        WHERE mine.client = me AND mine.seq = my_seq AND mine.name = the_name AND mine.state = 3
        AND mine.until_us > now_us AND held.first_us > now_us
        AND EXISTS (SELECT 1 FROM holdfast_claims other WHERE other.name = the_name AND other.state = 3
            AND other.ticket < mine.ticket AND other.until_us > now_us);
    IF ends_us IS NOT NULL THEN
        UPDATE holdfast_claims SET until_us = now_us + wait_us WHERE client = me AND seq = my_seq AND state = 3;
        IF ROW_COUNT() > 0 THEN
            SET answer = 'queued', number = ends_us - now_us;
        ELSE
            ROLLBACK;
            START TRANSACTION;
            SET ends_us = NULL;
        END IF;
    END IF;
END IF;
