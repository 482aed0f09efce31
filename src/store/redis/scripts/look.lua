-- Looks at a lock and changes nothing.
--
-- KEYS  K S Q W H I
--
-- Answers {server's time, K, its ms left, {t, h, k, i, b of S}, {id, end, I, ...},
-- {id, W, ...}}: those who share it, in the order in which their shares end, and those who wait,
-- in the order of the queue.
local call = redis.call
local K, S, Q, W, H, I = unpack(KEYS)
local time = call('TIME')
local k = call('GET', K)
local sharing, waiting = {}, {}
if k and string.sub(k, 1, 1) == '=' then
    local all = call('ZRANGE', H, 0, -1, 'WITHSCORES')
    for i = 1, #all, 2 do
        table.insert(sharing, all[i])
        table.insert(sharing, all[i + 1])
        table.insert(sharing, call('HGET', I, all[i]))
    end
end
for _, id in ipairs(call('ZRANGE', Q, 0, -1)) do
    table.insert(waiting, id)
    table.insert(waiting, call('HGET', W, id))
end
return {string.format('%.0f', time[1] * 1000000 + time[2]), k, call('PTTL', K),
        call('HMGET', S, 't', 'h', 'k', 'i', 'b'), sharing, waiting}
