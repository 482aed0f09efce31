-- Notifies watchers (watched.lua) of what happened to `id`: 'a' it acquired the lock, 'r' released
-- it, 'b' lost it by a break, 'w' it waits, 'l' it left the queue. `left` is what is left of its
-- lease in ms, `last` the break.
--
-- A script that uses this must first define: channels; and read the clock.
local function announce(word, id, kind, token, left, record, last)
    record = record or ''
    redis.pcall('PUBLISH', channels .. 'watch', table.concat(
        {word, number(now), kind or 'rw', token or 0, left, id, #K, #record, K .. record .. (last or '')}, ' '))
end
