-- The greeting to a server of a set, on each connection: was it restarted since it was last asked
-- for a vote? Then it may have forgotten votes, even if it remembers the set (from a snapshot, or a
-- log that was not synced), and does not vote until the longest lease is over. Every vote comes
-- after this on its connection, and no connection outlives the server. So a restarted server cannot
-- vote too early.
--
-- KEYS  B (vote.lua)      ARGV  1 '1': the servers keep everything that they acknowledge
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
