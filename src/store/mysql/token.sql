-- The token of a grant; in `answer`, 'done', 'clock' or 'spent'. A client that already holds the lock
-- is repeating.
SET most_us = GREATEST(now_us, base) + 86400000000; -- a day ahead
SET number = IF(my_state = 1, my_token, lock_token);
IF proposed > most_us AND number = 0 THEN
    SET answer = 'clock', number = now_us;
ELSE
    SET number = GREATEST(IF(my_state = 1, number, number + 1), LEAST(proposed, most_us), base);
    SET answer = IF(number < 9007199254740992, 'done', 'spent');
END IF;
