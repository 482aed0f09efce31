-- Locks the row of a name, and adds it if there is none. Sets now_us and today.
SELECT kind, capacity, token, ticket INTO lock_kind, lock_capacity, lock_token, lock_ticket
    FROM holdfast_locks WHERE name = the_name FOR UPDATE;
--#include now.sql
SET today = now_us DIV 86400000000;
IF lock_kind IS NULL THEN
    --#include forget.sql
    -- Not IGNORE: that would take only a shared lock on a row that another session has just inserted.
    INSERT INTO holdfast_locks (name, kind, capacity, used_day) VALUES (the_name, the_kind, the_capacity, today)
        ON DUPLICATE KEY UPDATE used_day = today;
    SELECT kind, capacity, token, ticket INTO lock_kind, lock_capacity, lock_token, lock_ticket
        FROM holdfast_locks WHERE name = the_name;
    --#include now.sql
END IF;
