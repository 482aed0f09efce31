-- Releases a lock that is held exclusively, or reserved, when its other keys cannot be named
-- because its slot of a Cluster is being moved to another node. The next waiter gets it when it
-- asks again, which also repairs the other keys.
--
-- KEYS  K      ARGV  1 me, the owner id
--
-- Answers 1: it was mine; 0: this key alone does not say.
local k = redis.pcall('GET', KEYS[1])
if k == ARGV[1] or k == '?' .. ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0
