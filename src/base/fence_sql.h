/* The statement that checks fencing tokens in a database, in the database's dialect. hf_fence_sql
 * and `holdfast fence sql` hand it out. The table or function that it uses is in the schema of that
 * database's store (schema.sql in src/store/postgres and src/store/mysql); for SQLite it is
 * HF_FENCE_SQLITE_TABLE. */
#ifndef BASE_FENCE_SQL_H
#define BASE_FENCE_SQL_H

#include <holdfast/holdfast.h>

struct fence_sql {
    hf_dialect dialect;
    char *text; /* of `size` bytes; truncated if it does not fit */
    size_t size;
    size_t length; /* of the whole statement; 0: not started yet */
};

/* The word for a dialect, as in the URLs of its store. NULL: there is no such dialect. */
const char *fence_sql_word(int dialect);

/* Adds the check of one token to the statement. */
void fence_sql_add(struct fence_sql *sql, const char *name, uint64_t token);
/* Adds the end of the statement. */
void fence_sql_end(struct fence_sql *sql);

#endif
