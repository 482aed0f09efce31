-- Locks the row of the counter; old_value and ends_us are what it has. If there is none, it adds one whose
-- time has passed, and removes up to four others of that kind; unless there must be a counter already.
-- Sets now_us.
SELECT value, until_us INTO old_value, ends_us FROM holdfast_counters WHERE name = the_name FOR UPDATE;
IF ends_us IS NULL AND (op IN (2, 3) OR (op = 4 AND expected IS NULL)) THEN
    SET dead_count = 0;
    ending: LOOP
        SET dead_name = NULL;
        SELECT name INTO dead_name FROM holdfast_counters FORCE INDEX (by_end)
            WHERE until_us <= now_us ORDER BY until_us LIMIT 1 FOR UPDATE SKIP LOCKED;
        IF dead_name IS NULL OR dead_count = 4 THEN
            LEAVE ending;
        END IF;
        DELETE FROM holdfast_counters WHERE name = dead_name;
        SET dead_count = dead_count + 1;
    END LOOP;
    INSERT INTO holdfast_counters VALUES (the_name, 0, 0) ON DUPLICATE KEY UPDATE value = value;
    SELECT value, until_us INTO old_value, ends_us FROM holdfast_counters WHERE name = the_name;
END IF;
--#include now.sql
