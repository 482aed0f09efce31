-- The schema of the MySQL store: memory.c in SQL. Each operation except a renewal is one call of one
-- of these procedures, in one transaction. Statements end with a line //. An included file replaces
-- the line that names it.
--
-- holdfast_locks has a row for each name that is in use or was within a week; holdfast_claims has
-- one for each hold and each place in a queue. A procedure that changes the claims of a name first
-- locks its row in holdfast_locks. There are two exceptions: a renewal locks the claims that it
-- renews, and keep_place.sql the one claim of a waiter, and neither locks anything else. To avoid
-- deadlocks, every procedure locks in this order: the row of the name, then one claim, for which it
-- may have to wait, then claims that have expired, where it skips one that is being renewed, then
-- claims that wait. Of these, keep_place.sql may have locked one, but it then waits for nothing.
--
-- A claim that has expired is removed before anything is granted, not just ignored: it may be in the
-- middle of being renewed. What remains counts, whatever its time.
--
-- holdfast_acquire_free and holdfast_release_quiet do many requests in one transaction, and leave out
-- those that would have to wait: they skip rows that somebody else has locked. So they keep no other
-- name waiting for longer than their commit takes, and cannot be part of a deadlock. They find every
-- row by its key, in the order of the requests (STRAIGHT_JOIN): a scan would lock others.
--
-- Everything relies on READ COMMITTED, which each session of holdfast sets: it makes InnoDB lock
-- rows and not the gaps between them, where other names would be. For the same reason no index
-- except the primary keys is unique, and only SELECT statements read: in the condition of an IF or
-- of a DELETE, InnoDB locks each row that it looks at. Rows to be locked are found by a key; a
-- search through the table would lock those of other names on its way.
--
-- Times are in microseconds since 1970, by the server's clock, whatever the time zone is. A
-- separate statement reads the time, since it stands still within a statement.
CREATE TABLE IF NOT EXISTS holdfast_locks (
    name VARBINARY(255) NOT NULL PRIMARY KEY, -- names are bytes
    kind TINYINT NOT NULL, -- 2 a lock, 3 permits
    capacity INT NOT NULL,
    token BIGINT NOT NULL DEFAULT 0, -- the largest ever granted
    ticket BIGINT NOT NULL DEFAULT 0, -- the last one drawn
    used_day INT NOT NULL, -- when it was last used, in days since 1970
    broken_us BIGINT NOT NULL DEFAULT 0, -- the last break
    broken_token BIGINT NOT NULL DEFAULT 0,
    broken_by VARBINARY(1024) NOT NULL DEFAULT '',
    broken_reason VARBINARY(255) NOT NULL DEFAULT '',
    KEY by_day (used_day)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//
CREATE TABLE IF NOT EXISTS holdfast_claims (
    client BINARY(16) NOT NULL, -- with seq, the attempt's id
    seq BIGINT NOT NULL,
    name VARBINARY(255) NOT NULL,
    state TINYINT NOT NULL, -- 1 held, 2 reserved, 3 waiting, 4 broken: its holder must be notified
    ticket BIGINT NOT NULL, -- the order of the queue; below 0: barges
    weight INT NOT NULL,
    until_us BIGINT NOT NULL, -- end of the lease or wait lease
    token BIGINT NOT NULL,
    since_us BIGINT NOT NULL,
    pid BIGINT NOT NULL, -- for people, from here on
    host VARBINARY(1024) NOT NULL,
    command VARBINARY(4096) NOT NULL,
    label VARBINARY(255) NOT NULL,
    PRIMARY KEY (client, seq),
    KEY by_name (name, state, ticket)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//
-- The largest token that guarded transactions have shown, for each name. A transaction that shows a
-- smaller token writes 0, and fails.
CREATE TABLE IF NOT EXISTS holdfast_fences (
    name VARBINARY(255) NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL,
    CONSTRAINT holdfast_token_is_stale CHECK (token > 0)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//
-- For scheme=for-update: the rows that are locked, and who has locked one. Each session owns a user
-- lock, "holdfast.", the client's id, "." and the session's number. The server releases it when the
-- session ends, after its row locks. So a row of holdfast_sessions counts while that user lock is
-- owned by that session.
CREATE TABLE IF NOT EXISTS holdfast_rows (
    name VARBINARY(255) NOT NULL PRIMARY KEY
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//
CREATE TABLE IF NOT EXISTS holdfast_sessions (
    client BINARY(16) NOT NULL, -- with seq, the attempt's id
    seq BIGINT NOT NULL,
    name VARBINARY(255) NOT NULL,
    session BIGINT NOT NULL, -- the server's number for it
    weight INT NOT NULL,
    token BIGINT NOT NULL,
    since_us BIGINT NOT NULL,
    pid BIGINT NOT NULL, -- for people, from here on
    host VARBINARY(1024) NOT NULL,
    command VARBINARY(4096) NOT NULL,
    label VARBINARY(255) NOT NULL,
    PRIMARY KEY (client, seq),
    KEY by_name (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//
-- Counters, which have nothing to do with locks. A row whose time has passed is no counter.
CREATE TABLE IF NOT EXISTS holdfast_counters (
    name VARBINARY(255) NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL,
    until_us BIGINT NOT NULL DEFAULT 9223372036854775807, -- end of its life; this value: no end
    KEY by_end (until_us)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//
-- The last answer that a client was given for a counter: a repeat gets the same answer.
CREATE TABLE IF NOT EXISTS holdfast_answers (
    client BINARY(16) NOT NULL,
    name VARBINARY(255) NOT NULL,
    seq BIGINT NOT NULL, -- of the request
    minute INT NOT NULL, -- when it was answered, in minutes since 1970
    word VARCHAR(8) NOT NULL,
    value BIGINT, -- NULL: there was no counter
    life_us BIGINT NOT NULL,
    PRIMARY KEY (client, name),
    KEY by_minute (minute)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//
-- For people: who holds and who waits.
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
-- Takes the lock, or a place in its queue. A waiter calls it again to ask for its turn, and so does a
-- client whose reply was lost.
--
-- Answers 'done' with the token; 'queued' or 'busy' with the microseconds after which the lock may
-- be free; 'kind' with what the name is in use as; 'scheme': somebody holds it with
-- scheme=for-update; 'clock' with the server's time; 'spent' with the token.
CREATE PROCEDURE holdfast_acquire (
    the_name VARBINARY(255),
    the_kind TINYINT,
    the_capacity INT,
    the_weight INT,
    me BINARY(16),
    my_seq BIGINT,
    lease_us BIGINT,
    wait_us BIGINT, -- 0: does not wait
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
    DECLARE ends_us BIGINT; -- the first of the holders' leases
    DECLARE head BIGINT; -- the first waiter's ticket
    DECLARE answer VARCHAR(8);
    DECLARE number BIGINT;
    DECLARE is_head TINYINT DEFAULT 0;
    --#include declare.sql
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    --#include begin.sql
    --#include keep_place.sql
    IF answer IS NULL THEN
        --#include row.sql

        SELECT EXISTS (SELECT 1 FROM holdfast_claims WHERE name = the_name) INTO is_used;
        IF is_used THEN
            SELECT state INTO my_state FROM holdfast_claims WHERE client = me AND seq = my_seq FOR UPDATE;
            IF my_state = 4 THEN
                DELETE FROM holdfast_claims WHERE client = me AND seq = my_seq;
            END IF;
            --#include now.sql
            -- A client that asks late keeps its place, or its turn, unless somebody has noticed that its time has
            -- passed.
            IF my_state = 3 AND wait_us THEN
                UPDATE holdfast_claims SET until_us = now_us + wait_us WHERE client = me AND seq = my_seq;
            END IF;
            IF my_state IS NULL OR my_state <> 2 THEN
                --#include advance.sql
            END IF;
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
            --#include token.sql
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
            END IF;
            -- The holder may have renewed since, and no holder has more left than a whole lease.
            --#include now.sql
            SET number = COALESCE(ends_us - now_us, 0);
        END IF;
    END IF;
    COMMIT;
    --#include wake.sql
    SELECT answer, number, is_head, lock_kind, lock_capacity;
END
//
DROP PROCEDURE IF EXISTS holdfast_acquire_free
//
-- Takes locks that nobody holds or waits for, for many attempts at once, each with a different name.
-- `asked` is JSON, [[name, kind, capacity, weight, seq, lease_us, barges, proposed, label], ...] with
-- bytes in hex. Answers with the number and the token of each attempt that was granted its lock. The
-- others have to ask holdfast_acquire: those whose names are new or in use, whose rows are locked, and
-- whose tokens are not plain.
--
-- A separate statement locks the rows, since only the next statement sees the state after that.
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
    DECLARE locked, free LONGTEXT; -- numbers of attempts
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    --#include begin.sql
    SELECT GROUP_CONCAT(a.seq) INTO locked
        FROM JSON_TABLE(asked, '$[*]' COLUMNS (name VARCHAR(510) PATH '$[0]', seq BIGINT PATH '$[4]')) a
        STRAIGHT_JOIN holdfast_locks l ON l.name = UNHEX(a.name) FOR UPDATE SKIP LOCKED;
    --#include now.sql
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
-- Ends a hold, or a place in the queue. Answers 0 if there is none, or its time has passed.
CREATE PROCEDURE holdfast_release (
    the_name VARBINARY(255),
    me BINARY(16),
    my_seq BIGINT
) SQL SECURITY INVOKER
BEGIN
    DECLARE lock_capacity, lock_day INT;
    DECLARE ends_us BIGINT DEFAULT 0;
    --#include declare.sql
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    --#include begin.sql
    SELECT capacity, used_day INTO lock_capacity, lock_day FROM holdfast_locks WHERE name = the_name FOR UPDATE;
    SELECT IF(state < 4, until_us, 0) INTO ends_us FROM holdfast_claims WHERE client = me AND seq = my_seq FOR UPDATE;
    DELETE FROM holdfast_claims WHERE client = me AND seq = my_seq;
    --#include now.sql
    SELECT EXISTS (SELECT 1 FROM holdfast_claims WHERE name = the_name) INTO is_used;
    IF is_used THEN
        --#include advance.sql
    END IF;
    IF lock_day < now_us DIV 86400000000 THEN
        UPDATE holdfast_locks SET used_day = now_us DIV 86400000000 WHERE name = the_name;
    END IF;
    COMMIT;
    --#include wake.sql
    SELECT ends_us > now_us;
END
//
DROP PROCEDURE IF EXISTS holdfast_release_quiet
//
-- Ends the claims of many attempts at once, where nobody waits. `asked` is JSON, [[name, seq], ...].
-- Answers with the number of each that has ended, and whether its time had not passed. The others have
-- to ask holdfast_release.
CREATE PROCEDURE holdfast_release_quiet (
    asked LONGTEXT,
    me BINARY(16)
) SQL SECURITY INVOKER
BEGIN
    DECLARE now_us BIGINT;
    DECLARE locked, ended LONGTEXT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    --#include begin.sql
    --#include now.sql
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
    --#include now.sql
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
-- Ends the hold that has this token. Answers 0 if there is none.
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
    --#include declare.sql
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    --#include begin.sql
    SELECT capacity INTO lock_capacity FROM holdfast_locks WHERE name = the_name FOR UPDATE;
    --#include now.sql
    SELECT client, seq INTO holder, holder_seq FROM holdfast_claims
        FORCE INDEX (by_name)
        WHERE name = the_name AND state = 1 AND token = the_token AND until_us > now_us LIMIT 1 FOR UPDATE;
    IF holder IS NOT NULL THEN
        UPDATE holdfast_claims SET state = 4 WHERE client = holder AND seq = holder_seq;
        UPDATE holdfast_locks SET token = token + 1, used_day = now_us DIV 86400000000, broken_us = now_us,
            broken_token = the_token, broken_by = breaker, broken_reason = reason WHERE name = the_name;
        --#include advance.sql
        SET woken = 1;
    END IF;
    COMMIT;
    --#include wake.sql
    SELECT holder IS NOT NULL;
END
//
DROP PROCEDURE IF EXISTS holdfast_draw
//
-- Takes the token for a session that has locked the row of a name, and records the holder. A
-- session cannot commit anything while it holds the lock, so another one calls this.
--
-- Answers 'done' with the token; 'clock' and 'spent' as holdfast_acquire does; 'scheme': somebody
-- holds a lease on the name.
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
    --#include declare.sql
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    --#include begin.sql
    --#include row.sql
    SET dead_name = the_name;
    --#include sweep.sql
    --#include advance.sql
    SELECT EXISTS (SELECT 1 FROM holdfast_claims WHERE name = the_name AND state < 4) INTO is_used;
    IF NOT is_used THEN
        SELECT 1, token INTO my_state, my_token FROM holdfast_sessions WHERE client = me AND seq = my_seq;
        --#include token.sql
    END IF;
    IF answer = 'done' THEN
        UPDATE holdfast_locks SET kind = the_kind, capacity = the_capacity, token = GREATEST(token, number),
            used_day = today WHERE name = the_name;
        INSERT INTO holdfast_sessions VALUES (me, my_seq, the_name, my_session, the_weight, number, now_us,
            my_pid, my_host, my_command, my_label) ON DUPLICATE KEY UPDATE session = my_session, token = number;
    END IF;
    COMMIT;
    --#include wake.sql
    SELECT answer, number;
END
//
DROP PROCEDURE IF EXISTS holdfast_break_session
//
-- Ends the session that holds the lock with this token. Answers 0 if there is none. It fails if the
-- user may not end the holder's session.
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
    --#include declare.sql
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    --#include begin.sql
    SELECT capacity INTO lock_capacity FROM holdfast_locks WHERE name = the_name FOR UPDATE;
    SELECT client, seq, CONCAT('holdfast.', HEX(client), '.', session) INTO holder, holder_seq, holder_lock
        FROM holdfast_sessions WHERE name = the_name AND token = the_token
        AND IS_USED_LOCK(CONCAT('holdfast.', HEX(client), '.', session)) = session LIMIT 1;
    IF holder IS NOT NULL THEN
        BEGIN
            DECLARE CONTINUE HANDLER FOR 1094 BEGIN END; -- it has just ended on its own
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
        --#include now.sql
        UPDATE holdfast_locks SET token = token + 1, used_day = now_us DIV 86400000000, broken_us = now_us,
            broken_token = the_token, broken_by = breaker, broken_reason = reason WHERE name = the_name;
    END IF;
    COMMIT;
    SELECT holder IS NOT NULL;
END
//
DROP PROCEDURE IF EXISTS holdfast_count
//
-- One step on a counter: 1 get, 2 add, 3 swap, 4 compare and set, 5 remove. A get changes nothing, so
-- its answer is not kept: a repeat reads again.
--
-- Answers 'done' or 'mismatch' with the value, NULL if there is no counter, and the microseconds that are
-- left of its life, -1 if it has no end; 'range': the sum does not fit a BIGINT; 'late': a later request
-- of this client has been answered already. Only 'done' has changed something.
--
-- It locks the row of the client's last answer first, so that two sends of one request are executed one
-- after the other, and then the row of the counter. No transaction locks more than one of each, and
-- expired rows are removed only if nobody has locked them, so there can be no deadlock.
CREATE PROCEDURE holdfast_count (
    the_name VARBINARY(255),
    op TINYINT,
    operand BIGINT,
    expected BIGINT, -- NULL: no counter
    new_life_us BIGINT, -- of a counter that this creates; 0: no end
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
    --#include begin.sql
    --#include now.sql
    IF op <> 1 THEN
        --#include lock_answer.sql
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
            --#include lock_counter.sql
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
-- The last step: a client that finds this version also finds everything else.
ALTER TABLE holdfast_locks COMMENT = 'holdfast schema 7'
//
