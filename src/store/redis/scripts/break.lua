-- Ends the hold with this token, no matter whose it is, and advances the token counter. In a set,
-- two readers may have the same token. Then both are ended: otherwise each server might end a
-- different one.
--
-- KEYS  K S Q W H I
-- ARGV  1 token  2 by whom  3 why  4 prefix of the channels
--       5 the name, if it was voted for: all clients that were refused may try again
--       6 V, or nothing (watched.lua)
--
-- Answers 1, or 0: no hold has this token.
--#include head.lua
local token, channels, V = ARGV[1], ARGV[4], ARGV[6]
--#include watched.lua
--#include clock.lua
--#include announce.lua
local read = call('HMGET', S, 't', 'h', 'k', 'u', 'q', 'i')
s = {t = read[1], h = read[2], k = read[3], u = read[4], q = read[5], i = read[6]}
read_clock()
--#include state.lua

load(call('GET', K))
local broken, records = {}, {}
if k and k == s.h and s.t == token then
    table.insert(broken, k)
    records[k] = s.i
    call('DEL', K)
    call('HDEL', S, 'i')
    k = false
elseif shared and token ~= '0' then
    local all = call('HGETALL', I)
    for i = 1, #all, 2 do
        if string.match(all[i + 1], '^%d+') == token then
            table.insert(broken, all[i])
            records[all[i]] = string.match(all[i + 1], '^%d+ (.*)$')
            leave_shared(all[i])
        end
    end
end
if #broken == 0 then
    call('ZREM', Q, '') -- which a replica refuses: it must not say that there is none
    return 0
end
local last = number(now) .. ' ' .. token .. ' ' .. #ARGV[2] .. ' ' .. ARGV[2] .. ARGV[3]
call('HSET', S, 't', number(math.max(tonumber(s.t or 0), tonumber(token)) + 1), 'h', '', 'b', last)
for _, id in ipairs(broken) do
    tell(channels, id, 'g')
    if watched == 1 then
        announce('b', id, s.k, token, 0, records[id], last)
    end
end
advance(channels)
if ARGV[5] ~= '' then
    redis.pcall('PUBLISH', channels .. 'votes', ARGV[5])
end
return 1
