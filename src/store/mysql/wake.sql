-- After the commit: ends the wait of the clients whose turn it is, or whose hold was broken. Each
-- has a session that owns a lock with the client's name, and waits (listen.c). This is only a hint:
-- a session of another user cannot be woken without an additional right, and that is not an error.
IF woken THEN
    BEGIN
        DECLARE whom BINARY(16);
        DECLARE is_end TINYINT DEFAULT 0;
        DECLARE told CURSOR FOR SELECT DISTINCT client FROM holdfast_claims
            WHERE name = the_name AND state IN (2, 4) LIMIT 64;
        DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_end = 1;
        DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN END;
        OPEN told;
        waking: LOOP
            FETCH told INTO whom;
            IF is_end THEN
                LEAVE waking;
            END IF;
            BEGIN
                DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
                KILL QUERY IS_USED_LOCK(CONCAT('holdfast.', HEX(whom)));
            END;
        END LOOP;
    END;
END IF;
