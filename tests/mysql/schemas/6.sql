CREATE TABLE IF NOT EXISTS holdfast_locks (
    name VARBINARY(255) NOT NULL PRIMARY KEY,
    kind TINYINT NOT NULL,
    capacity INT NOT NULL,
    token BIGINT NOT NULL DEFAULT 0,
    ticket BIGINT NOT NULL DEFAULT 0,
    used_day INT NOT NULL,
    broken_us BIGINT NOT NULL DEFAULT 0,
    broken_token BIGINT NOT NULL DEFAULT 0,
    broken_by VARBINARY(1024) NOT NULL DEFAULT '',
    broken_reason VARBINARY(255) NOT NULL DEFAULT '',
    KEY by_day (used_day)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//
CREATE TABLE IF NOT EXISTS holdfast_claims (
    client BINARY(16) NOT NULL,
    seq BIGINT NOT NULL,
    name VARBINARY(255) NOT NULL,
    state TINYINT NOT NULL,
    ticket BIGINT NOT NULL,
    weight INT NOT NULL,
    until_us BIGINT NOT NULL,
    token BIGINT NOT NULL,
    since_us BIGINT NOT NULL,
    pid BIGINT NOT NULL,
    host VARBINARY(1024) NOT NULL,
    command VARBINARY(4096) NOT NULL,
    label VARBINARY(255) NOT NULL,
    PRIMARY KEY (client, seq),
    KEY by_name (name, state, ticket)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//
CREATE TABLE IF NOT EXISTS holdfast_fences (
    name VARBINARY(255) NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL,
    CONSTRAINT holdfast_token_is_stale CHECK (token > 0)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//
CREATE TABLE IF NOT EXISTS holdfast_rows (
    name VARBINARY(255) NOT NULL PRIMARY KEY
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//
CREATE TABLE IF NOT EXISTS holdfast_sessions (
    client BINARY(16) NOT NULL,
    seq BIGINT NOT NULL,
    name VARBINARY(255) NOT NULL,
    session BIGINT NOT NULL,
    weight INT NOT NULL,
    token BIGINT NOT NULL,
    since_us BIGINT NOT NULL,
    pid BIGINT NOT NULL,
    host VARBINARY(1024) NOT NULL,
    command VARBINARY(4096) NOT NULL,
    label VARBINARY(255) NOT NULL,
    PRIMARY KEY (client, seq),
    KEY by_name (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//
CREATE TABLE IF NOT EXISTS holdfast_counters (
    name VARBINARY(255) NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL,
    until_us BIGINT NOT NULL DEFAULT 9223372036854775807,
    KEY by_end (until_us)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//
CREATE TABLE IF NOT EXISTS holdfast_answers (
    client BINARY(16) NOT NULL,
    name VARBINARY(255) NOT NULL,
    seq BIGINT NOT NULL,
    minute INT NOT NULL,
    word VARCHAR(8) NOT NULL,
    value BIGINT,
    life_us BIGINT NOT NULL,
    PRIMARY KEY (client, name),
    KEY by_minute (minute)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//
CREATE OR REPLACE SQL SECURITY INVOKER VIEW holdfast_who AS
    SELECT CONVERT(c.name USING utf8mb4) AS name, ELT(c.state, 'holds', 'is next', 'waits') AS what, c.weight, l.capacity,
        NULLIF(c.token, 0) AS token, FROM_UNIXTIME(c.since_us / 1000000) AS since,
        FROM_UNIXTIME(c.until_us / 1000000) AS until, CONVERT(c.host USING utf8mb4) AS host, c.pid,
        CONVERT(c.command USING utf8mb4) AS command, CONVERT(c.label USING utf8mb4) AS label
    FROM holdfast_claims c JOIN holdfast_locks l ON l.name = c.name
    WHERE c.state < 4 AND c.until_us > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
    ORDER BY c.name, c.state, c.ticket
//
DROP PROCEDURE IF EXISTS holdfast_acquire
//
CREATE PROCEDURE holdfast_acquire (
    the_name VARBINARY(255),
    the_kind TINYINT,
    the_capacity INT,
    the_weight INT,
    me BINARY(16),
    my_seq BIGINT,
    lease_us BIGINT,
    wait_us BIGINT,
    barges TINYINT,
    proposed BIGINT,
    base BIGINT,
    my_pid BIGINT,
    my_host VARBINARY(1024),
    my_command VARBINARY(4096),
    my_label VARBINARY(255)
) SQL SECURITY INVOKER
BEGIN
    DECLARE lock_kind, my_state TINYINT;
    DECLARE lock_capacity, today INT;
    DECLARE lock_token, lock_ticket, my_ticket, my_token, most_us BIGINT;
    DECLARE ends_us BIGINT;
    DECLARE head BIGINT;
    DECLARE answer VARCHAR(8);
    DECLARE number BIGINT;
    DECLARE is_head TINYINT DEFAULT 0;
    DECLARE now_us, used BIGINT DEFAULT 0;
    DECLARE next_client BINARY(16);
    DECLARE next_seq, next_until_us BIGINT;
    DECLARE next_weight INT;
    DECLARE old_name, dead_name VARBINARY(255);
    DECLARE old_count INT DEFAULT 0;
    DECLARE is_used, woken TINYINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    IF CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF') THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read only';
    END IF;
    START TRANSACTION;
    SELECT kind, capacity, token, ticket INTO lock_kind, lock_capacity, lock_token, lock_ticket
        FROM holdfast_locks WHERE name = the_name FOR UPDATE;
    SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    SET today = now_us DIV 86400000000;
    IF lock_kind IS NULL THEN
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
            sweeping: LOOP
                SET next_client = NULL;
                SELECT client, seq INTO next_client, next_seq FROM holdfast_sessions WHERE name = dead_name
                    AND COALESCE(IS_USED_LOCK(CONCAT('holdfast.', HEX(client), '.', session)), 0) <> session LIMIT 1;
                IF next_client IS NULL THEN
                    LEAVE sweeping;
                END IF;
                DELETE FROM holdfast_sessions WHERE client = next_client AND seq = next_seq;
            END LOOP;
            SELECT EXISTS (SELECT 1 FROM holdfast_claims WHERE name = old_name)
                OR EXISTS (SELECT 1 FROM holdfast_sessions WHERE name = old_name) INTO is_used;
            IF NOT is_used THEN
                DELETE FROM holdfast_locks WHERE name = old_name AND token < now_us;
                SET dead_name = NULL;
                SELECT name INTO dead_name FROM holdfast_rows WHERE name = old_name FOR UPDATE SKIP LOCKED;
                DELETE FROM holdfast_rows WHERE name = dead_name;
            END IF;
            UPDATE holdfast_locks SET used_day = today WHERE name = old_name;
        END LOOP;
        INSERT INTO holdfast_locks (name, kind, capacity, used_day) VALUES (the_name, the_kind, the_capacity, today)
            ON DUPLICATE KEY UPDATE used_day = today;
        SELECT kind, capacity, token, ticket INTO lock_kind, lock_capacity, lock_token, lock_ticket
            FROM holdfast_locks WHERE name = the_name;
        SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    END IF;
    SELECT EXISTS (SELECT 1 FROM holdfast_claims WHERE name = the_name) INTO is_used;
    IF is_used THEN
        SELECT state INTO my_state FROM holdfast_claims WHERE client = me AND seq = my_seq FOR UPDATE;
        IF my_state = 4 THEN
            DELETE FROM holdfast_claims WHERE client = me AND seq = my_seq;
        END IF;
        SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
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
                DELETE FROM holdfast_claims WHERE client = next_client AND seq = next_seq;
                ITERATE reserving;
            END IF;
            SELECT COALESCE(SUM(weight), 0) INTO used FROM holdfast_claims WHERE name = the_name AND state < 3;
            IF used + next_weight > lock_capacity THEN
                LEAVE reserving;
            END IF;
            UPDATE holdfast_claims SET state = 2 WHERE client = next_client AND seq = next_seq;
            SET woken = 1;
        END LOOP;
        SET my_state = NULL;
        SELECT state, ticket, token INTO my_state, my_ticket, my_token
            FROM holdfast_claims WHERE client = me AND seq = my_seq;
        SELECT COALESCE(SUM(weight), 0), MIN(until_us) INTO used, ends_us
            FROM holdfast_claims WHERE name = the_name AND state < 3;
        SELECT ticket INTO head FROM holdfast_claims WHERE name = the_name AND state = 3 ORDER BY ticket LIMIT 1;
    END IF;
    SELECT EXISTS (SELECT 1 FROM holdfast_sessions WHERE name = the_name
        AND IS_USED_LOCK(CONCAT('holdfast.', HEX(client), '.', session)) = session) INTO is_used;
    SET my_ticket = COALESCE(my_ticket, lock_ticket + 1 - IF(barges, 4503599627370496, 0));
    IF (used > 0 OR head IS NOT NULL) AND (lock_kind <> the_kind OR lock_capacity <> the_capacity) THEN
        SET answer = 'kind';
    ELSEIF is_used THEN
        SET answer = 'scheme';
    ELSEIF my_state < 3 OR (used + the_weight <= the_capacity AND (head IS NULL OR barges)) THEN
        SET most_us = GREATEST(now_us, base) + 86400000000;
        SET number = IF(my_state = 1, my_token, lock_token);
        IF proposed > most_us AND number = 0 THEN
            SET answer = 'clock', number = now_us;
        ELSE
            SET number = GREATEST(IF(my_state = 1, number, number + 1), LEAST(proposed, most_us), base);
            SET answer = IF(number < 9007199254740992, 'done', 'spent');
        END IF;
        IF answer <> 'done' THEN
            DELETE FROM holdfast_claims WHERE client = me AND seq = my_seq;
        ELSE
            UPDATE holdfast_locks SET kind = the_kind, capacity = the_capacity, token = GREATEST(token, number),
                ticket = ticket + 1, used_day = today WHERE name = the_name;
            IF my_state IS NULL THEN
                INSERT INTO holdfast_claims VALUES (me, my_seq, the_name, 1, my_ticket, the_weight,
                    now_us + lease_us, number, now_us, my_pid, my_host, my_command, my_label);
            ELSE
                UPDATE holdfast_claims SET state = 1, token = number, since_us = IF(my_state = 1, since_us, now_us),
                    until_us = IF(my_state = 1, GREATEST(until_us, now_us + lease_us), now_us + lease_us)
                    WHERE client = me AND seq = my_seq;
            END IF;
        END IF;
    ELSE
        SET answer = IF(wait_us, 'queued', 'busy'), is_head = head IS NULL OR my_ticket <= head;
        IF wait_us AND my_state IS NULL THEN
            UPDATE holdfast_locks SET kind = the_kind, capacity = the_capacity, ticket = ticket + 1, used_day = today
                WHERE name = the_name;
            INSERT INTO holdfast_claims VALUES (me, my_seq, the_name, 3, my_ticket, the_weight,
                now_us + wait_us, 0, now_us, my_pid, my_host, my_command, my_label);
        ELSEIF wait_us THEN
            UPDATE holdfast_claims SET until_us = now_us + wait_us WHERE client = me AND seq = my_seq;
        END IF;
        SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
        SET number = COALESCE(ends_us - now_us, 0);
    END IF;
    COMMIT;
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
    SELECT answer, number, is_head, lock_kind, lock_capacity;
END
//
DROP PROCEDURE IF EXISTS holdfast_acquire_free
//
CREATE PROCEDURE holdfast_acquire_free (
    asked LONGTEXT,
    me BINARY(16),
    base BIGINT,
    my_pid BIGINT,
    my_host VARBINARY(1024),
    my_command VARBINARY(4096)
) SQL SECURITY INVOKER
BEGIN
    DECLARE now_us BIGINT;
    DECLARE locked, free LONGTEXT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    IF CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF') THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read only';
    END IF;
    START TRANSACTION;
    SELECT GROUP_CONCAT(a.seq) INTO locked
        FROM JSON_TABLE(asked, '$[*]' COLUMNS (name VARCHAR(510) PATH '$[0]', seq BIGINT PATH '$[4]')) a
        STRAIGHT_JOIN holdfast_locks l ON l.name = UNHEX(a.name) FOR UPDATE SKIP LOCKED;
    SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    SELECT GROUP_CONCAT(a.seq) INTO free
        FROM JSON_TABLE(asked, '$[*]' COLUMNS (name VARCHAR(510) PATH '$[0]', capacity INT PATH '$[2]',
            weight INT PATH '$[3]', seq BIGINT PATH '$[4]', proposed BIGINT PATH '$[7]')) a
        STRAIGHT_JOIN holdfast_locks l ON l.name = UNHEX(a.name)
        WHERE FIND_IN_SET(a.seq, locked) AND a.weight <= a.capacity
        AND a.proposed <= GREATEST(now_us, base) + 86400000000
        AND GREATEST(l.token + 1, a.proposed, base) < 9007199254740992
        AND NOT EXISTS (SELECT 1 FROM holdfast_claims c WHERE c.name = l.name)
        AND NOT EXISTS (SELECT 1 FROM holdfast_sessions s WHERE s.name = l.name);
    INSERT INTO holdfast_claims
        SELECT me, a.seq, l.name, 1, l.ticket + 1 - IF(a.barges, 4503599627370496, 0), a.weight, now_us + a.lease_us,
            GREATEST(l.token + 1, a.proposed, base), now_us, my_pid, my_host, my_command, UNHEX(a.label)
        FROM JSON_TABLE(asked, '$[*]' COLUMNS (name VARCHAR(510) PATH '$[0]', weight INT PATH '$[3]', seq BIGINT PATH '$[4]',
            lease_us BIGINT PATH '$[5]', barges TINYINT PATH '$[6]', proposed BIGINT PATH '$[7]',
            label VARCHAR(510) PATH '$[8]')) a
        STRAIGHT_JOIN holdfast_locks l ON l.name = UNHEX(a.name) WHERE FIND_IN_SET(a.seq, free);
    UPDATE JSON_TABLE(asked, '$[*]' COLUMNS (name VARCHAR(510) PATH '$[0]', kind TINYINT PATH '$[1]',
            capacity INT PATH '$[2]', seq BIGINT PATH '$[4]', proposed BIGINT PATH '$[7]')) a
        STRAIGHT_JOIN holdfast_locks l ON l.name = UNHEX(a.name)
        SET l.kind = a.kind, l.capacity = a.capacity, l.token = GREATEST(l.token + 1, a.proposed, base),
            l.ticket = l.ticket + 1, l.used_day = now_us DIV 86400000000
        WHERE FIND_IN_SET(a.seq, free);
    COMMIT;
    SELECT c.seq, c.token
        FROM JSON_TABLE(asked, '$[*]' COLUMNS (seq BIGINT PATH '$[4]')) a
        STRAIGHT_JOIN holdfast_claims c ON c.client = me AND c.seq = a.seq WHERE FIND_IN_SET(a.seq, free);
END
//
DROP PROCEDURE IF EXISTS holdfast_release
//
CREATE PROCEDURE holdfast_release (
    the_name VARBINARY(255),
    me BINARY(16),
    my_seq BIGINT
) SQL SECURITY INVOKER
BEGIN
    DECLARE lock_capacity, lock_day INT;
    DECLARE ends_us BIGINT DEFAULT 0;
    DECLARE now_us, used BIGINT DEFAULT 0;
    DECLARE next_client BINARY(16);
    DECLARE next_seq, next_until_us BIGINT;
    DECLARE next_weight INT;
    DECLARE old_name, dead_name VARBINARY(255);
    DECLARE old_count INT DEFAULT 0;
    DECLARE is_used, woken TINYINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    IF CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF') THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read only';
    END IF;
    START TRANSACTION;
    SELECT capacity, used_day INTO lock_capacity, lock_day FROM holdfast_locks WHERE name = the_name FOR UPDATE;
    SELECT IF(state < 4, until_us, 0) INTO ends_us FROM holdfast_claims WHERE client = me AND seq = my_seq FOR UPDATE;
    DELETE FROM holdfast_claims WHERE client = me AND seq = my_seq;
    SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    SELECT EXISTS (SELECT 1 FROM holdfast_claims WHERE name = the_name) INTO is_used;
    IF is_used THEN
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
                DELETE FROM holdfast_claims WHERE client = next_client AND seq = next_seq;
                ITERATE reserving;
            END IF;
            SELECT COALESCE(SUM(weight), 0) INTO used FROM holdfast_claims WHERE name = the_name AND state < 3;
            IF used + next_weight > lock_capacity THEN
                LEAVE reserving;
            END IF;
            UPDATE holdfast_claims SET state = 2 WHERE client = next_client AND seq = next_seq;
            SET woken = 1;
        END LOOP;
    END IF;
    IF lock_day < now_us DIV 86400000000 THEN
        UPDATE holdfast_locks SET used_day = now_us DIV 86400000000 WHERE name = the_name;
    END IF;
    COMMIT;
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
    SELECT ends_us > now_us;
END
//
DROP PROCEDURE IF EXISTS holdfast_release_quiet
//
CREATE PROCEDURE holdfast_release_quiet (
    asked LONGTEXT,
    me BINARY(16)
) SQL SECURITY INVOKER
BEGIN
    DECLARE now_us BIGINT;
    DECLARE locked, ended LONGTEXT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    IF CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF') THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read only';
    END IF;
    START TRANSACTION;
    SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    SELECT GROUP_CONCAT(a.seq) INTO locked
        FROM JSON_TABLE(asked, '$[*]' COLUMNS (name VARCHAR(510) PATH '$[0]', seq BIGINT PATH '$[1]')) a
        STRAIGHT_JOIN holdfast_locks l ON l.name = UNHEX(a.name)
        WHERE l.used_day >= now_us DIV 86400000000 FOR UPDATE SKIP LOCKED;
    SELECT GROUP_CONCAT(a.seq) INTO locked
        FROM JSON_TABLE(asked, '$[*]' COLUMNS (name VARCHAR(510) PATH '$[0]', seq BIGINT PATH '$[1]')) a
        WHERE FIND_IN_SET(a.seq, locked)
        AND NOT EXISTS (SELECT 1 FROM holdfast_claims w WHERE w.name = UNHEX(a.name) AND w.state = 3);
    SELECT GROUP_CONCAT(a.seq) INTO ended
        FROM JSON_TABLE(asked, '$[*]' COLUMNS (seq BIGINT PATH '$[1]')) a
        STRAIGHT_JOIN holdfast_claims c ON c.client = me AND c.seq = a.seq
        WHERE FIND_IN_SET(a.seq, locked) FOR UPDATE SKIP LOCKED;
    SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    SELECT c.seq, c.state < 4 AND c.until_us > now_us
        FROM JSON_TABLE(asked, '$[*]' COLUMNS (seq BIGINT PATH '$[1]')) a
        STRAIGHT_JOIN holdfast_claims c ON c.client = me AND c.seq = a.seq
        WHERE FIND_IN_SET(a.seq, ended);
    DELETE c FROM JSON_TABLE(asked, '$[*]' COLUMNS (seq BIGINT PATH '$[1]')) a
        STRAIGHT_JOIN holdfast_claims c ON c.client = me AND c.seq = a.seq
        WHERE FIND_IN_SET(a.seq, ended);
    COMMIT;
END
//
DROP PROCEDURE IF EXISTS holdfast_break
//
CREATE PROCEDURE holdfast_break (
    the_name VARBINARY(255),
    the_token BIGINT,
    breaker VARBINARY(1024),
    reason VARBINARY(255)
) SQL SECURITY INVOKER
BEGIN
    DECLARE lock_capacity INT;
    DECLARE holder BINARY(16);
    DECLARE holder_seq BIGINT;
    DECLARE now_us, used BIGINT DEFAULT 0;
    DECLARE next_client BINARY(16);
    DECLARE next_seq, next_until_us BIGINT;
    DECLARE next_weight INT;
    DECLARE old_name, dead_name VARBINARY(255);
    DECLARE old_count INT DEFAULT 0;
    DECLARE is_used, woken TINYINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    IF CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF') THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read only';
    END IF;
    START TRANSACTION;
    SELECT capacity INTO lock_capacity FROM holdfast_locks WHERE name = the_name FOR UPDATE;
    SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    SELECT client, seq INTO holder, holder_seq FROM holdfast_claims
        FORCE INDEX (by_name)
        WHERE name = the_name AND state = 1 AND token = the_token AND until_us > now_us LIMIT 1 FOR UPDATE;
    IF holder IS NOT NULL THEN
        UPDATE holdfast_claims SET state = 4 WHERE client = holder AND seq = holder_seq;
        UPDATE holdfast_locks SET token = token + 1, used_day = now_us DIV 86400000000, broken_us = now_us,
            broken_token = the_token, broken_by = breaker, broken_reason = reason WHERE name = the_name;
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
                DELETE FROM holdfast_claims WHERE client = next_client AND seq = next_seq;
                ITERATE reserving;
            END IF;
            SELECT COALESCE(SUM(weight), 0) INTO used FROM holdfast_claims WHERE name = the_name AND state < 3;
            IF used + next_weight > lock_capacity THEN
                LEAVE reserving;
            END IF;
            UPDATE holdfast_claims SET state = 2 WHERE client = next_client AND seq = next_seq;
            SET woken = 1;
        END LOOP;
        SET woken = 1;
    END IF;
    COMMIT;
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
    SELECT holder IS NOT NULL;
END
//
DROP PROCEDURE IF EXISTS holdfast_draw
//
CREATE PROCEDURE holdfast_draw (
    the_name VARBINARY(255),
    the_weight INT,
    me BINARY(16),
    my_seq BIGINT,
    my_session BIGINT,
    proposed BIGINT,
    base BIGINT,
    my_pid BIGINT,
    my_host VARBINARY(1024),
    my_command VARBINARY(4096),
    my_label VARBINARY(255)
) SQL SECURITY INVOKER
BEGIN
    DECLARE the_kind TINYINT DEFAULT 2;
    DECLARE the_capacity INT DEFAULT 2147483647;
    DECLARE lock_kind, my_state TINYINT;
    DECLARE lock_capacity, today INT;
    DECLARE lock_token, lock_ticket, my_token, most_us, number BIGINT;
    DECLARE answer VARCHAR(8) DEFAULT 'scheme';
    DECLARE now_us, used BIGINT DEFAULT 0;
    DECLARE next_client BINARY(16);
    DECLARE next_seq, next_until_us BIGINT;
    DECLARE next_weight INT;
    DECLARE old_name, dead_name VARBINARY(255);
    DECLARE old_count INT DEFAULT 0;
    DECLARE is_used, woken TINYINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    IF CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF') THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read only';
    END IF;
    START TRANSACTION;
    SELECT kind, capacity, token, ticket INTO lock_kind, lock_capacity, lock_token, lock_ticket
        FROM holdfast_locks WHERE name = the_name FOR UPDATE;
    SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    SET today = now_us DIV 86400000000;
    IF lock_kind IS NULL THEN
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
            sweeping: LOOP
                SET next_client = NULL;
                SELECT client, seq INTO next_client, next_seq FROM holdfast_sessions WHERE name = dead_name
                    AND COALESCE(IS_USED_LOCK(CONCAT('holdfast.', HEX(client), '.', session)), 0) <> session LIMIT 1;
                IF next_client IS NULL THEN
                    LEAVE sweeping;
                END IF;
                DELETE FROM holdfast_sessions WHERE client = next_client AND seq = next_seq;
            END LOOP;
            SELECT EXISTS (SELECT 1 FROM holdfast_claims WHERE name = old_name)
                OR EXISTS (SELECT 1 FROM holdfast_sessions WHERE name = old_name) INTO is_used;
            IF NOT is_used THEN
                DELETE FROM holdfast_locks WHERE name = old_name AND token < now_us;
                SET dead_name = NULL;
                SELECT name INTO dead_name FROM holdfast_rows WHERE name = old_name FOR UPDATE SKIP LOCKED;
                DELETE FROM holdfast_rows WHERE name = dead_name;
            END IF;
            UPDATE holdfast_locks SET used_day = today WHERE name = old_name;
        END LOOP;
        INSERT INTO holdfast_locks (name, kind, capacity, used_day) VALUES (the_name, the_kind, the_capacity, today)
            ON DUPLICATE KEY UPDATE used_day = today;
        SELECT kind, capacity, token, ticket INTO lock_kind, lock_capacity, lock_token, lock_ticket
            FROM holdfast_locks WHERE name = the_name;
        SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    END IF;
    SET dead_name = the_name;
    sweeping: LOOP
        SET next_client = NULL;
        SELECT client, seq INTO next_client, next_seq FROM holdfast_sessions WHERE name = dead_name
            AND COALESCE(IS_USED_LOCK(CONCAT('holdfast.', HEX(client), '.', session)), 0) <> session LIMIT 1;
        IF next_client IS NULL THEN
            LEAVE sweeping;
        END IF;
        DELETE FROM holdfast_sessions WHERE client = next_client AND seq = next_seq;
    END LOOP;
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
            DELETE FROM holdfast_claims WHERE client = next_client AND seq = next_seq;
            ITERATE reserving;
        END IF;
        SELECT COALESCE(SUM(weight), 0) INTO used FROM holdfast_claims WHERE name = the_name AND state < 3;
        IF used + next_weight > lock_capacity THEN
            LEAVE reserving;
        END IF;
        UPDATE holdfast_claims SET state = 2 WHERE client = next_client AND seq = next_seq;
        SET woken = 1;
    END LOOP;
    SELECT EXISTS (SELECT 1 FROM holdfast_claims WHERE name = the_name AND state < 4) INTO is_used;
    IF NOT is_used THEN
        SELECT 1, token INTO my_state, my_token FROM holdfast_sessions WHERE client = me AND seq = my_seq;
        SET most_us = GREATEST(now_us, base) + 86400000000;
        SET number = IF(my_state = 1, my_token, lock_token);
        IF proposed > most_us AND number = 0 THEN
            SET answer = 'clock', number = now_us;
        ELSE
            SET number = GREATEST(IF(my_state = 1, number, number + 1), LEAST(proposed, most_us), base);
            SET answer = IF(number < 9007199254740992, 'done', 'spent');
        END IF;
    END IF;
    IF answer = 'done' THEN
        UPDATE holdfast_locks SET kind = the_kind, capacity = the_capacity, token = GREATEST(token, number),
            used_day = today WHERE name = the_name;
        INSERT INTO holdfast_sessions VALUES (me, my_seq, the_name, my_session, the_weight, number, now_us,
            my_pid, my_host, my_command, my_label) ON DUPLICATE KEY UPDATE session = my_session, token = number;
    END IF;
    COMMIT;
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
    SELECT answer, number;
END
//
DROP PROCEDURE IF EXISTS holdfast_break_session
//
CREATE PROCEDURE holdfast_break_session (
    the_name VARBINARY(255),
    the_token BIGINT,
    breaker VARBINARY(1024),
    reason VARBINARY(255)
) SQL SECURITY INVOKER
BEGIN
    DECLARE lock_capacity INT;
    DECLARE holder BINARY(16);
    DECLARE holder_seq BIGINT;
    DECLARE holder_lock VARCHAR(64);
    DECLARE looks INT DEFAULT 0;
    DECLARE now_us, used BIGINT DEFAULT 0;
    DECLARE next_client BINARY(16);
    DECLARE next_seq, next_until_us BIGINT;
    DECLARE next_weight INT;
    DECLARE old_name, dead_name VARBINARY(255);
    DECLARE old_count INT DEFAULT 0;
    DECLARE is_used, woken TINYINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    IF CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF') THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read only';
    END IF;
    START TRANSACTION;
    SELECT capacity INTO lock_capacity FROM holdfast_locks WHERE name = the_name FOR UPDATE;
    SELECT client, seq, CONCAT('holdfast.', HEX(client), '.', session) INTO holder, holder_seq, holder_lock
        FROM holdfast_sessions WHERE name = the_name AND token = the_token
        AND IS_USED_LOCK(CONCAT('holdfast.', HEX(client), '.', session)) = session LIMIT 1;
    IF holder IS NOT NULL THEN
        BEGIN
            DECLARE CONTINUE HANDLER FOR 1094 BEGIN END;
            KILL IS_USED_LOCK(holder_lock);
        END;
        WHILE IS_USED_LOCK(holder_lock) IS NOT NULL DO
            IF looks = 200 THEN
                SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the session of the holder does not end';
            END IF;
            DO SLEEP(0.005);
            SET looks = looks + 1;
        END WHILE;
        DELETE FROM holdfast_sessions WHERE client = holder AND seq = holder_seq;
        SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
        UPDATE holdfast_locks SET token = token + 1, used_day = now_us DIV 86400000000, broken_us = now_us,
            broken_token = the_token, broken_by = breaker, broken_reason = reason WHERE name = the_name;
    END IF;
    COMMIT;
    SELECT holder IS NOT NULL;
END
//
DROP PROCEDURE IF EXISTS holdfast_count
//
CREATE PROCEDURE holdfast_count (
    the_name VARBINARY(255),
    op TINYINT,
    operand BIGINT,
    expected BIGINT,
    new_life_us BIGINT,
    me BINARY(16),
    my_seq BIGINT
) SQL SECURITY INVOKER
BEGIN
    DECLARE never_us BIGINT DEFAULT 9223372036854775807;
    DECLARE now_us, my_last, old_value, ends_us, number, left_us BIGINT;
    DECLARE answer VARCHAR(8) DEFAULT 'done';
    DECLARE dead_client BINARY(16);
    DECLARE dead_name VARBINARY(255);
    DECLARE dead_count INT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    IF CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF') THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read only';
    END IF;
    START TRANSACTION;
    SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    IF op <> 1 THEN
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
    END IF;
    IF my_last > my_seq THEN
        SET answer = 'late';
    ELSEIF my_last = my_seq THEN
        SELECT word, value, life_us INTO answer, number, left_us
            FROM holdfast_answers WHERE client = me AND name = the_name;
    ELSE
        IF op = 1 THEN
            SELECT value, until_us INTO old_value, ends_us FROM holdfast_counters WHERE name = the_name;
        ELSE
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
            SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
        END IF;
        IF ends_us <= now_us THEN
            SET old_value = NULL;
        END IF;
        SET number = old_value;
        IF op = 4 AND NOT old_value <=> expected THEN
            SET answer = 'mismatch';
        ELSEIF op = 2 AND (old_value > 9223372036854775807 - GREATEST(operand, 0)
            OR old_value < -9223372036854775807 - 1 - LEAST(operand, 0)) THEN
            SET answer = 'range';
        ELSEIF op = 5 THEN
            DELETE FROM holdfast_counters WHERE name = the_name;
        ELSEIF op <> 1 THEN
            IF op <> 3 THEN
                SET number = IF(op = 2, COALESCE(old_value, 0) + operand, operand);
            END IF;
            IF old_value IS NULL THEN
                SET ends_us = IF(new_life_us = 0, never_us, now_us + new_life_us);
            END IF;
            UPDATE holdfast_counters SET value = IF(op = 3, operand, number), until_us = ends_us WHERE name = the_name;
        END IF;
        SET left_us = IF(number IS NULL OR ends_us = never_us, -1, ends_us - now_us);
        IF op <> 1 THEN
            UPDATE holdfast_answers SET seq = my_seq, minute = now_us DIV 60000000, word = answer, value = number,
                life_us = left_us WHERE client = me AND name = the_name;
        END IF;
    END IF;
    COMMIT;
    SELECT answer, number, left_us;
END
//
ALTER TABLE holdfast_locks COMMENT = 'holdfast schema 6'
//
