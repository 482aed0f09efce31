-- What the fast paths of a grant need to know: is the lock wanted as a whole, does nobody share it,
-- and is the floor the next token? If so, `is_simple`, and the server's clock is not needed if K is
-- free or reserved for me. x is a time that has passed there, so a floor within a day after x is
-- not too far ahead. A floor before x, or right after the counter, may come from a clock that stands
-- still; then the other path sees to the counter's expiry, by the server's clock.
--
-- A script that uses this must first define, as text: capacity, weight, floor, base.
local DAY = 86400000000
local read = call('HMGET', S, 't', 'x', 'q', 'u', 'k')
local t, x, proposed = tonumber(read[1] or 0), tonumber(read[2]), tonumber(floor)
local is_simple = weight == capacity and not read[4] and
    x and proposed > t + 1 and proposed >= x and proposed < x + DAY and proposed >= tonumber(base)
