/* A database without the store, for bench-postgres and bench-mysql: bare connections of its client
 * library, on which the store's own requests are sent, and what people use instead. Another
 * database is another file with these functions. */
#ifndef BENCH_SQL_RAW_H
#define BENCH_SQL_RAW_H

#include <stdbool.h>
#include <stdint.h>

struct raw_connection;

/* How a lock is taken and given back. */
enum raw_way {
    RAW_SAME,    /* the store's requests; for a name that nobody else uses */
    RAW_INSERT,  /* a row is inserted and deleted: durable, and nothing else */
    RAW_SESSION, /* the database's own lock for sessions: nothing is written */
    RAW_EMPTY,   /* a statement that does nothing */
};

extern const char *const raw_way_names[];

/* What the store's cases begin with. */
extern const char *const raw_store;

/* `database`: a URL for the client library. Makes what the ways need. */
void raw_find_server(const char *database);
struct raw_connection *raw_connect(void);
void raw_close(struct raw_connection *to);

/* False: somebody has it (RAW_INSERT; RAW_SESSION waits). */
bool raw_take(struct raw_connection *to, enum raw_way way, const char *name);
void raw_give(struct raw_connection *to, enum raw_way way, const char *name);

/* What the store has cost the server so far. */
struct raw_cost {
    double statements, renewals; /* `renewals` are statements for many holds */
    double log_bytes;            /* of the log that commits wait for */
};

struct raw_cost raw_cost(struct raw_connection *to);

#endif
