-- The vote of one server of a set: takes the lock, or does not; nobody queues.
--
-- KEYS  K S Q W H I B, where B is a hash: f the set that this server votes in, n its own number
--       there, s since when it votes, r the run of the server that was seen last (boot.lua)
-- ARGV  1 me, the owner id  2 lease in ms  3 floor  4 below, 0 for none  5 base
--       6 '1': only if it is mine already  7 kind  8 capacity  9 weight  10 particulars  11 set
--       12 longest lease in ms  13 '1': the set is new  14 a number for this server, if it has none
--
-- Answers {'done', token, number}, {'busy', left ms, foreign?}, {'lost'}, {'quarantine', left ms},
-- {'set', which}, and the refusals of acquire.lua.
--
-- A server without B may have forgotten its votes: it does not vote until the longest lease is
-- over, unless the client says that the set is new.
--#include head.lua
local me, lease, kind, floor, base = ARGV[1], ARGV[2], ARGV[7], ARGV[3], ARGV[5]
local capacity, weight, particulars = ARGV[8], ARGV[9], ARGV[10]
local B, only_mine, longest = KEYS[7], ARGV[6] == '1', ARGV[12] * 1000
--#include fast.lua
local set = call('HMGET', B, 'f', 's', 'n')
if is_simple and not read[3] and ARGV[4] == '0' and not only_mine and set[1] == ARGV[11] and ARGV[13] ~= '1' and
   set[2] + longest <= x and call('SET', K, me, 'NX', 'PX', lease) then
    local record = weight .. ' ' .. floor .. ' ' .. particulars
    call('HSET', S, 't', floor, 'h', me, 'k', kind, 'i', record)
    return {'done', floor, set[3]}
end
local below = tonumber(ARGV[4])
if only_mine then -- the token of another server must be reached, whatever the clock says here
    base = math.max(base, floor)
end
--#include clock.lua
--#include grant.lua

local function refuse_vote(set)
    if not set[1] then
        local since = ARGV[13] == '1' and 0 or now
        call('HSET', B, 'f', ARGV[11], 's', number(since), 'n', ARGV[14])
        set[2], set[3] = since, ARGV[14]
    elseif set[1] ~= ARGV[11] then
        return {'set', set[1]}
    elseif ARGV[13] == '1' and set[2] ~= '0' or tonumber(set[2]) > now then -- or the clock was set back
        set[2] = ARGV[13] == '1' and 0 or now
        call('HSET', B, 's', number(set[2]))
    end
    local left = set[2] + longest - now
    return left > 0 and {'quarantine', math.ceil(left / 1000)}
end

local function vote()
    --#include state.lua
    --#include take.lua
    load(call('GET', K))
    if k == me then
        return repeat_alone()
    end
    local till = shared and call('ZSCORE', H, me)
    if till then
        return take_my_share(tonumber(till))
    end
    if only_mine then
        return {'lost'}
    end
    local in_use = shared and string.sub(k, 2) or k and is_ours(k) and s.k
    if in_use and in_use ~= kind then
        return {'kind', in_use}
    end
    if fits(weight, capacity) then
        return take()
    end
    local ms, foreign = left()
    return {'busy', ms, foreign}
end

local answer = refuse_vote(set) or vote()
if answer[1] == 'done' then
    answer[3] = set[3]
end
return answer
