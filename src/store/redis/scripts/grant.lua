-- Tokens and grants, for the scripts that give them. They must define before: me, lease, kind,
-- capacity, weight, floor, below, base, particulars.
local DAY = 86400000000
local token, refused

-- The token after a counter or, for a repeat, after the token of the hold.
local function next_token(counter, repeats)
    if below > 0 and counter > below then
        return nil, {'below', number(counter)}
    end
    local floor = floor
    local limit = math.max(now, base) + DAY
    if floor > limit then
        if counter == 0 then
            return nil, {'clock', number(now)}
        end
        floor = limit
    end
    local same = repeats or below > 0 and counter == below
    local next = math.max(same and counter or counter + 1, floor, base)
    if next >= 9007199254740992 then
        return nil, {'spent', number(next)}
    end
    return next
end

local function record(since)
    return number(weight) .. ' ' .. number(since) .. ' ' .. particulars
end

-- The counter stays for a week after its last use: its expiry is eight days, set again once a day.
local function keep_counter()
    if not s.x or now - s.x > DAY then
        call('HSET', S, 'x', number(now))
        call('PEXPIRE', S, 8 * 86400000)
    end
end

local function note_alone()
    call('HSET', S, 't', number(token), 'h', me, 'k', kind, 'i', record(now))
    keep_counter()
    return {'done', number(token)}
end

local function read_state()
    local read = call('HMGET', S, 't', 'h', 'k', 'u', 'q', 'x', 'i')
    s = {t = tonumber(read[1] or 0), h = read[2], k = read[3], u = read[4], q = read[5], x = read[6], i = read[7]}
    read_clock()
end
