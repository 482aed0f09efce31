-- Takes the lock, or a place in its queue. A waiter sends the same request again to ask for its
-- turn, and so does a client whose reply was lost.
--
-- KEYS  K S Q W H I
-- ARGV  1 me, the owner id  2 lease in ms  3 wait lease in ms, 0 not to wait  4 floor  5 base
--       6 '1' to barge  7 kind  8 capacity  9 weight  10 particulars  11 prefix of the channels
--       12 V, or nothing (watched.lua)
--
-- Answers {'done', token, somebody watches? (if there is V)}, {'queued', left ms, foreign?, how many are ahead},
-- {'busy', left ms, foreign?}, {'kind', the present one}, {'clock', server's time},
-- {'spent', token}. Left is -1 if a foreign lock has no expiry.
--#include head.lua
local me, lease, kind, floor, base = ARGV[1], ARGV[2], ARGV[7], ARGV[4], ARGV[5]
local capacity, weight, particulars, V = ARGV[8], ARGV[9], ARGV[10], ARGV[12]
--#include watched.lua
--#include fast.lua
-- The fast paths: it is free and nobody waits, or it was reserved for me.
local taken, value = is_simple and watched ~= 1
if taken and not read[3] then
    taken = call('SET', K, me, 'NX', 'PX', lease)
elseif taken then
    value = call('GET', K)
    taken = value == '?' .. me and call('SET', K, me, 'PX', lease)
end
if taken then
    local record = weight .. ' ' .. floor .. ' ' .. particulars
    call('HSET', S, 't', floor, 'h', me, 'k', kind, 'i', record)
    return {'done', floor, watched}
end
local below, channels = 0, ARGV[11] -- only votes are retaken
--#include clock.lua
--#include grant.lua
--#include announce.lua
--#include state.lua
--#include take.lua

local function granted(answer)
    if watched == 1 and answer[1] == 'done' then
        announce('a', me, kind, answer[2], lease, record(now))
    end
    answer[3] = watched
    return answer
end

-- A place in the queue, which is kept by asking again. Clients that barge come before all others.
local function queue_up()
    local wait = tonumber(ARGV[3])
    if not s.q then -- a queue from before S was lost: it may be for another kind, and its waiters ask again
        call('DEL', Q, W)
    end
    local since = string.match(call('HGET', W, me) or '', '^%d+ %d+ (%d+)')
    if not since or not call('ZSCORE', Q, me) then
        local ticket = call('HINCRBY', S, 'n', 1)
        call('ZADD', Q, number(ARGV[6] == '1' and ticket - 4503599627370496 or ticket), me)
        if watched == 1 then
            announce('w', me, kind, 0, wait, record(now))
        end
    end
    call('HSET', W, me, number(now + wait * 1000) .. ' ' .. record(since or now))
    if not (s.q and s.k == kind and is_fresh()) then
        if not s.x and k and not shared then -- S was lost: without i, the release would not see q
            call('HSET', S, 'i', ARGV[8] .. ' ' .. number(now) .. ' 0 0 0 ')
        end
        note('q', '1', 'k', kind)
    end
    if call('PTTL', Q) < wait or call('PTTL', W) < wait then
        call('PEXPIRE', Q, number(2 * wait))
        call('PEXPIRE', W, number(2 * wait))
    end
    local ms, foreign = left()
    return {'queued', ms, foreign, call('ZRANK', Q, me)}
end

load(value == nil and call('GET', K) or value)
if k == me then
    return repeat_alone()
elseif k == '?' .. me then
    return granted(take())
end
local till = shared and call('ZSCORE', H, me)
if till then
    local reserved = string.find(call('HGET', I, me) or '', '^0 ')
    local answer = take_my_share(tonumber(till))
    return reserved and granted(answer) or answer
end
local first, my_turn = advance(channels, me)
local in_use = shared and string.sub(k, 2) or (k and is_ours(k) or first) and s.k
if in_use and in_use ~= kind then
    return {'kind', in_use}
end
if my_turn or fits(weight, capacity) and (not first or ARGV[6] == '1') then
    return granted(take())
end
if ARGV[3] == '0' then
    local ms, foreign = left()
    return {'busy', ms, foreign}
end
return queue_up()
