-- One step on a counter. The answer is kept in the same step, so that a repeat finds its own.
--
-- KEYS  K  the counter: a number as INCR writes it
--       A  the seq and the answer of the last step that this client took on it
-- ARGV  1 seq, with leading zeros  2 what: get, add, swap, cas, remove  3 number
--       4 expected, '-' for no counter  5 life in ms of a counter that this makes, 0 for no end
--       6 for how long the answer is kept, in ms
--
-- Answers 'done VALUE LEFT', of swap and remove with what was there before; 'mismatch VALUE LEFT';
-- 'range'; 'kind': K is something else; 'late': this client has taken a later step. VALUE is '-' if
-- there is no counter, LEFT is in ms and -1 if it has no end.
--
-- Lua's numbers are exact only up to 2^53, so values stay strings.
local call = redis.call
local K, A = KEYS[1], KEYS[2]
local seq, what, number, life = ARGV[1], ARGV[2], ARGV[3], ARGV[5]

local function is_number(text)
    local sign, digits = string.match(text, '^(%-?)([1-9]%d*)$')
    local most = sign == '-' and '9223372036854775808' or '9223372036854775807'
    return text == '0' or digits and (#digits < #most or #digits == #most and digits <= most)
end

-- Whether a command failed, and by this error.
local function failed(reply, code)
    return type(reply) == 'table' and reply.err and string.find(reply.err, code)
end

local function show(value)
    return (value or '-') .. ' ' .. string.format('%.0f', call('PTTL', K))
end

local function set(exists)
    if exists then
        call('SET', K, number, 'KEEPTTL')
    elseif life == '0' then
        call('SET', K, number)
    else
        call('SET', K, number, 'PX', life)
    end
end

local function add()
    local sum = redis.pcall('INCRBY', K, number)
    if failed(sum, '') then
        return failed(sum, 'overflow') and 'range' or sum
    end
    return 'done ' .. show(call('GET', K))
end

local function step()
    local value = redis.pcall('GET', K)
    if failed(value, '') then
        return failed(value, 'WRONGTYPE') and 'kind' or value
    elseif value and not is_number(value) then
        return 'kind'
    elseif what == 'add' and value then
        return add()
    end
    local before = show(value)
    if what == 'get' then
        return 'done ' .. before
    elseif what == 'cas' and (value or '-') ~= ARGV[4] then
        return 'mismatch ' .. before
    elseif what == 'remove' then
        call('DEL', K)
        return 'done ' .. before
    end
    set(value)
    return 'done ' .. (what == 'swap' and before or show(number))
end

if what == 'get' then
    -- A write that does nothing: a replica does not have the last value, and must not answer.
    local wrote = redis.pcall('SETRANGE', K, 0, '')
    if failed(wrote, '') and not failed(wrote, 'WRONGTYPE') and not failed(wrote, 'OOM') then
        return wrote
    end
    return step()
end
local last, kept = string.match(call('GET', A) or '', '^(%d+) (.*)$')
if last == seq then
    call('PEXPIRE', A, ARGV[6]) -- a write again: a replica refuses it, and WAIT counts who has it
    return kept
elseif last and last > seq then
    return 'late'
end
local answer = step()
if type(answer) == 'string' then
    call('SET', A, seq .. ' ' .. answer, 'PX', ARGV[6])
end
return answer
