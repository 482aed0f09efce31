/* An examination under way: what examine.c found out, for report.c to turn into findings. */
#ifndef REDIS_EXAMINE_H
#define REDIS_EXAMINE_H

#include "store/redis/deployment.h"
#include "store/redis/rights.h"

enum { EXAMINE_WRITES = 10, EXAMINE_VALUE_SIZE = 80 };

enum examine_setting { APPENDFSYNC, SAVE, MIN_REPLICAS, KEY_EVENTS, EXAMINE_SETTINGS };

enum examine_step { ASKING, VISITING, CLOCK, WRITING, FORGETTING, SUBSCRIBING };

struct examining {
    struct redis *redis;
    struct store_op *op;
    struct store_facts *facts; /* for a set; NULL: it is in none */
    enum examine_step step;
    size_t pending;             /* requests without an answer */
    enum store_outcome outcome; /* of the first that failed; 0: none did */
    bool no_memory;
    char *info;                                          /* NULL: INFO is not permitted */
    char settings[EXAMINE_SETTINGS][EXAMINE_VALUE_SIZE]; /* "": unknown, or empty */
    bool known[EXAMINE_SETTINGS];
    bool from_elsewhere; /* without a password, and over the network */
    struct rights rights;
    int64_t set_since_us;           /* when the server started to vote, by its clock */
    int64_t asked_us;               /* when the request that is measured was sent */
    int64_t ahead_us, uncertain_us; /* of the server's clock; uncertain -1: not known */
    int64_t us[EXAMINE_WRITES];
    size_t writes;
    bool wrote;      /* the last write was done */
    bool subscribed; /* so the connection is of no other use */
    int refusal;     /* why a write failed; 0: none did, or a permission is missing */
    char *refused;
    struct deployment deployment;
    hf_examination *out;
};

/* Turns all that was found out into findings, in x->out; sets x->no_memory if there is none. */
void examine_report(struct examining *x);

#endif
