-- The schema of the PostgreSQL store: memory.c in SQL. Each operation is one call of one of these
-- functions.
--
-- locks has a row for each name that is in use or was within a week; claims has one for each hold
-- and each place in a queue. A function that changes the claims of a name first locks its row in
-- locks. There are two exceptions: renew locks the claims that it renews, and keep_place the one claim
-- of a waiter, and neither locks anything else. To avoid deadlocks, every other function locks in this
-- order: the row of the name, then one claim, for which it may have to wait, then claims that have
-- expired, where it skips one that is being renewed, then claims that wait. Of these, keep_place may
-- have locked one, but it then waits for nothing.
--
-- A claim that has expired is removed before anything is granted, not just ignored: it may be in
-- the middle of being renewed. What remains counts, whatever its time.
--
-- acquire_free and release_quiet do many requests in one transaction, and leave out those that would
-- have to wait: they skip rows that somebody else has locked. So they keep no other name waiting
-- for longer than their commit takes, and cannot be part of a deadlock.
--
-- A function that changes a claim reports the change to watchers, but only if there is a row in
-- watchers whose time has not passed. It looks for one after it has locked the row of the name. So a
-- transaction that looked too early to see a new watcher has a number, and the watcher can wait for
-- it (watch.c). Notifications arrive in the order of the commits, and the row's lock makes that the
-- order of the changes of a name.
--
-- Everything is one transaction, and two clients may run it at once: the second waits for the
-- first, and then finds everything there.
SELECT pg_advisory_xact_lock(5210483217664569444);

CREATE SCHEMA IF NOT EXISTS holdfast;

-- Names are bytes: a name need not be text in the database's encoding, and sorts by its bytes.
CREATE TABLE IF NOT EXISTS holdfast.locks (
    name bytea PRIMARY KEY,
    kind smallint NOT NULL, -- 2 a lock, 3 permits
    capacity integer NOT NULL,
    token bigint NOT NULL DEFAULT 0, -- the largest ever granted
    ticket bigint NOT NULL DEFAULT 0, -- the last one drawn
    used_day integer NOT NULL, -- when it was last used, in days since 1970
    broken_at timestamptz, -- the last break
    broken_token bigint,
    broken_by bytea,
    broken_reason bytea
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

CREATE TABLE IF NOT EXISTS holdfast.claims (
    client uuid NOT NULL, -- with seq, the attempt's id
    seq bigint NOT NULL,
    name bytea NOT NULL,
    state smallint NOT NULL, -- 1 held, 2 reserved, 3 waiting
    ticket bigint NOT NULL, -- the order of the queue; below 0: barges
    weight integer NOT NULL,
    until timestamptz NOT NULL, -- end of the lease or wait lease
    token bigint NOT NULL,
    since timestamptz NOT NULL,
    pid bigint NOT NULL, -- for people, from here on
    host bytea NOT NULL,
    command bytea NOT NULL,
    label bytea NOT NULL,
    PRIMARY KEY (client, seq)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- The largest token that guarded transactions have shown, for each name.
CREATE TABLE IF NOT EXISTS holdfast.fences (
    name bytea PRIMARY KEY,
    token bigint NOT NULL CHECK (token > 0 AND token < 9007199254740992)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- The clients that watch.
CREATE TABLE IF NOT EXISTS holdfast.watchers (
    client uuid PRIMARY KEY,
    until timestamptz NOT NULL
) WITH (fillfactor = 70);

-- Counters, which have nothing to do with locks. A row whose time has passed is no counter.
CREATE TABLE IF NOT EXISTS holdfast.counters (
    name bytea PRIMARY KEY,
    value bigint NOT NULL,
    until timestamptz NOT NULL DEFAULT 'infinity' -- end of its life
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- The last answer that a client was given for a counter: a repeat gets the same answer.
CREATE TABLE IF NOT EXISTS holdfast.answers (
    client uuid NOT NULL,
    name bytea NOT NULL,
    seq bigint NOT NULL, -- of the request
    minute integer NOT NULL, -- when it was answered, in minutes since 1970
    word text NOT NULL,
    value bigint, -- NULL: there was no counter
    life_us bigint NOT NULL,
    PRIMARY KEY (client, name)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- For people: who holds and who waits.
CREATE OR REPLACE VIEW holdfast.who AS
    SELECT encode(c.name, 'escape') AS name, (ARRAY['holds', 'is next', 'waits'])[c.state] AS what, c.weight, l.capacity,
           nullif(c.token, 0) AS token, c.since, c.until, encode(c.host, 'escape') AS host, c.pid,
           encode(c.command, 'escape') AS command, encode(c.label, 'escape') AS label
    FROM holdfast.claims c JOIN holdfast.locks l USING (name)
    WHERE c.until > clock_timestamp()
    ORDER BY c.name, c.state, c.ticket;

-- For scheme=for-update: the rows that are locked, and who has locked one. A session counts while its
-- transaction is open.
CREATE TABLE IF NOT EXISTS holdfast.rows (name bytea PRIMARY KEY);
CREATE TABLE IF NOT EXISTS holdfast.sessions (
    client uuid NOT NULL, -- with seq, the attempt's id
    seq bigint NOT NULL,
    name bytea NOT NULL,
    xact bigint NOT NULL, -- the transaction that has locked the row
    backend integer NOT NULL, -- the server's process
    weight integer NOT NULL,
    token bigint NOT NULL,
    since timestamptz NOT NULL,
    pid bigint NOT NULL, -- for people, from here on
    host bytea NOT NULL,
    command bytea NOT NULL,
    label bytea NOT NULL,
    PRIMARY KEY (client, seq)
);

-- Creating an index, even with IF NOT EXISTS, waits for all transactions that write to its table.
-- If the schema exists already, they may in turn wait for a table that is locked here.
DO $$ BEGIN
    IF to_regclass('holdfast.locks_by_day') IS NULL THEN
        CREATE INDEX locks_by_day ON holdfast.locks (used_day);
    END IF;
    IF to_regclass('holdfast.claims_by_name') IS NULL THEN
        CREATE UNIQUE INDEX claims_by_name ON holdfast.claims (name, state, ticket);
    END IF;
    IF to_regclass('holdfast.sessions_by_name') IS NULL THEN
        CREATE INDEX sessions_by_name ON holdfast.sessions (name);
    END IF;
    IF to_regclass('holdfast.counters_by_end') IS NULL THEN
        CREATE INDEX counters_by_end ON holdfast.counters (until) WHERE until < 'infinity';
    END IF;
    IF to_regclass('holdfast.answers_by_minute') IS NULL THEN
        CREATE INDEX answers_by_minute ON holdfast.answers (minute);
    END IF;
END $$;

-- Whether a transaction is open. A number that is not known yet is from before a backup was restored.
CREATE OR REPLACE FUNCTION holdfast.is_open(xact bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce(txid_status(xact) = 'in progress', false);
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN false;
END $$;

-- Sends a hint to a client: 'w', an attempt's turn has come; 'g', its hold may be gone.
CREATE OR REPLACE FUNCTION holdfast.tell(client uuid, word text, seq bigint) RETURNS void LANGUAGE sql AS $$
    SELECT pg_notify('holdfast_' || replace(client::text, '-', ''), word || to_hex(seq))
$$;

-- Bytes as text without spaces, cut to a limit: a notification has at most 8000 bytes.
CREATE OR REPLACE FUNCTION holdfast.hex(bytes bytea) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT E'\\x' || encode(substr(bytes, 1, 600), 'hex')
$$;

-- Notifies watchers of what happened to a claim: 'a' acquired, 'r' released, 'b' broken, 'w'
-- waits, 'l' left the queue. After that and the time come the columns of sql.h.
CREATE OR REPLACE FUNCTION holdfast.report(word text, claim holdfast.claims) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('holdfast_watch', array_to_string(ARRAY[
        word, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text,
        holdfast.hex(l.name), l.kind::text, l.capacity::text, l.token::text,
        (extract(epoch FROM b.broken_at) * 1000000)::bigint::text, b.broken_token::text,
        holdfast.hex(b.broken_by), holdfast.hex(b.broken_reason),
        claim.client::text, claim.seq::text, claim.state::text, claim.token::text, claim.weight::text,
        (extract(epoch FROM claim.since) * 1000)::bigint::text,
        CASE WHEN isfinite(claim.until) THEN (extract(epoch FROM claim.until - clock_timestamp()) * 1000)::bigint::text
             ELSE '-1' END,
        claim.pid::text, holdfast.hex(claim.host), holdfast.hex(claim.command), holdfast.hex(claim.label)], ' ', ''))
    FROM holdfast.locks l LEFT JOIN holdfast.locks b ON b.name = l.name AND word = 'b'
    WHERE l.name = claim.name;
END $$;

-- Locks the row of a name. It returns NULL if there is none.
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

-- Ends the claims whose time has passed: of all holders, and of the waiters at the front of the
-- queue. Then reserves the lock for as many waiters at the front as fit, and wakes them.
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
            DELETE FROM holdfast.claims WHERE client = next.client AND seq = next.seq AND until <= now; -- see keep_place
            CONTINUE;
        END IF;
        used := coalesce((SELECT sum(weight) FROM holdfast.claims WHERE name = lock.name AND state < 3), 0);
        EXIT WHEN used + next.weight > lock.capacity;
        UPDATE holdfast.claims SET state = 2 WHERE client = next.client AND seq = next.seq;
        PERFORM holdfast.tell(next.client, 'w', next.seq);
    END LOOP;
END $$;

-- Forgets some names that were not used for a week, and what is left of claims on them. A counter
-- ahead of the clock is kept: the next token's floor would be below it.
CREATE OR REPLACE FUNCTION holdfast.forget_some(today integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    old holdfast.locks;
BEGIN
    FOR old IN SELECT * FROM holdfast.locks WHERE used_day < today - 7 ORDER BY used_day LIMIT 4 FOR UPDATE SKIP LOCKED
    LOOP
        DELETE FROM holdfast.claims WHERE name = old.name AND until < clock_timestamp() - interval '1 day';
        DELETE FROM holdfast.sessions WHERE name = old.name AND NOT holdfast.is_open(xact);
        DELETE FROM holdfast.locks WHERE name = old.name
            AND token < extract(epoch FROM clock_timestamp()) * 1000000
            AND NOT EXISTS (SELECT FROM holdfast.claims WHERE name = old.name)
            AND NOT EXISTS (SELECT FROM holdfast.sessions WHERE name = old.name);
        IF FOUND THEN
            DELETE FROM holdfast.rows WHERE name IN (
                SELECT name FROM holdfast.rows WHERE name = old.name FOR UPDATE SKIP LOCKED);
        END IF;
        UPDATE holdfast.locks SET used_day = today WHERE name = old.name; -- in use: do not check it every time
    END LOOP;
END $$;

-- Locks the row of a name, and adds it if there is none.
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

-- The token of a grant. 'clock' and 'spent' say why there is none.
CREATE OR REPLACE FUNCTION holdfast.next_token(
    counter bigint, repeats boolean, proposed bigint, base bigint, now_us bigint, OUT token bigint, OUT refusal text)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    most bigint := greatest(now_us, base) + 86400000000; -- a day ahead
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

-- Extends the place of a waiter while somebody else is in front of it, without the row of the name.
-- Otherwise a hand-off would wait for all waiters that ask meanwhile, and many waiters ask often.
-- Returns what acquire answers as its number, or NULL if acquire has to look.
--
-- Why this is safe:
-- - Nothing is granted. A claim that waits gets the lock only by its turn, which advance gives it. So all
--   that acquire would do here is to call advance, and to extend the place.
-- - advance can be left to others. Every function that makes room calls it. When a holder's time has
--   passed, every waiter that asks calls it; when the time of a waiter in front has passed, the first
--   one that is alive does.
-- - The answer is true: one statement looks at everything, so there was a moment when it all held.
-- - A turn that comes at the same time is not missed. Either the update waits for the transaction
--   that has locked the claim, and finds it in state 2, or deleted; or the update is first, and
--   advance then waits for it, gives the turn to the updated claim, and does not delete a claim
--   whose time was extended.
-- - There is no deadlock. Before the update nothing is locked, and after it nothing is waited for. An
--   update that finds the claim in another state has still locked it: the subtransaction is rolled
--   back, which unlocks the claim, before acquire waits for the row of the name.
CREATE OR REPLACE FUNCTION holdfast.keep_place(the_name bytea, me uuid, my_seq bigint, wait_us bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := clock_timestamp();
    ends timestamptz; -- as in acquire
BEGIN
    SELECT held.ends INTO ends FROM holdfast.claims mine, LATERAL (
        SELECT min(least(until, CASE WHEN seq = 0 THEN now + interval '1 second' END)) AS ends
        FROM holdfast.claims WHERE name = the_name AND state < 3) held
    WHERE mine.client = me AND mine.seq = my_seq AND mine.name = the_name AND mine.state = 3 AND mine.until > now
    AND held.ends > now AND current_setting('transaction_isolation') = 'read committed'
    AND EXISTS (SELECT FROM holdfast.claims
        WHERE name = the_name AND state = 3 AND ticket < mine.ticket AND until > now);
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    UPDATE holdfast.claims SET until = clock_timestamp() + wait_us * interval '1 microsecond'
    WHERE client = me AND seq = my_seq AND state = 3;
    IF NOT FOUND THEN
        RAISE no_data_found;
    END IF;
    RETURN extract(epoch FROM ends - clock_timestamp()) * 1000000;
EXCEPTION WHEN no_data_found THEN
    RETURN NULL;
END $$;

-- Takes the lock, or a place in its queue. A waiter calls it again to ask for its turn, and so does a
-- client whose reply was lost.
--
-- Answers 'done' with the token; 'queued' or 'busy' with the microseconds after which the lock may
-- be free; 'kind' with what the name is in use as; 'scheme': somebody holds it with
-- scheme=for-update; 'clock' with the server's time; 'spent' with the token.
CREATE OR REPLACE FUNCTION holdfast.acquire(
    the_name bytea, the_kind smallint, the_capacity integer, the_weight integer, me uuid, my_seq bigint,
    lease_us bigint, wait_us bigint, -- 0: does not wait
    barges boolean, proposed bigint, base bigint,
    my_pid bigint, my_host bytea, my_command bytea, my_label bytea,
    OUT answer text, OUT number bigint, OUT is_head boolean, OUT in_use_kind smallint, OUT in_use_capacity integer)
LANGUAGE plpgsql AS $$
DECLARE
    lock holdfast.locks;
    mine holdfast.claims;
    now timestamptz;
    now_us bigint;
    today integer;
    used bigint := 0; -- the weight of its holders
    ends timestamptz; -- the first of their leases
    head bigint; -- the first waiter's ticket
    my_ticket bigint;
    is_used boolean;
    is_watched boolean;
BEGIN
    IF wait_us > 0 AND NOT barges THEN
        number := holdfast.keep_place(the_name, me, my_seq, wait_us);
        IF number IS NOT NULL THEN
            answer := 'queued';
            is_head := false;
            RETURN;
        END IF;
    END IF;
    lock := holdfast.lock_or_add_row(the_name, the_kind, the_capacity);
    now := clock_timestamp();
    now_us := extract(epoch FROM now) * 1000000;
    today := now_us / 86400000000;
    SELECT EXISTS (SELECT FROM holdfast.claims WHERE name = the_name),
        EXISTS (SELECT FROM holdfast.watchers WHERE until > clock_timestamp())
    INTO is_used, is_watched;
    IF is_used THEN
        SELECT * INTO mine FROM holdfast.claims WHERE client = me AND seq = my_seq FOR UPDATE;
        now := clock_timestamp();
        -- A client that asks late keeps its place, or its turn, unless somebody has noticed that its time has passed.
        IF mine.state = 3 AND wait_us > 0 THEN
            UPDATE holdfast.claims SET until = now + wait_us * interval '1 microsecond' WHERE client = me AND seq = my_seq;
        END IF;
        IF mine.state IS DISTINCT FROM 2::smallint THEN
            PERFORM holdfast.advance(lock);
            now := clock_timestamp(); -- a hold begins after the end of those that advance has ended
            SELECT * INTO mine FROM holdfast.claims WHERE client = me AND seq = my_seq;
        END IF;
        -- It is not known when a client of plain will end, so waiters look again soon.
        SELECT coalesce(sum(weight), 0), min(least(until, CASE WHEN seq = 0 THEN now + interval '1 second' END))
        INTO used, ends FROM holdfast.claims WHERE name = the_name AND state < 3;
        SELECT ticket INTO head FROM holdfast.claims WHERE name = the_name AND state = 3 ORDER BY ticket LIMIT 1;
        IF (used > 0 OR head IS NOT NULL) AND (lock.kind <> the_kind OR lock.capacity <> the_capacity) THEN
            answer := 'kind';
            in_use_kind := lock.kind;
            in_use_capacity := lock.capacity;
            RETURN;
        END IF;
    END IF;
    IF EXISTS (SELECT FROM holdfast.sessions WHERE name = the_name AND holdfast.is_open(xact)) THEN
        answer := 'scheme';
        RETURN;
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
        IF is_watched AND mine.state IS DISTINCT FROM 1::smallint THEN
            PERFORM holdfast.report('a', c) FROM holdfast.claims c WHERE client = me AND seq = my_seq;
        END IF;
        RETURN;
    END IF;

    -- Not from `now`: the holder may have renewed since, and no holder has more left than a whole lease.
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
        IF is_watched THEN
            PERFORM holdfast.report('w', c) FROM holdfast.claims c WHERE client = me AND seq = my_seq;
        END IF;
    END IF;
END $$;

-- Takes locks that nobody holds or waits for, for many attempts at once, each with a different name.
-- Answers with the number and the token of each attempt that was granted its lock. The others have to
-- ask acquire: those whose names are new or in use, whose rows are locked, whose tokens are not plain,
-- and all of them if somebody watches.
--
-- A separate statement locks the rows, since only the next statement sees the state after that. With
-- these settings the server finds every row by its key, whatever the statistics say.
CREATE OR REPLACE FUNCTION holdfast.acquire_free(
    names bytea[], kinds smallint[], capacities integer[], weights integer[], me uuid, seqs bigint[],
    leases_us bigint[], barging boolean[], proposals bigint[], base bigint,
    my_pid bigint, my_host bytea, my_command bytea, labels bytea[])
RETURNS TABLE (granted bigint, number bigint) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    locked bytea[];
    now timestamptz;
    now_us bigint;
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' THEN
        SELECT array_agg(l.name) INTO locked FROM unnest(names) AS asked (name), LATERAL (
            SELECT name FROM holdfast.locks WHERE name = asked.name
            AND NOT EXISTS (SELECT FROM holdfast.claims WHERE name = asked.name) FOR UPDATE SKIP LOCKED) l;
    END IF;
    IF locked IS NULL OR EXISTS (SELECT FROM holdfast.watchers WHERE until > clock_timestamp()) THEN
        RETURN;
    END IF;
    now := clock_timestamp();
    now_us := extract(epoch FROM now) * 1000000;
    RETURN QUERY
    WITH free AS (
        SELECT asked.*, l.ticket + 1 AS ticket, greatest(l.token + 1, asked.proposed, base) AS token
        FROM unnest(names, kinds, capacities, weights, seqs, leases_us, barging, proposals, labels)
            AS asked (name, kind, capacity, weight, seq, lease_us, barges, proposed, label)
        JOIN holdfast.locks l ON l.name = asked.name
        WHERE asked.name = ANY(locked) AND asked.weight <= asked.capacity
        AND asked.proposed <= greatest(now_us, base) + 86400000000
        AND greatest(l.token + 1, asked.proposed, base) < 9007199254740992
        AND NOT EXISTS (SELECT FROM holdfast.claims c WHERE c.name = asked.name)
        AND NOT EXISTS (SELECT FROM holdfast.sessions s WHERE s.name = asked.name)),
    counted AS (
        UPDATE holdfast.locks l SET kind = free.kind, capacity = free.capacity, token = free.token,
            ticket = free.ticket, used_day = now_us / 86400000000
        FROM free WHERE l.name = free.name)
    INSERT INTO holdfast.claims SELECT me, seq, name, 1,
        ticket - CASE WHEN barges THEN 4503599627370496 ELSE 0 END, weight,
        now + lease_us * interval '1 microsecond', token, now, my_pid, my_host, my_command, label
    FROM free RETURNING claims.seq, claims.token;
END $$;

-- Extends the leases of holds, and returns the numbers of those that were still held.
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

-- Ends a hold, or a place in the queue. False: there is none, or its time has passed.
CREATE OR REPLACE FUNCTION holdfast.release(the_name bytea, me uuid, my_seq bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    lock holdfast.locks := holdfast.lock_row(the_name);
    today integer := extract(epoch FROM clock_timestamp())::bigint / 86400;
    mine holdfast.claims;
    was_mine boolean;
    is_used boolean;
    is_watched boolean;
BEGIN
    DELETE FROM holdfast.claims WHERE client = me AND seq = my_seq RETURNING * INTO mine;
    SELECT coalesce(mine.until > clock_timestamp(), false),
        EXISTS (SELECT FROM holdfast.claims WHERE name = the_name),
        EXISTS (SELECT FROM holdfast.watchers WHERE until > clock_timestamp())
    INTO was_mine, is_used, is_watched;
    IF was_mine AND is_watched THEN
        PERFORM holdfast.report(CASE WHEN mine.state = 1 THEN 'r' ELSE 'l' END, mine);
    END IF;
    IF is_used THEN
        PERFORM holdfast.advance(lock);
    END IF;
    IF lock.used_day < today THEN
        UPDATE holdfast.locks SET used_day = today WHERE name = the_name;
    END IF;
    RETURN was_mine;
END $$;

-- Ends the claims of many attempts at once, where nobody waits. Answers with the number of each that
-- has ended, and whether its time had not passed. The others have to ask release, for the same kind
-- of reasons as in acquire_free.
CREATE OR REPLACE FUNCTION holdfast.release_quiet(names bytea[], me uuid, seqs bigint[])
RETURNS TABLE (released bigint, was_mine boolean) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    locked bytea[];
    today integer := extract(epoch FROM clock_timestamp())::bigint / 86400;
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' THEN
        SELECT array_agg(l.name) INTO locked FROM unnest(names) AS asked (name), LATERAL (
            SELECT name FROM holdfast.locks WHERE name = asked.name AND used_day >= today
            AND NOT EXISTS (SELECT FROM holdfast.claims WHERE name = asked.name AND state = 3)
            FOR UPDATE SKIP LOCKED) l;
    END IF;
    IF locked IS NULL OR EXISTS (SELECT FROM holdfast.watchers WHERE until > clock_timestamp()) THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH mine AS (
        SELECT c.* FROM unnest(names, seqs) AS asked (name, seq), LATERAL (
            SELECT client, seq FROM holdfast.claims WHERE client = me AND seq = asked.seq
            AND NOT EXISTS (SELECT FROM holdfast.claims w WHERE w.name = asked.name AND w.state = 3)
            FOR UPDATE SKIP LOCKED) c
        WHERE asked.name = ANY(locked))
    DELETE FROM holdfast.claims c USING mine WHERE c.client = mine.client AND c.seq = mine.seq
    RETURNING c.seq, c.until > clock_timestamp();
END $$;

-- Ends the hold that has this token. False: there is none.
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
    IF EXISTS (SELECT FROM holdfast.watchers WHERE until > clock_timestamp()) THEN
        PERFORM holdfast.report('b', broken);
    END IF;
    PERFORM holdfast.tell(broken.client, 'g', broken.seq);
    PERFORM holdfast.advance(lock);
    RETURN true;
END $$;

-- For clients that know only SQL: one row for each exclusive hold that such a client has. An insert
-- takes the lock, an update renews it or takes over one that has expired, a delete releases it. Its
-- claims have the number 0, which no other claim has.
CREATE OR REPLACE VIEW holdfast.plain AS
    SELECT name, convert_from(label, 'UTF8') AS owner, token AS version, until, since, client AS id
    FROM holdfast.claims WHERE seq = 0;

-- Takes the lock for a row of plain: its version, or NULL if somebody holds it or waits for it.
CREATE OR REPLACE FUNCTION holdfast.plain_acquire(mine holdfast.plain) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    now_us bigint := extract(epoch FROM clock_timestamp()) * 1000000;
    until_us bigint := extract(epoch FROM nullif(mine.until, 'infinity')) * 1000000;
    answered record;
BEGIN
    SELECT * INTO answered FROM holdfast.acquire(
        mine.name, 2::smallint, 2147483647, 2147483647, mine.id, 0, coalesce(until_us - now_us, 0), 0, false, now_us, 0,
        0, convert_to(coalesce(host(inet_client_addr()), ''), 'UTF8'),
        convert_to(current_setting('application_name'), 'UTF8'), convert_to(mine.owner, 'UTF8'));
    IF until_us IS NULL THEN
        UPDATE holdfast.claims SET until = 'infinity' WHERE client = mine.id AND seq = 0;
    END IF;
    RETURN CASE answered.answer WHEN 'done' THEN answered.number END;
END $$;

-- Renews the hold that was read as `old`. False: it is another by now, or its time has passed.
CREATE OR REPLACE FUNCTION holdfast.plain_renew(old holdfast.plain, new_until timestamptz) RETURNS boolean LANGUAGE sql AS $$
    WITH renewed AS (
        UPDATE holdfast.claims SET until = coalesce(new_until, 'infinity')
        WHERE client = old.id AND seq = 0 AND token = old.version AND claims.until > clock_timestamp() RETURNING 1)
    SELECT EXISTS (SELECT FROM renewed)
$$;

CREATE OR REPLACE FUNCTION holdfast.plain_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        RETURN CASE WHEN holdfast.release(OLD.name, OLD.id, 0) THEN OLD END;
    END IF;
    NEW.owner := coalesce(NEW.owner, '');
    NEW.until := coalesce(NEW.until, 'infinity');
    IF length(NEW.name) NOT BETWEEN 1 AND 255 OR position('\000' IN NEW.name) > 0 OR octet_length(NEW.owner) > 255 THEN
        RAISE 'a name must have 1 to 255 bytes and no NUL, an owner at most 255 bytes'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.name <> OLD.name THEN
        RAISE 'the name of a lock cannot be changed' USING ERRCODE = 'feature_not_supported';
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.owner = OLD.owner THEN
        RETURN CASE WHEN holdfast.plain_renew(OLD, NEW.until) THEN NEW END;
    END IF;
    NEW.id := md5(random()::text || clock_timestamp()::text || pg_backend_pid()::text)::uuid;
    NEW.since := clock_timestamp();
    NEW.version := holdfast.plain_acquire(NEW);
    IF NEW.version IS NULL AND TG_OP = 'INSERT' THEN
        RAISE 'the lock % is held by somebody else', encode(NEW.name, 'escape') USING ERRCODE = 'unique_violation';
    END IF;
    RETURN CASE WHEN NEW.version IS NOT NULL THEN NEW END;
END $$;

DROP TRIGGER IF EXISTS changed ON holdfast.plain;
CREATE TRIGGER changed INSTEAD OF INSERT OR UPDATE OR DELETE ON holdfast.plain
    FOR EACH ROW EXECUTE FUNCTION holdfast.plain_changed();

-- The first statement of a guarded transaction: fails if a larger token has been seen. It writes
-- the row even if the token stays the same. A later transaction whose snapshot is older than this
-- one's commit, at repeatable read or above, then fails with serialization_failure; otherwise it
-- would not see what this one wrote.
CREATE OR REPLACE FUNCTION holdfast.fence(the_name bytea, the_token bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast.fences AS f VALUES (the_name, the_token)
    ON CONFLICT (name) DO UPDATE SET token = the_token WHERE f.token <= the_token;
    IF NOT FOUND THEN
        RAISE 'token % of % is refused (a later holder came with %); the lock was lost: stop', the_token,
            encode(the_name, 'escape'), (SELECT token FROM holdfast.fences WHERE name = the_name)
            USING ERRCODE = 'ZF001';
    END IF;
END $$;

-- ---- scheme=for-update ----
--
-- A hold is a lock on the row of its name in rows, in a transaction that stays open on a separate
-- connection. PostgreSQL ends both together. The transaction cannot commit anything while it holds
-- the lock, so the token and the holder are committed on another connection, by draw.

-- Takes the token for the session that has locked the row of a name in the transaction my_xact. The
-- token is drawn first, and the check that the transaction is still open comes after that. So a
-- session that locks the row after that transaction draws a larger token.
--
-- Answers 'done' with the token; 'clock' and 'spent' as acquire does; 'gone': the transaction has
-- ended; 'scheme': somebody holds a lease on the name.
CREATE OR REPLACE FUNCTION holdfast.draw(
    the_name bytea, the_weight integer, me uuid, my_seq bigint, my_xact bigint, my_backend integer,
    proposed bigint, base bigint, my_pid bigint, my_host bytea, my_command bytea, my_label bytea,
    OUT answer text, OUT number bigint)
LANGUAGE plpgsql AS $$
DECLARE
    lock holdfast.locks := holdfast.lock_or_add_row(the_name, 2::smallint, 2147483647);
    mine holdfast.sessions;
    now timestamptz := clock_timestamp();
BEGIN
    DELETE FROM holdfast.sessions WHERE name = the_name AND NOT holdfast.is_open(xact);
    PERFORM holdfast.advance(lock);
    IF EXISTS (SELECT FROM holdfast.claims WHERE name = the_name) THEN
        answer := 'scheme';
        RETURN;
    END IF;
    SELECT * INTO mine FROM holdfast.sessions WHERE client = me AND seq = my_seq;
    SELECT * INTO number, answer FROM holdfast.next_token(
        coalesce(mine.token, lock.token), mine.token IS NOT NULL, proposed, base,
        (extract(epoch FROM now) * 1000000)::bigint);
    IF answer IS NOT NULL THEN
        RETURN;
    END IF;
    UPDATE holdfast.locks SET kind = 2, capacity = 2147483647, token = greatest(token, number),
        used_day = extract(epoch FROM now)::bigint / 86400
    WHERE name = the_name;
    INSERT INTO holdfast.sessions VALUES (me, my_seq, the_name, my_xact, my_backend, the_weight, number, now,
        my_pid, my_host, my_command, my_label)
    ON CONFLICT (client, seq) DO UPDATE SET token = number, xact = my_xact, backend = my_backend;
    answer := CASE WHEN holdfast.is_open(my_xact) THEN 'done' ELSE 'gone' END;
END $$;

-- Ends the session that holds the lock with this token. False: there is none. It fails if the user
-- may not end the holder's session.
CREATE OR REPLACE FUNCTION holdfast.break_session(the_name bytea, the_token bigint, by bytea, reason bytea)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    lock holdfast.locks := holdfast.lock_row(the_name);
    broken holdfast.sessions;
BEGIN
    SELECT * INTO broken FROM holdfast.sessions s WHERE name = the_name AND token = the_token AND EXISTS (
        SELECT FROM pg_locks WHERE locktype = 'transactionid' AND granted AND pid = s.backend
        AND transactionid::text = (s.xact % 4294967296)::text);
    IF broken.client IS NULL THEN
        RETURN false;
    END IF;
    PERFORM pg_terminate_backend(broken.backend);
    FOR i IN 1..200 LOOP
        EXIT WHEN NOT holdfast.is_open(broken.xact);
        PERFORM pg_sleep(0.005);
    END LOOP;
    IF holdfast.is_open(broken.xact) THEN
        RAISE 'the holder''s session, backend %, does not end', broken.backend;
    END IF;
    DELETE FROM holdfast.sessions WHERE client = broken.client AND seq = broken.seq;
    UPDATE holdfast.locks SET token = token + 1, used_day = extract(epoch FROM clock_timestamp())::bigint / 86400,
        broken_at = clock_timestamp(), broken_token = the_token, broken_by = by, broken_reason = reason
    WHERE name = the_name;
    RETURN true;
END $$;

-- ---- Counters ----
--
-- count locks the row of the client's last answer first, so that two sends of one request are executed
-- one after the other, and then the row of the counter. No transaction locks more than one of each,
-- and expired rows are removed only if nobody has locked them, so there can be no deadlock.
--
-- No update of a counter or an answer changes an indexed column, except when the row of an expired
-- counter is reused, and once a minute.

-- Locks the row of a client's last answer, and adds it if there is none. Adding one also removes up
-- to four that are at least two minutes old.
CREATE OR REPLACE FUNCTION holdfast.lock_answer(me uuid, the_name bytea) RETURNS holdfast.answers LANGUAGE plpgsql AS $$
DECLARE
    mine holdfast.answers;
    this_minute integer := extract(epoch FROM clock_timestamp())::bigint / 60;
BEGIN
    LOOP
        SELECT * INTO mine FROM holdfast.answers WHERE client = me AND name = the_name FOR UPDATE;
        IF FOUND THEN
            RETURN mine;
        END IF;
        DELETE FROM holdfast.answers a USING (
            SELECT client, name FROM holdfast.answers WHERE minute < this_minute - 2
            ORDER BY minute LIMIT 4 FOR UPDATE SKIP LOCKED) old
        WHERE a.client = old.client AND a.name = old.name;
        INSERT INTO holdfast.answers VALUES (me, the_name, 0, this_minute, '', NULL, -1) ON CONFLICT DO NOTHING;
    END LOOP;
END $$;

-- Locks the row of a counter. If there is none, it adds one whose time has passed, and removes up to
-- four others of that kind; unless there must be a counter already.
CREATE OR REPLACE FUNCTION holdfast.lock_counter(the_name bytea, may_add boolean) RETURNS holdfast.counters
LANGUAGE plpgsql AS $$
DECLARE
    counter holdfast.counters;
BEGIN
    LOOP
        SELECT * INTO counter FROM holdfast.counters WHERE name = the_name FOR UPDATE;
        IF FOUND OR NOT may_add THEN
            RETURN counter;
        END IF;
        DELETE FROM holdfast.counters c USING (
            SELECT name FROM holdfast.counters WHERE until < 'infinity' AND until <= clock_timestamp()
            ORDER BY until LIMIT 4 FOR UPDATE SKIP LOCKED) ended
        WHERE c.name = ended.name;
        INSERT INTO holdfast.counters VALUES (the_name, 0, '-infinity') ON CONFLICT DO NOTHING;
    END LOOP;
END $$;

-- One step on a counter: 1 get, 2 add, 3 swap, 4 compare and set, 5 remove. A get changes nothing, so
-- its answer is not kept: a repeat reads again.
--
-- Answers 'done' or 'mismatch' with the value, NULL if there is no counter, and the microseconds that are
-- left of its life, -1 if it has no end; 'range': the sum does not fit a bigint; 'late': a later request
-- of this client has been answered already. Only 'done' has changed something.
CREATE OR REPLACE FUNCTION holdfast.count(
    the_name bytea, op smallint, operand bigint, expected bigint, -- NULL: no counter
    new_life_us bigint, -- of a counter that this creates; 0: no end
    me uuid, my_seq bigint, OUT answer text, OUT number bigint, OUT left_us bigint)
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := clock_timestamp();
    mine holdfast.answers;
    counter holdfast.counters;
    old_value bigint; -- NULL: there is no counter
BEGIN
    IF op = 1 THEN
        SELECT * INTO counter FROM holdfast.counters WHERE name = the_name;
    ELSE
        mine := holdfast.lock_answer(me, the_name);
        IF mine.seq >= my_seq THEN
            answer := CASE WHEN mine.seq = my_seq THEN mine.word ELSE 'late' END;
            number := mine.value;
            left_us := mine.life_us;
            RETURN;
        END IF;
        counter := holdfast.lock_counter(the_name, op IN (2, 3) OR (op = 4 AND expected IS NULL));
        now := clock_timestamp();
    END IF;
    old_value := CASE WHEN counter.until > now THEN counter.value END;
    number := old_value;
    answer := CASE
        WHEN op = 4 AND old_value IS DISTINCT FROM expected THEN 'mismatch'
        WHEN op = 2 AND (old_value > 9223372036854775807 - greatest(operand, 0)
            OR old_value < -9223372036854775807 - 1 - least(operand, 0)) THEN 'range'
        ELSE 'done' END;
    IF answer = 'done' AND op = 5 THEN
        DELETE FROM holdfast.counters WHERE name = the_name;
    ELSIF answer = 'done' AND op <> 1 THEN
        IF op <> 3 THEN
            number := CASE WHEN op = 2 THEN coalesce(old_value, 0) + operand ELSE operand END;
        END IF;
        IF old_value IS NULL THEN
            counter.until := CASE WHEN new_life_us = 0 THEN 'infinity'
                ELSE now + new_life_us * interval '1 microsecond' END;
        END IF;
        UPDATE holdfast.counters SET value = CASE WHEN op = 3 THEN operand ELSE number END, until = counter.until
        WHERE name = the_name;
    END IF;
    left_us := CASE WHEN number IS NULL OR NOT isfinite(counter.until) THEN -1
        ELSE extract(epoch FROM counter.until - now) * 1000000 END;
    IF op <> 1 THEN
        UPDATE holdfast.answers SET seq = my_seq, minute = extract(epoch FROM now)::bigint / 60, word = answer,
            value = number, life_us = left_us
        WHERE client = me AND name = the_name;
    END IF;
END $$;

COMMENT ON SCHEMA holdfast IS 'holdfast schema 8';
