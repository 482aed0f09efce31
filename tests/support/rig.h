/* A store over streams that lead to the test (fake_streams.h), as its client sees it: the rig
 * submits operations, counts their completions and keeps what the store reports. The store is the
 * one that the program is linked with. */
#ifndef TESTS_SUPPORT_RIG_H
#define TESTS_SUPPORT_RIG_H

#include "store/voting.h"
#include "support/fake_streams.h"

#include <stdio.h>

enum { RIG_NEWS_MAX = 64 };

struct rig {
    struct store_host host;
    struct world *world;
    struct store *store; /* NULL: closed */
    struct store_set set;
    uint64_t woken[RIG_NEWS_MAX], gone[RIG_NEWS_MAX], checked[RIG_NEWS_MAX];
    size_t woken_count, gone_count, checked_count; /* of all; the first are kept */
    hf_change_type changes[RIG_NEWS_MAX];          /* the same, of what is watched */
    size_t change_count;
    char change[600]; /* the last of them, in words */
    /* For the server of fake_redis.h. */
    bool knows_scripts;
    bool failed_over;     /* another server is the master, or has the slot of x */
    const char *error;    /* the next script is answered with this; NULL: it is run */
    const char *extended; /* the next PEXPIRE is answered with this; NULL: that it was done */
    size_t served;        /* commands that it answered */
};

/* One operation, and how often it completed. If it completes twice, the program ends. */
struct asked {
    union {
        struct store_op op;
        struct store_vote vote;
    };
    struct rig *rig;
    int completions;
    struct store_renewal renewals[300];
};

/* Opens a store by its URL; HF_OK or the error, with *ret_text as the driver's. The client is
 * 00112233…eeff. */
int rig_open_url(struct rig *rig, const char *url, char **ret_text);
/* The same; it must not fail. */
void rig_open(struct rig *rig, const char *url);
/* Makes it a node of the set test/3/2/60000. */
void rig_join(struct rig *rig, void (*freed)(struct store_host *host, const char *name));
/* Closes the store, if it is open, and the world. */
void rig_close_store(struct rig *rig);
void rig_close(struct rig *rig);

/* Submits an operation, which must live until the store is closed. `name` and the like are kept by
 * reference. Writes go out at the end of the call, except with rig_submit. */
void rig_submit(struct rig *rig, struct asked *asked);
void ask_acquire(struct rig *rig, struct asked *asked, const char *name, unsigned flags);
void ask_release(struct rig *rig, struct asked *asked, const char *name);
/* Asks a node for its vote. `token` is for RAISE and RETAKE. */
void ask_vote(struct rig *rig, struct asked *asked, enum store_vote_type type, uint64_t token);
void ask_give_back(struct rig *rig, struct asked *asked, const char *name);
void ask_break(struct rig *rig, struct asked *asked, const char *name, uint64_t token);
void ask_inspect(struct rig *rig, struct asked *asked, const char *name);
void ask_count(struct rig *rig, struct asked *asked, const char *name, enum store_count what,
               int64_t number);
void ask_list(struct rig *rig, struct asked *asked, const char *prefix, size_t limit);
void ask_examine(struct rig *rig, struct asked *asked);
/* Renews holds of operations that were prepared by make_acquire. */
void ask_renew(struct rig *rig, struct asked *asked, struct asked *const *holds, size_t count);

/* Prepares an operation without submitting it; for rig_submit. */
void make_acquire(struct asked *asked, const char *name, unsigned flags);
/* Makes an ACQUIRE ask for 1 of 5 permits. */
void make_share(struct asked *asked);

/* Frees what the store left in it, so that it can be used again. */
void asked_clear(struct asked *asked);

#endif
