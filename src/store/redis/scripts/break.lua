-- Ends the hold with a token, whoever has it, and moves the token on. In a set, two readers may
-- have the same token. Then both are ended: otherwise each server might end a different one.
--
-- KEYS  K S Q W H I
-- ARGV  1 token  2 by whom  3 why  4 prefix of the channels
--       5 the name, if it was voted for: all clients that were refused may try again
--
-- Answers 1, or 0: no hold has this token.
--#include head.lua
local token = ARGV[1]
local read = call('HMGET', S, 't', 'h', 'k', 'u', 'q')
s = {t = read[1], h = read[2], k = read[3], u = read[4], q = read[5]}
read_clock()
--#include state.lua

load()
local broken = {}
if k and k == s.h and s.t == token then
    table.insert(broken, k)
    call('DEL', K)
    call('HDEL', S, 'i', 'w')
    k = false
elseif shared and token ~= '0' then
    local all = call('HGETALL', I)
    for i = 1, #all, 2 do
        if string.match(all[i + 1], '^%d+') == token then
            table.insert(broken, all[i])
            leave_shared(all[i])
        end
    end
end
if #broken == 0 then
    call('ZREM', Q, '') -- which a replica refuses: it must not say that there is none
    return 0
end
call('HSET', S, 't', number(math.max(tonumber(s.t or 0), tonumber(token)) + 1), 'h', '',
     'b', number(now) .. ' ' .. token .. ' ' .. #ARGV[2] .. ' ' .. ARGV[2] .. ARGV[3])
for _, id in ipairs(broken) do
    tell(ARGV[4], id, 'g')
end
advance(ARGV[4])
if ARGV[5] ~= '' then
    redis.pcall('PUBLISH', ARGV[4] .. 'votes', ARGV[5])
end
return 1
