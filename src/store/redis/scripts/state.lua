-- The state of one lock, for the scripts that change it. What they keep, all in the slot of K:
--
-- K  the lock as everybody knows it: the owner id of who has it alone; '?' and the owner id for whom it is
--    reserved; '=' and the kind while it is shared. Any other value is the lock of a client that is not holdfast.
-- S  hash: t the token counter; h the owner id of the last who had it alone, and i its record while it
--    has it; w the record of the one for whom K is reserved; r the last who let it go to another; k the
--    kind; u the weight in use if it may be shared; q '1' if somebody may wait; n the last ticket;
--    x when its expiry was set; b the last break
-- Q  sorted set: who waits, by ticket
-- W  hash: until when each of them waits, and its record
-- H  sorted set: who shares it or has a share reserved, by the time at which that ends
-- I  hash: the token of each of those (0: reserved), and its record
--
-- A record is "weight since particulars". Times are the server's, in microseconds. Kinds are rw for a lock, and
-- p5 for permits out of 5. Nothing here watches the clock: whoever comes next ends what has passed.
local Q, W, H, I = KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local k, shared, used, let_go

local function capacity_of(kind)
    return kind == 'rw' and 2147483647 or tonumber(string.sub(kind, 2))
end

local function is_ours(value)
    return string.find(value, '^%??%x+%-%x+$') and #string.match(value, '%x+') == 32
end

local function set_used(weight)
    used = weight
    call('HSET', S, 'u', number(used))
end

local function weight_of(id)
    return tonumber(string.match(call('HGET', I, id) or '', '^%d+ (%d+)'))
end

-- Counts the weight in use again, after S or the records of shares were lost. A reader without a record weighs
-- 1; a permit holder without one may have all permits.
local function count_used()
    local kind = string.sub(k, 2)
    used = 0
    for _, id in ipairs(call('ZRANGE', H, 0, -1)) do
        used = used + (weight_of(id) or kind == 'rw' and 1 or capacity_of(kind))
    end
    set_used(used)
end

-- Ends somebody's share.
local function leave_shared(id)
    local weight = weight_of(id)
    call('ZREM', H, id)
    call('HDEL', I, id)
    if weight then
        set_used(used - weight)
    else
        count_used()
    end
    if used <= 0 then
        call('DEL', K, H, I)
        call('HDEL', S, 'u')
        k, shared, used, s.u = false, false, 0, false
    end
end

-- Reads who has the lock, and ends the shares whose time has passed.
local function load()
    k = call('GET', K)
    -- (A foreign value may begin so, too; but then there are no shares.)
    shared, used = k and string.sub(k, 1, 1) == '=' and call('PTTL', H) ~= -2, 0
    if shared then
        used = tonumber(s.u)
        if not used then
            count_used()
            call('PEXPIRE', S, 8 * 86400000)
        end
        for _, id in ipairs(call('ZRANGEBYSCORE', H, '-inf', number(now))) do
            if shared then
                leave_shared(id)
            end
        end
    elseif s.u then -- all shares ended with K, or somebody deleted it
        call('DEL', H, I)
        call('HDEL', S, 'u')
        s.u = false
    end
end

local function fits(weight, capacity)
    if k and not shared then
        return false
    end
    return used + weight <= capacity
end

-- Adds a share, or moves the end of one; K lasts as long as the last of them, H and I somewhat longer.
local function share(kind, id, till, value)
    local ms = math.ceil((till - now) / 1000)
    if not shared then
        k, shared = '=' .. kind, true
        call('DEL', H, I) -- what may be left of earlier times
        call('SET', K, k, 'PX', number(ms))
    elseif call('PTTL', K) < ms then
        call('PEXPIRE', K, number(ms))
    end
    call('ZADD', H, number(till), id)
    call('HSET', I, id, value)
    if call('PTTL', H) < ms or call('PTTL', I) < ms then
        call('PEXPIRE', H, number(2 * ms))
        call('PEXPIRE', I, number(2 * ms))
    end
end

local function leave_queue(id)
    call('ZREM', Q, id)
    call('HDEL', W, id)
end

-- Says something to an owner: 'w', it is your turn; 'g', your hold is gone. It is a hint: that we may not say
-- it (a right that is missing) must not stop what was begun.
local function tell(channels, id, word)
    redis.pcall('PUBLISH', channels .. string.sub(id, 1, 32), word .. string.sub(id, 34))
end

local function reserve(channels, id, till, record, weight)
    leave_queue(id)
    if weight == capacity_of(s.k) then
        k = '?' .. id
        call('SET', K, k, 'PX', number(math.ceil((till - now) / 1000)))
        call('HSET', S, 'w', record, 'h', '', 'r', let_go or '')
    else
        share(s.k, id, till, '0 ' .. record)
        set_used(used + weight)
    end
    tell(channels, id, 'w')
end

-- Reserves the lock for as many of those in front of the queue as fit, each until its wait lease ends, and
-- wakes them. Who is dead is skipped. Stops at `me`, who is here and needs no reservation, when it would be
-- its turn. Returns the first who still waits, if anybody does, and whether the turn is mine.
local function advance(channels, me)
    while s.q do
        local id = call('ZRANGE', Q, 0, 0)[1]
        if not id then
            call('HDEL', S, 'q')
            s.q = false
            return nil, false
        end
        local till, record, weight = string.match(call('HGET', W, id) or '', '^(%d+) ((%d+) .*)$')
        till, weight = tonumber(till), tonumber(weight)
        if not till or till <= now and id ~= me then
            leave_queue(id)
        elseif not fits(weight, capacity_of(s.k)) then
            return id, false
        elseif id == me then
            return id, true
        else
            reserve(channels, id, till, record, weight)
        end
    end
    return nil, false
end
