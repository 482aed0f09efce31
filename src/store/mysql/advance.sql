-- Ends the claims whose time has passed: of all holders, and of the waiters at the front of the
-- queue. Then reserves the lock for as many waiters at the front as fit. The row of the name
-- is locked, and lock_capacity and now_us are set.
ending: LOOP
    SET next_client = NULL;
    SELECT client, seq INTO next_client, next_seq FROM holdfast_claims FORCE INDEX (by_name)
        WHERE name = the_name AND state IN (1, 2, 4) AND until_us <= now_us LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF next_client IS NULL THEN
        LEAVE ending;
    END IF;
    DELETE FROM holdfast_claims WHERE client = next_client AND seq = next_seq;
END LOOP;
reserving: LOOP
    SET next_client = NULL;
    SELECT client, seq, until_us, weight INTO next_client, next_seq, next_until_us, next_weight FROM holdfast_claims
        WHERE name = the_name AND state = 3 ORDER BY ticket LIMIT 1;
    IF next_client IS NULL THEN
        LEAVE reserving;
    ELSEIF next_until_us <= now_us THEN
        -- Not if it has just been extended: keep_place.sql.
        DELETE FROM holdfast_claims WHERE client = next_client AND seq = next_seq AND until_us <= now_us;
        ITERATE reserving;
    END IF;
    SELECT COALESCE(SUM(weight), 0) INTO used FROM holdfast_claims WHERE name = the_name AND state < 3;
    IF used + next_weight > lock_capacity THEN
        LEAVE reserving;
    END IF;
    UPDATE holdfast_claims SET state = 2 WHERE client = next_client AND seq = next_seq;
    SET woken = 1;
END LOOP;
