-- The state of one lock, for the scripts that change it. It is in these keys, all in K's slot:
--
-- K  the lock as all clients know it: the owner id of the exclusive holder; '?' and the owner id
--    that it is reserved for; '=' and the kind while it is shared. Any other value is the lock of
--    a client that is not holdfast.
-- S  hash: t the token counter; h the owner id of the last exclusive holder; i the record of the
--    owner in K, until that one releases it; r the last who released it to another; k the kind;
--    u the weight in use if it may be shared; q '1' if somebody may wait; n the last ticket; x when
--    its expiry was set; b the last break
-- Q  sorted set: those who wait, by ticket
-- W  hash: until when each of them waits, and its record
-- H  sorted set: those who share it or have a share reserved, by the time at which that ends
-- I  hash: the token of each of those (0: reserved), and its record
--
-- A record is "weight since particulars". Times are the server's, in microseconds, except that the
-- fast path takes `since` from the holder's clock. Kinds are rw for a lock, and p5 for permits out
-- of 5. Nothing here watches the clock: the next script that runs ends what has expired.
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

-- Counts the weight in use again, after S or the records of shares were lost. Without a record, a
-- reader has the weight 1; a permit holder may have all permits.
local function count_used()
    local kind = string.sub(k, 2)
    used = 0
    for _, id in ipairs(call('ZRANGE', H, 0, -1)) do
        used = used + (weight_of(id) or kind == 'rw' and 1 or capacity_of(kind))
    end
    set_used(used)
end

-- Ends a share.
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

-- Sees who holds the lock, from what is in K, and ends shares that have expired.
local function load(value)
    k = value
    -- (A foreign value may begin with '=' too, but then there are no shares.)
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

-- Adds a share, or moves its end. K lasts as long as the last share, H and I somewhat longer.
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

-- Sends an owner a message: 'w', it is your turn; 'g', your hold is gone. It is a hint, so if it is
-- not permitted, the script goes on.
local function tell(channels, id, word)
    redis.pcall('PUBLISH', channels .. string.sub(id, 1, 32), word .. string.sub(id, 34))
end

local function reserve(channels, id, till, record, weight)
    leave_queue(id)
    if weight == capacity_of(s.k) then
        k = '?' .. id
        call('SET', K, k, 'PX', number(math.ceil((till - now) / 1000)))
        call('HSET', S, 'i', record, 'h', '', 'r', let_go or '')
    else
        share(s.k, id, till, '0 ' .. record)
        set_used(used + weight)
    end
    tell(channels, id, 'w')
end

-- Reserves the lock for as many at the front of the queue as fit, each until its wait lease ends,
-- and wakes them. Dead waiters are skipped. It stops at `me`, who is here and needs no reservation,
-- when it is its turn. Returns the first that still waits or has it now, if any, and whether it is
-- my turn.
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
            if not shared then -- nobody else fits
                return id, false
            end
        end
    end
    return nil, false
end
