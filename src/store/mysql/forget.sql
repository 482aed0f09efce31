-- Forgets some names that were not used for a week, and what is left of claims on them. A counter
-- ahead of the clock is kept: the next token's floor would be below it.
forgetting: LOOP
    SET old_name = NULL;
    SELECT name INTO old_name FROM holdfast_locks WHERE used_day < today - 7 ORDER BY used_day LIMIT 1
        FOR UPDATE SKIP LOCKED;
    IF old_name IS NULL OR old_count = 4 THEN
        LEAVE forgetting;
    END IF;
    SET old_count = old_count + 1;
    DELETE c FROM holdfast_claims c FORCE INDEX (by_name) WHERE c.name = old_name AND c.until_us < now_us - 86400000000;
    SET dead_name = old_name;
    --#include sweep.sql
    SELECT EXISTS (SELECT 1 FROM holdfast_claims WHERE name = old_name)
        OR EXISTS (SELECT 1 FROM holdfast_sessions WHERE name = old_name) INTO is_used;
    IF NOT is_used THEN
        DELETE FROM holdfast_locks WHERE name = old_name AND token < now_us;
        SET dead_name = NULL;
        SELECT name INTO dead_name FROM holdfast_rows WHERE name = old_name FOR UPDATE SKIP LOCKED;
        DELETE FROM holdfast_rows WHERE name = dead_name;
    END IF;
    UPDATE holdfast_locks SET used_day = today WHERE name = old_name; -- in use: do not check it every time
END LOOP;
