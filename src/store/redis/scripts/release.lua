-- Releases the lock, or a place in its queue, and hands it to the next waiter.
--
-- KEYS  K S Q W H I
-- ARGV  1 me, the owner id  2 prefix of the channels
--       3 the name, if it was voted for: all clients that were refused may try again
--       4 V, or nothing (watched.lua)
--
-- Answers 1: it was mine (or this same request has released it before); 0: it was not.
--#include head.lua
local me, channels, V = ARGV[1], ARGV[2], ARGV[4]
--#include watched.lua
local value = redis.pcall('GET', K)

-- The fast paths: I hold it exclusively. HDEL finds i, and q unless nobody waits. If the first waiter
-- is alive and also wants the whole lock, the lock is reserved for it, as `reserve` does.
local found = value == me and watched ~= 1 and call('HDEL', S, 'i', 'q')
if found == 1 then
    call('DEL', K)
    if ARGV[3] ~= '' then
        redis.pcall('PUBLISH', channels .. 'votes', ARGV[3])
    end
    return 1
elseif found == 2 then
    local id = call('ZRANGE', KEYS[3], 0, 0)[1]
    local place = id and ARGV[3] == '' and call('HGET', KEYS[4], id)
    local till, record = string.match(place or '', '^(%d+) (2147483647 .*)$')
    local time = till and call('TIME')
    local left = till and math.ceil((till - time[2]) / 1000) - time[1] * 1000
    if left and left > 0 then
        call('ZREM', KEYS[3], id)
        call('HDEL', KEYS[4], id)
        call('SET', K, '?' .. id, 'PX', left)
        call('HSET', S, 'q', '1', 'i', record, 'h', '', 'r', me)
        redis.pcall('PUBLISH', channels .. string.sub(id, 1, 32), 'w' .. string.sub(id, 34))
        return 1
    end
    call('HSET', S, 'q', '1')
end
if type(value) == 'table' then -- it is not even a string any more, or cannot be read
    if string.find(value.err, 'WRONGTYPE') then
        call('ZREM', KEYS[3], me)
        call('HDEL', KEYS[4], me)
        return 0
    end
    return value
end
--#include clock.lua
local read = call('HMGET', S, 'q', 'u', 'k', 'h', 'i', 'r')
s = {q = read[1], u = read[2], k = read[3], h = read[4], i = read[5], r = read[6]}
read_clock()
--#include announce.lua
--#include state.lua
load(value)
local mine = true

-- Call this before the share or the place in the queue ends. The number before the record is the
-- token of a share, or until when it waits.
local function announce_end(with_number)
    local token, record = string.match(with_number or '', '^(%d+) (.*)$')
    local holds = token and shared and token ~= '0' and call('ZSCORE', H, me)
    announce(holds and 'r' or 'l', me, s.k, holds and token, 0, record)
end

if k == me or k == '?' .. me then
    if watched == 1 and k == me then
        announce('r', me, s.k, call('HGET', S, 't'), 0, s.i)
    elseif watched == 1 then
        announce('l', me, s.k, 0, 0, s.i)
    end
    call('DEL', K)
    if not found then
        call('HDEL', S, 'i')
    end
    let_go = k == me and me
    k = false
elseif shared and call('ZSCORE', H, me) then
    if watched == 1 then
        announce_end(call('HGET', I, me))
    end
    leave_shared(me)
elseif call('ZREM', Q, me) == 1 then -- (which a replica refuses: it must not say "not mine")
    if watched == 1 then
        announce_end(call('HGET', W, me))
    end
    call('HDEL', W, me)
else
    mine = s.h == me and not s.i or s.r == me
end
advance(channels)
if mine and ARGV[3] ~= '' then
    redis.pcall('PUBLISH', channels .. 'votes', ARGV[3])
end
return mine and 1 or 0
