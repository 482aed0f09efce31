-- Lets go of a lock that somebody has alone, or that is reserved, where its other keys cannot be named: its slot of a Cluster
-- is on the way to another node. Who waits gets it when it asks again, which repairs what is left in them.
--
-- KEYS  K      ARGV  1 me, the owner id
--
-- Answers 1: it was mine; 0: that cannot be said from here.
local k = redis.pcall('GET', KEYS[1])
if k == ARGV[1] or k == '?' .. ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0
