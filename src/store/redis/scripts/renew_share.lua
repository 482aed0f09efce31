-- Renews a share of a lock.
--
-- KEYS  K H I      ARGV  1 me, the owner id  2 lease in ms
--
-- Answers 1: renewed; 0: not mine. K lasts as long as the last share; without K there are no
-- shares.
local call = redis.call
local K, H, I = unpack(KEYS)
local me, lease = ARGV[1], tonumber(ARGV[2])
local k = redis.pcall('GET', K)
local till = type(k) == 'string' and string.sub(k, 1, 1) == '=' and call('ZSCORE', H, me)
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
-- A write that does nothing and needs no memory. A replica refuses it, and so does not answer "not
-- mine"; and after it, a server at its maxmemory does not refuse the rest.
call('ZREM', H, '')
-- (A share that is reserved for me is not one that I hold: the server may have come back with an
-- older state.)
if not till or tonumber(till) <= now or string.find(call('HGET', I, me) or '', '^0 ') then
    return 0
end
if tonumber(till) < now + lease * 1000 then
    call('ZADD', H, string.format('%.0f', now + lease * 1000), me)
end
if call('PTTL', K) < lease then
    call('PEXPIRE', K, ARGV[2])
end
if call('PTTL', H) < lease then
    call('PEXPIRE', H, 2 * lease)
    call('PEXPIRE', I, 2 * lease)
end
return 1
