-- A replica, or a server that will become one, takes no locks, and must not answer that a client has
-- none.
IF CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF') THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read only';
END IF;
START TRANSACTION;
