-- Tokens and grants, for the scripts that give them. Included after fast.lua and clock.lua. Those
-- scripts must first define, in addition: me, lease, kind, below, particulars.
local capacity, weight = tonumber(capacity), tonumber(weight)
local lease, base = tonumber(lease), tonumber(base)
local token, refused
s = {t = t, x = x, q = read[3], u = read[4], k = read[5]}
read_clock()

-- The token after a counter or, for a repeat, after the token of the hold.
local function next_token(counter, repeats)
    if below > 0 and counter > below then
        return nil, {'below', number(counter)}
    end
    local floor = proposed
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
local function is_fresh()
    return s.x and now - s.x <= DAY
end

-- Writes to S.
local function note(...)
    if is_fresh() then
        call('HSET', S, ...)
    else
        call('HSET', S, 'x', number(now), ...)
        call('PEXPIRE', S, 8 * 86400000)
    end
end

local function note_alone()
    note('t', number(token), 'h', me, 'k', kind, 'i', record(now))
    return {'done', number(token)}
end
