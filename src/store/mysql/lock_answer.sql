-- Locks the row of the client's last answer, and adds it if there is none; my_last is its seq. Adding
-- one also removes up to four that are at least two minutes old.
SELECT seq INTO my_last FROM holdfast_answers WHERE client = me AND name = the_name FOR UPDATE;
IF my_last IS NULL THEN
    forgetting: LOOP
        SET dead_client = NULL;
        SELECT client, name INTO dead_client, dead_name FROM holdfast_answers FORCE INDEX (by_minute)
            WHERE minute < now_us DIV 60000000 - 2 ORDER BY minute LIMIT 1 FOR UPDATE SKIP LOCKED;
        IF dead_client IS NULL OR dead_count = 4 THEN
            LEAVE forgetting;
        END IF;
        DELETE FROM holdfast_answers WHERE client = dead_client AND name = dead_name;
        SET dead_count = dead_count + 1;
    END LOOP;
    INSERT INTO holdfast_answers VALUES (me, the_name, 0, now_us DIV 60000000, '', NULL, -1)
        ON DUPLICATE KEY UPDATE seq = seq;
    SELECT seq INTO my_last FROM holdfast_answers WHERE client = me AND name = the_name;
END IF;
