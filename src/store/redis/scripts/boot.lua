-- The first words to a server of a set, on each connection: was it started since it was last asked for a vote? Then it
-- may have forgotten some that it gave, even if it remembers the set (a snapshot, a log that was not synced), and does
-- not vote before the longest lease is over. Every vote comes behind this on its connection, and no connection
-- outlives the server: none is given before.
--
-- KEYS  B (vote.lua)      ARGV  1 '1': the servers keep all that they acknowledge
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local known = redis.call('HMGET', KEYS[1], 'f', 'r')
if known[2] ~= run then
    redis.call('HSET', KEYS[1], 'r', run)
    if known[1] and ARGV[1] ~= '1' then
        local time = redis.call('TIME')
        redis.call('HSET', KEYS[1], 's', string.format('%.0f', time[1] * 1000000 + time[2]))
    end
end
return 1
