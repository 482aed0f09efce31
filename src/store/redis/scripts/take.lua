-- Taking the lock, in each of the ways in which it may be mine. Included after grant.lua and
-- state.lua.
local function shared_done(was, till)
    share(kind, me, till, number(token) .. ' ' .. was)
    note('t', number(math.max(token, s.t)), 'k', kind)
    return {'done', number(token)}
end

-- A repeat, which only ever moves the end later.
local function repeat_alone()
    token, refused = next_token(s.t, true)
    if not token then
        return refused
    end
    if call('PTTL', K) < lease then
        call('PEXPIRE', K, number(lease))
    end
    if not s.x then -- S was lost
        return note_alone()
    end
    note('t', number(token))
    return {'done', number(token)}
end

local function take_my_share(till)
    local lost = not weight_of(me)
    local mine = lost and '0 ' .. record(now) or call('HGET', I, me)
    local had, was = string.match(mine, '^(%d+) (.*)$')
    local held = had ~= '0'
    token, refused = next_token(held and tonumber(had) or s.t, held)
    if not token then
        return refused
    end
    local ends = now + lease * 1000
    local done = shared_done(held and was or record(now), held and math.max(ends, till) or ends)
    if lost then
        count_used()
    end
    return done
end

local function take()
    token, refused = next_token(s.t)
    if not token then
        return refused
    end
    if s.q and k ~= '?' .. me then
        leave_queue(me)
    end
    if weight == capacity then
        call('SET', K, me, 'PX', number(lease))
        return note_alone()
    end
    local done = shared_done(record(now), now + lease * 1000)
    set_used(used + weight)
    return done
end

-- When the lock may be free, and whether a foreign client has it.
local function left()
    if shared then
        return math.ceil((call('ZRANGE', H, 0, 0, 'WITHSCORES')[2] - now) / 1000), 0
    end
    return k and call('PTTL', K) or 0, k and not is_ours(k) and 1 or 0
end
