-- Tells those who watch what happens. A client that watches keeps the key V alive ('1'). Other clients
-- name V unless they have learned within the last second that nobody watches. So those who are not
-- watched pay for this once a second, at most. V is no lock's key and may be forbidden to this user,
-- so it is an argument: a key of KEYS that is forbidden would fail the whole script.
--
-- A script that uses this must define before: channels, V.
local watched = V and (redis.pcall('GET', V) == '1' and 1 or 0)

-- What happened to `id`: 'a' it acquired the lock, 'r' released it, 'b' lost it by a break, 'w' it
-- waits, 'l' it left the queue. `left` is what is left of its lease in ms, `last` the break.
local function announce(word, id, kind, token, left, record, last)
    if not now then
        read_clock()
    end
    record = record or ''
    redis.pcall('PUBLISH', channels .. 'watch', table.concat(
        {word, number(now), kind or 'rw', token or 0, left, id, #K, #record, K .. record .. (last or '')}, ' '))
end
