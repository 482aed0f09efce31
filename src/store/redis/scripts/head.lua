local call = redis.call
local K, S = KEYS[1], KEYS[2]
local now, s

-- Concatenation would write a token as 1.78e+15.
local function number(n)
    return string.format('%.0f', n)
end

local function read_clock()
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end
