-- Frees a lock in the published format, `SET key unique NX PX`, if the value is the one given:
--
--     redis-cli --eval unlock.lua holdfast:orders , 0123456789abcdef0123456789abcdef-1
--
-- Answers 1 if it was freed and 0 if somebody else, or nobody, had it. Works with the locks of any client
-- that keeps to the format, holdfast's mutexes and writers among them; who waits for one of those
-- in holdfast's queue gets it within a third of its wait lease.
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0
