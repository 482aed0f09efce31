-- Renews exclusive holds: one key for each.
--
-- KEYS  K ...      ARGV  owner id, lease in ms, of each
--
-- Answers, for each, 1: renewed; 0: not theirs. The end only ever moves later. A key of another
-- type is not theirs either, and does not stop the others.
local renewed = {}
for i, K in ipairs(KEYS) do
    local me, lease = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
    if redis.pcall('GET', K) ~= me then
        -- A write that does nothing: a replica, or a server that cannot write, must not answer "not
        -- theirs".
        local wrote = redis.pcall('SETRANGE', K, 0, '')
        local failed = type(wrote) == 'table' and wrote.err
        if failed and not string.find(failed, 'WRONGTYPE') and not string.find(failed, 'OOM') then
            return wrote
        end
        renewed[i] = 0
    else
        if redis.call('PTTL', K) < lease then
            redis.call('PEXPIRE', K, ARGV[2 * i])
        end
        renewed[i] = 1
    end
end
return renewed
