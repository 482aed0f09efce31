-- Removes what is left of sessions that have ended, on the name dead_name. They are found without a lock
-- and removed by their primary key, just as by a session that releases its lock at the same time.
sweeping: LOOP
    SET next_client = NULL;
    SELECT client, seq INTO next_client, next_seq FROM holdfast_sessions WHERE name = dead_name
        AND COALESCE(IS_USED_LOCK(CONCAT('holdfast.', HEX(client), '.', session)), 0) <> session LIMIT 1;
    IF next_client IS NULL THEN
        LEAVE sweeping;
    END IF;
    DELETE FROM holdfast_sessions WHERE client = next_client AND seq = next_seq;
END LOOP;
