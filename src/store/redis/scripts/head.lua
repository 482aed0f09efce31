local call = redis.call
local K, S = KEYS[1], KEYS[2]
