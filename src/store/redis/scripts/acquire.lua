-- Takes the lock, or a place in its queue. The same again asks while waiting, and repeats.
--
-- KEYS  K S Q W H I
-- ARGV  1 me, the owner id  2 lease in ms  3 wait lease in ms, 0 not to wait  4 floor  5 below, 0 for none
--       6 base  7 '1' to barge  8 kind  9 capacity  10 weight  11 particulars  12 prefix of the channels
--
-- Answers {'done', token}, {'queued', left ms, foreign?, how many are ahead}, {'busy', left ms, foreign?},
-- {'kind', which it is}, {'below', counter}, {'clock', server's time}, {'spent', token}. Left is -1 where
-- a foreign lock has no expiry.
--#include head.lua
local DAY = 86400000000
local me, lease, kind = ARGV[1], tonumber(ARGV[2]), ARGV[8]
local capacity, weight = tonumber(ARGV[9]), tonumber(ARGV[10])

local function next_token(counter)
    local floor, below, base = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
    if below > 0 and counter > below then
        return nil, {'below', number(counter)}
    end
    local limit = math.max(now, base) + DAY
    if floor > limit then
        if counter == 0 then
            return nil, {'clock', number(now)}
        end
        floor = limit
    end
    local token = math.max(counter + 1, floor, base)
    if token >= 9007199254740992 then
        return nil, {'spent', number(token)}
    end
    return token
end

local function record(since)
    return ARGV[10] .. ' ' .. number(since) .. ' ' .. ARGV[11]
end

-- The counter stays for a week after its last use: eight days that are set anew each day.
local function keep_counter()
    if not s.x or now - s.x > DAY then
        call('HSET', S, 'x', number(now))
        call('PEXPIRE', S, 8 * 86400000)
    end
end

local function note_alone(token)
    call('HSET', S, 't', number(token), 'h', me, 'k', kind, 'i', record(now))
    keep_counter()
    return {'done', number(token)}
end

local read = call('HMGET', S, 't', 'h', 'k', 'u', 'q', 'x', 'i')
s = {t = tonumber(read[1] or 0), h = read[2], k = read[3], u = read[4], q = read[5], x = read[6], i = read[7]}
read_clock()

-- The fast path: nobody has it, nobody waits, and I want all of it.
local token, refused = next_token(s.t)
if weight == capacity and not s.q and token and call('SET', K, me, 'NX', 'PX', ARGV[2]) then
    return note_alone(token)
end
--#include state.lua

local function shared_done(was, till)
    share(kind, me, till, number(token) .. ' ' .. was)
    call('HSET', S, 't', number(math.max(token, s.t)), 'k', kind)
    keep_counter()
    return {'done', number(token)}
end

-- A repeat, which only ever moves the end later.
local function repeat_alone()
    token, refused = next_token(s.t - 1)
    if not token then
        return refused
    end
    if call('PTTL', K) < lease then
        call('PEXPIRE', K, ARGV[2])
    end
    call('HSET', S, 't', number(token))
    return {'done', number(token)}
end

local function take_my_share(till)
    local had, was = string.match(call('HGET', I, me) or '0 ' .. record(now), '^(%d+) (.*)$')
    local held = had ~= '0'
    token, refused = next_token(held and tonumber(had) - 1 or s.t)
    if not token then
        return refused
    end
    local ends = now + lease * 1000
    return shared_done(held and was or record(now), held and math.max(ends, till) or ends)
end

local function take()
    token, refused = next_token(s.t)
    if not token then
        return refused
    end
    if s.q then
        leave_queue(me)
    end
    if weight == capacity then
        call('SET', K, me, 'PX', ARGV[2])
        return note_alone(token)
    end
    local done = shared_done(record(now), now + lease * 1000)
    set_used(used + weight)
    return done
end

-- After which time the lock may be free, and whether a foreign client has it.
local function left()
    if shared then
        return math.ceil((call('ZRANGE', H, 0, 0, 'WITHSCORES')[2] - now) / 1000), 0
    end
    return k and call('PTTL', K) or 0, k and not is_ours(k) and 1 or 0
end

-- A place in the queue, kept by asking again. Who barges stands before those who do not.
local function queue_up()
    local wait = tonumber(ARGV[3])
    local since = string.match(call('HGET', W, me) or '', '^%d+ %d+ (%d+)')
    if not since or not call('ZSCORE', Q, me) then
        local ticket = call('HINCRBY', S, 'n', 1)
        call('ZADD', Q, number(ARGV[7] == '1' and ticket - 4503599627370496 or ticket), me)
    end
    call('HSET', W, me, number(now + wait * 1000) .. ' ' .. record(since or now))
    call('HSET', S, 'q', '1', 'k', kind)
    keep_counter()
    if call('PTTL', Q) < wait or call('PTTL', W) < wait then
        call('PEXPIRE', Q, number(2 * wait))
        call('PEXPIRE', W, number(2 * wait))
    end
    local ms, foreign = left()
    return {'queued', ms, foreign, call('ZRANK', Q, me)}
end

load()
if k == me then
    return repeat_alone()
elseif k == '?' .. me then
    return take()
end
local till = shared and call('ZSCORE', H, me)
if till then
    return take_my_share(tonumber(till))
end
local first, my_turn = advance(ARGV[12], me)
local in_use = shared and string.sub(k, 2) or (k and is_ours(k) or first) and s.k
if in_use and in_use ~= kind then
    return {'kind', in_use}
end
if my_turn or fits(weight, capacity) and (not first or ARGV[7] == '1') then
    return take()
end
if ARGV[3] == '0' then
    local ms, foreign = left()
    return {'busy', ms, foreign}
end
return queue_up()
