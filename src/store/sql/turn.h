/* Which requests a link sends together. Commits on a connection follow each other, and each waits
 * for the disk. So acquires and releases take turns: those that arrive while one turn is under way
 * go together in the next, as one request (batch.c of each store).
 *
 * Which of the requests for different names comes first does not matter. A name that is asked for
 * more than once is contended: its requests are sent alone, in order. Later requests wait for the
 * next turn. So if a batch has left a request undone, no later request for its name has overtaken
 * it. */
#ifndef SQL_TURN_H
#define SQL_TURN_H

#include "store/store.h"

/* The operation of a request; NULL: it takes no part. */
typedef const struct store_op *sql_op_of(const struct list *request);

struct sql_turn {
    struct list acquires, releases; /* no two in the turn for the same name */
    struct list alone;
};

enum { SQL_TURN_MAX = 128 };

/* Takes requests from the front of `waiting`, SQL_TURN_MAX at most. */
void sql_turn_take(struct sql_turn *turn, struct list *waiting, sql_op_of *op_of);

#endif
