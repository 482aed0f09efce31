-- Releases the lock, or a place in its queue, and hands it to the next waiter.
--
-- KEYS  K S Q W H I
-- ARGV  1 me, the owner id  2 prefix of the channels
--       3 the name, if it was voted for: all clients that were refused may try again
--
-- Answers 1: it was mine (or this same request has released it before); 0: it was not.
--#include head.lua
local me = ARGV[1]

local function freed()
    if ARGV[3] ~= '' then
        redis.pcall('PUBLISH', ARGV[2] .. 'votes', ARGV[3])
    end
    return 1
end

local read = call('HMGET', S, 'q', 'u', 'k', 'h', 'i', 'r')
s = {q = read[1], u = read[2], k = read[3], h = read[4], i = read[5], r = read[6]}

local value = redis.pcall('GET', K)
if type(value) == 'table' then -- it is not even a string any more, or cannot be read
    if string.find(value.err, 'WRONGTYPE') then
        call('ZREM', KEYS[3], me)
        call('HDEL', KEYS[4], me)
        return 0
    end
    return value
end
if not s.q and not s.u and value == me then
    call('DEL', K)
    call('HDEL', S, 'i', 'w')
    return freed()
end
read_clock()
--#include state.lua
load()
local mine = true
if k == me or k == '?' .. me then
    call('DEL', K)
    call('HDEL', S, 'i', 'w')
    let_go = k == me and me
    k = false
elseif shared and call('ZSCORE', H, me) then
    leave_shared(me)
elseif call('ZREM', Q, me) == 1 then -- (which a replica refuses: it must not say "not mine")
    call('HDEL', W, me)
else
    mine = s.h == me and not s.i or s.r == me
end
advance(ARGV[2])
return mine and freed() or 0
