SELECT pg_advisory_xact_lock(5210483217664569444);
CREATE SCHEMA IF NOT EXISTS holdfast;
CREATE TABLE IF NOT EXISTS holdfast.locks (
    name bytea PRIMARY KEY,
    kind smallint NOT NULL,
    capacity integer NOT NULL,
    token bigint NOT NULL DEFAULT 0,
    ticket bigint NOT NULL DEFAULT 0,
    used_day integer NOT NULL,
    broken_at timestamptz,
    broken_token bigint,
    broken_by bytea,
    broken_reason bytea
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX IF NOT EXISTS locks_by_day ON holdfast.locks (used_day);
CREATE TABLE IF NOT EXISTS holdfast.claims (
    client uuid NOT NULL,
    seq bigint NOT NULL,
    name bytea NOT NULL,
    state smallint NOT NULL,
    ticket bigint NOT NULL,
    weight integer NOT NULL,
    until timestamptz NOT NULL,
    token bigint NOT NULL,
    since timestamptz NOT NULL,
    pid bigint NOT NULL,
    host bytea NOT NULL,
    command bytea NOT NULL,
    label bytea NOT NULL,
    PRIMARY KEY (client, seq)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE UNIQUE INDEX IF NOT EXISTS claims_by_name ON holdfast.claims (name, state, ticket);
CREATE OR REPLACE VIEW holdfast.who AS
    SELECT encode(c.name, 'escape') AS name, (ARRAY['holds', 'is next', 'waits'])[c.state] AS what, c.weight, l.capacity,
           nullif(c.token, 0) AS token, c.since, c.until, encode(c.host, 'escape') AS host, c.pid,
           encode(c.command, 'escape') AS command, encode(c.label, 'escape') AS label
    FROM holdfast.claims c JOIN holdfast.locks l USING (name)
    WHERE c.until > clock_timestamp()
    ORDER BY c.name, c.state, c.ticket;
CREATE OR REPLACE FUNCTION holdfast.tell(client uuid, word text, seq bigint) RETURNS void LANGUAGE sql AS $$
    SELECT pg_notify('holdfast_' || replace(client::text, '-', ''), word || to_hex(seq))
$$;
CREATE OR REPLACE FUNCTION holdfast.lock_row(the_name bytea) RETURNS holdfast.locks LANGUAGE plpgsql AS $$
DECLARE
    lock holdfast.locks;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE 'holdfast needs the isolation level read committed, not %', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
    SELECT * INTO lock FROM holdfast.locks WHERE name = the_name FOR UPDATE;
    RETURN lock;
END $$;
CREATE OR REPLACE FUNCTION holdfast.advance(lock holdfast.locks) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := clock_timestamp();
    used bigint;
    next holdfast.claims;
BEGIN
    DELETE FROM holdfast.claims c USING (
        SELECT client, seq FROM holdfast.claims
        WHERE name = lock.name AND state < 3 AND until <= now FOR UPDATE SKIP LOCKED) ended
    WHERE c.client = ended.client AND c.seq = ended.seq;
    LOOP
        SELECT * INTO next FROM holdfast.claims WHERE name = lock.name AND state = 3 ORDER BY ticket LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF next.until <= now THEN
            DELETE FROM holdfast.claims WHERE client = next.client AND seq = next.seq;
            CONTINUE;
        END IF;
        used := coalesce((SELECT sum(weight) FROM holdfast.claims WHERE name = lock.name AND state < 3), 0);
        EXIT WHEN used + next.weight > lock.capacity;
        UPDATE holdfast.claims SET state = 2 WHERE client = next.client AND seq = next.seq;
        PERFORM holdfast.tell(next.client, 'w', next.seq);
    END LOOP;
END $$;
CREATE OR REPLACE FUNCTION holdfast.forget_some(today integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    old holdfast.locks;
BEGIN
    FOR old IN SELECT * FROM holdfast.locks WHERE used_day < today - 7 ORDER BY used_day LIMIT 4 FOR UPDATE SKIP LOCKED
    LOOP
        DELETE FROM holdfast.claims WHERE name = old.name AND until < clock_timestamp() - interval '1 day';
        DELETE FROM holdfast.locks WHERE name = old.name
            AND token < extract(epoch FROM clock_timestamp()) * 1000000
            AND NOT EXISTS (SELECT FROM holdfast.claims WHERE name = old.name);
        UPDATE holdfast.locks SET used_day = today WHERE name = old.name;
    END LOOP;
END $$;
CREATE OR REPLACE FUNCTION holdfast.lock_or_add_row(the_name bytea, the_kind smallint, the_capacity integer)
RETURNS holdfast.locks LANGUAGE plpgsql AS $$
DECLARE
    lock holdfast.locks;
    today integer;
BEGIN
    LOOP
        lock := holdfast.lock_row(the_name);
        IF lock.name IS NOT NULL THEN
            RETURN lock;
        END IF;
        today := extract(epoch FROM clock_timestamp())::bigint / 86400;
        PERFORM holdfast.forget_some(today);
        INSERT INTO holdfast.locks (name, kind, capacity, used_day) VALUES (the_name, the_kind, the_capacity, today)
        ON CONFLICT DO NOTHING;
    END LOOP;
END $$;
CREATE OR REPLACE FUNCTION holdfast.next_token(
    counter bigint, repeats boolean, proposed bigint, base bigint, now_us bigint, OUT token bigint, OUT refusal text)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    most bigint := greatest(now_us, base) + 86400000000;
BEGIN
    IF proposed > most AND counter = 0 THEN
        refusal := 'clock';
        token := now_us;
        RETURN;
    END IF;
    token := greatest(CASE WHEN repeats THEN counter ELSE counter + 1 END, least(proposed, most), base);
    IF token >= 9007199254740992 THEN
        refusal := 'spent';
    END IF;
END $$;
CREATE OR REPLACE FUNCTION holdfast.acquire(
    the_name bytea, the_kind smallint, the_capacity integer, the_weight integer, me uuid, my_seq bigint,
    lease_us bigint, wait_us bigint,
    barges boolean, proposed bigint, base bigint,
    my_pid bigint, my_host bytea, my_command bytea, my_label bytea,
    OUT answer text, OUT number bigint, OUT is_head boolean, OUT in_use_kind smallint, OUT in_use_capacity integer)
LANGUAGE plpgsql AS $$
DECLARE
    lock holdfast.locks := holdfast.lock_or_add_row(the_name, the_kind, the_capacity);
    mine holdfast.claims;
    now timestamptz := clock_timestamp();
    now_us bigint := extract(epoch FROM now) * 1000000;
    today integer := now_us / 86400000000;
    used bigint := 0;
    ends timestamptz;
    head bigint;
    my_ticket bigint;
BEGIN
    IF EXISTS (SELECT FROM holdfast.claims WHERE name = the_name) THEN
        SELECT * INTO mine FROM holdfast.claims WHERE client = me AND seq = my_seq FOR UPDATE;
        now := clock_timestamp();
        PERFORM holdfast.advance(lock);
        SELECT * INTO mine FROM holdfast.claims WHERE client = me AND seq = my_seq;
        SELECT coalesce(sum(weight), 0), min(until) INTO used, ends
        FROM holdfast.claims WHERE name = the_name AND state < 3;
        SELECT ticket INTO head FROM holdfast.claims WHERE name = the_name AND state = 3 ORDER BY ticket LIMIT 1;
        IF (used > 0 OR head IS NOT NULL) AND (lock.kind <> the_kind OR lock.capacity <> the_capacity) THEN
            answer := 'kind';
            in_use_kind := lock.kind;
            in_use_capacity := lock.capacity;
            RETURN;
        END IF;
    END IF;
    my_ticket := coalesce(mine.ticket, lock.ticket + 1 - CASE WHEN barges THEN 4503599627370496 ELSE 0 END);
    IF mine.state < 3 OR (used + the_weight <= the_capacity AND (head IS NULL OR barges)) THEN
        SELECT * INTO number, answer FROM holdfast.next_token(
            CASE WHEN mine.state = 1 THEN mine.token ELSE lock.token END, mine.state IS NOT DISTINCT FROM 1::smallint,
            proposed, base, now_us);
        IF answer IS NOT NULL THEN
            DELETE FROM holdfast.claims WHERE client = me AND seq = my_seq;
            PERFORM holdfast.advance(lock);
            RETURN;
        END IF;
        answer := 'done';
        UPDATE holdfast.locks SET kind = the_kind, capacity = the_capacity, token = greatest(token, number),
            ticket = ticket + 1, used_day = today
        WHERE name = the_name;
        IF mine.state IS NULL THEN
            INSERT INTO holdfast.claims VALUES (me, my_seq, the_name, 1, my_ticket, the_weight,
                now + lease_us * interval '1 microsecond', number, now, my_pid, my_host, my_command, my_label);
        ELSE
            UPDATE holdfast.claims SET state = 1, token = number,
                since = CASE WHEN state = 1 THEN since ELSE now END,
                until = greatest(CASE WHEN state = 1 THEN until END, now + lease_us * interval '1 microsecond')
            WHERE client = me AND seq = my_seq;
        END IF;
        RETURN;
    END IF;
    number := coalesce(extract(epoch FROM ends - clock_timestamp()) * 1000000, 0);
    IF wait_us = 0 THEN
        answer := 'busy';
        RETURN;
    END IF;
    answer := 'queued';
    is_head := head IS NULL OR my_ticket <= head;
    IF mine.state IS NULL THEN
        UPDATE holdfast.locks SET kind = the_kind, capacity = the_capacity, ticket = ticket + 1, used_day = today
        WHERE name = the_name;
        INSERT INTO holdfast.claims VALUES (me, my_seq, the_name, 3, my_ticket, the_weight,
            now + wait_us * interval '1 microsecond', 0, now, my_pid, my_host, my_command, my_label);
    ELSE
        UPDATE holdfast.claims SET until = now + wait_us * interval '1 microsecond' WHERE client = me AND seq = my_seq;
    END IF;
END $$;
CREATE OR REPLACE FUNCTION holdfast.renew(me uuid, seqs bigint[], leases_us bigint[]) RETURNS SETOF bigint LANGUAGE sql AS $$
    WITH held AS (
        SELECT c.seq, asked.lease_us FROM unnest(seqs, leases_us) AS asked (seq, lease_us)
        JOIN holdfast.claims c ON c.client = me AND c.seq = asked.seq
        WHERE c.state = 1 AND c.until > clock_timestamp() ORDER BY c.seq FOR UPDATE OF c)
    UPDATE holdfast.claims c
    SET until = greatest(c.until, clock_timestamp() + held.lease_us * interval '1 microsecond')
    FROM held WHERE c.client = me AND c.seq = held.seq
    RETURNING c.seq
$$;
CREATE OR REPLACE FUNCTION holdfast.release(the_name bytea, me uuid, my_seq bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    lock holdfast.locks := holdfast.lock_row(the_name);
    today integer := extract(epoch FROM clock_timestamp())::bigint / 86400;
    ends timestamptz;
BEGIN
    DELETE FROM holdfast.claims WHERE client = me AND seq = my_seq RETURNING until INTO ends;
    IF EXISTS (SELECT FROM holdfast.claims WHERE name = the_name) THEN
        PERFORM holdfast.advance(lock);
    END IF;
    IF lock.used_day < today THEN
        UPDATE holdfast.locks SET used_day = today WHERE name = the_name;
    END IF;
    RETURN coalesce(ends > clock_timestamp(), false);
END $$;
CREATE OR REPLACE FUNCTION holdfast.break(the_name bytea, the_token bigint, by bytea, reason bytea) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    lock holdfast.locks := holdfast.lock_row(the_name);
    broken holdfast.claims;
BEGIN
    DELETE FROM holdfast.claims WHERE name = the_name AND state = 1 AND token = the_token AND until > clock_timestamp()
    RETURNING * INTO broken;
    IF broken.client IS NULL THEN
        RETURN false;
    END IF;
    UPDATE holdfast.locks SET token = token + 1, used_day = extract(epoch FROM clock_timestamp())::bigint / 86400,
        broken_at = clock_timestamp(), broken_token = the_token, broken_by = by, broken_reason = reason
    WHERE name = the_name;
    PERFORM holdfast.tell(broken.client, 'g', broken.seq);
    PERFORM holdfast.advance(lock);
    RETURN true;
END $$;
COMMENT ON SCHEMA holdfast IS 'holdfast schema 1';
