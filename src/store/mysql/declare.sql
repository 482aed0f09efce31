-- What advance.sql, forget.sql, sweep.sql and wake.sql use.
DECLARE now_us, used BIGINT DEFAULT 0; -- the time; the weight of the holders
DECLARE next_client BINARY(16);
DECLARE next_seq, next_until_us BIGINT;
DECLARE next_weight INT;
DECLARE old_name, dead_name VARBINARY(255);
DECLARE old_count INT DEFAULT 0;
DECLARE is_used, woken TINYINT DEFAULT 0;
