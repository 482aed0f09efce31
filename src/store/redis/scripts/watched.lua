-- Does somebody watch? A client that watches keeps the key V alive ('1'). Other clients name V
-- unless they have learned within the last second that nobody watches. So while nobody watches, a
-- client pays for this once a second at most. V is not a lock's key and may be forbidden to this
-- user, so it is an argument: a key of KEYS that is forbidden would fail the whole script.
--
-- A script that uses this must first define: V.
local watched = V and (redis.pcall('GET', V) == '1' and 1 or 0)
