-- Ends the hold that has a token, whoever has it, and moves the token on.
--
-- KEYS  K S Q W H I      ARGV  1 token  2 by whom  3 why  4 prefix of the channels
--
-- Answers 1, or 0: no hold has this token.
--#include head.lua
local token = ARGV[1]
local read = call('HMGET', S, 't', 'h', 'k', 'u', 'q')
s = {t = read[1], h = read[2], k = read[3], u = read[4], q = read[5]}
read_clock()
--#include state.lua

local function holder_of_share()
    local all = call('HGETALL', I)
    for i = 1, #all, 2 do
        if string.match(all[i + 1], '^%d+') == token then
            return all[i]
        end
    end
end

load()
local id
if k and k == s.h and s.t == token then
    id = k
    call('DEL', K)
    call('HDEL', S, 'i', 'w')
    k = false
elseif shared and token ~= '0' then
    id = holder_of_share()
    if id then
        leave_shared(id)
    end
end
if not id then
    call('ZREM', Q, '') -- which a replica refuses: it must not say that there is none
    return 0
end
call('HSET', S, 't', number(math.max(tonumber(s.t or 0), tonumber(token)) + 1), 'h', '',
     'b', number(now) .. ' ' .. token .. ' ' .. #ARGV[2] .. ' ' .. ARGV[2] .. ARGV[3])
tell(ARGV[4], id, 'g')
advance(ARGV[4])
return 1
