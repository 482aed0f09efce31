/* What stores in SQL databases have in common, once the database's answers are texts: the
 * scheme, what the answer to an acquire or a count means, which holds were renewed, and what rows
 * say about locks. */
#ifndef SQL_SQL_H
#define SQL_SQL_H

#include "store/locks.h"

/* ---- The scheme ---- */

/* The scheme that the URL names. HF_OK or an hf_error, then with malloc'd particulars. */
int sql_read_scheme(const struct store_host *host, const struct url *url, bool *ret_for_update,
                    char **ret_text);

/* What `doctor` says about scheme=for-update. False: no memory. */
bool sql_find_for_update(hf_examination *out);

#define SQL_FOR_UPDATE_LACKS "with scheme=for-update a lock is a row lock, which cannot be counted"

/* With scheme=for-update. */
#define SQL_FOR_UPDATE_CAPABILITIES                                              \
    (STORE_CAN_SHARE | STORE_CAN_LEASE_EACH | STORE_CAN_FLOOR | STORE_CAN_LOOK | \
     STORE_CAN_EXAMINE | STORE_SESSION_BOUND | STORE_IN_ORDER | STORE_CAN_COUNT)

/* The connection that listens has this many times as long to connect as others: nobody waits for
 * it, and all waiters of a lock may connect at once. */
enum { SQL_LISTENER_PATIENCE = 5 };

/* ---- Acquire ---- */

/* The columns of the answer. Its first one is a word: done, queued, busy, kind,
 * scheme, clock, spent. */
enum {
    SQL_ANSWER,
    SQL_NUMBER,
    SQL_IS_HEAD,
    SQL_IN_USE_KIND,
    SQL_IN_USE_CAPACITY,
    SQL_ANSWER_COLUMNS
};

/* Completes the operation. False: the answer makes no sense, and nothing was done. */
bool sql_acquire_answered(struct store_host *host, struct store_op *op,
                          const char *const values[SQL_ANSWER_COLUMNS]);

/* ---- Renew ---- */

/* The attempts that a renewal names, in the order of the operation's list. */
struct sql_renewing {
    size_t count;
    struct sql_renewed {
        uint64_t seq; /* 0: it ended before */
        int64_t lease_us;
        bool held;
    } renewals[];
};

/* NULL: no memory. */
struct sql_renewing *sql_renewing_new(const struct store_op *op);

/* The database reports that this attempt still holds its lock. */
void sql_renewing_note(struct sql_renewing *renewing, uint64_t seq);

/* Completes the operation, and frees the list. */
void sql_renewing_finish(struct store_host *host, struct store_op *op,
                         struct sql_renewing *renewing);

/* ---- Count ---- */

/* The columns of the answer. Its first one is a word: done, mismatch, range, late. */
enum { SQL_COUNT_ANSWER, SQL_COUNT_VALUE, SQL_COUNT_LEFT_US, SQL_COUNT_COLUMNS };

/* Completes the operation; the value of no counter is "". False: the answer makes no sense, and
 * nothing was done. */
bool sql_count_answered(struct store_host *host, struct store_op *op,
                        const char *const values[SQL_COUNT_COLUMNS]);

/* ---- Look ---- */

/* The columns of a row: a lock, and one of its holders or waiters. */
enum {
    SQL_LOCK_NAME,
    SQL_LOCK_KIND,
    SQL_LOCK_CAPACITY,
    SQL_LOCK_TOKEN,
    SQL_BROKEN_US,
    SQL_BROKEN_TOKEN,
    SQL_BROKEN_BY,
    SQL_BROKEN_REASON,
    SQL_CLIENT, /* in hex, maybe with hyphens; "": nobody */
    SQL_SEQ,
    SQL_STATE, /* 1: it holds the lock */
    SQL_TOKEN,
    SQL_WEIGHT,
    SQL_SINCE_MS,
    SQL_LEFT_MS,
    SQL_PID,
    SQL_HOST,
    SQL_COMMAND,
    SQL_LABEL,
    SQL_LOOK_COLUMNS
};

/* Adds what the row says. Rows of a lock follow each other. False: no memory. */
bool sql_add_row(struct hf_locks *locks, const char *const values[SQL_LOOK_COLUMNS]);

/* Changes the prefix into the first string of bytes that sorts after all that begin with it; "":
 * there is none. */
void sql_end_of_prefix(char *prefix);

#endif
