/* Waiting for conditions that no call of the library waits for: look at the store, pause, look
 * again.
 *
 * Pauses grow to a second. A pause ends early when the store announces a change of the lock, if the
 * store can do that and the client is not watching already: a client has one watch at a time. It
 * ends with an error when the client is cancelled or closed, or the time is up. A store that is
 * away is asked again until then; without a limit, for ten seconds if it has never answered. */
#ifndef RECIPES_WAITING_H
#define RECIPES_WAITING_H

#include <holdfast/holdfast.h>
#include <pthread.h>
#include <stdbool.h>

struct waiting {
    hf_client *client;
    const char *lock;           /* whose changes end a pause; NULL: none */
    int64_t until_ms;           /* CLOCK_BOOTTIME; INT64_MAX: no limit … */
    int64_t first_answer_by_ms; /* … but the store must have answered by then */
    int64_t pause_ms;           /* how long the next one is */
    bool once;                  /* wait_ms was 0: one look, however long the store takes */
    bool answered;              /* by the store, at least once */
    int failure;                /* of the last request, if the store was away; else HF_OK */
    char why[400];              /* the same for people */
    hf_call *anchor; /* pending from begin to end: it keeps the client's memory, and knows whether
                        the client was cancelled or closed, also between two requests */
    hf_call *watch;  /* or NULL */
    pthread_mutex_t mutex; /* for what follows: a callback sets it */
    hf_call *pause;        /* that the thread is in, or NULL */
    bool changed;          /* since the last pause started */
};

/* `lock` may be NULL. HF_OK, and then waiting_end must follow; or an error, with its text set. */
int waiting_begin(struct waiting *w, hf_client *client, const char *lock, int64_t wait_ms);
void waiting_end(struct waiting *w);

/* How long a request may take: what is left of the time, HF_FOREVER without a limit. */
int64_t waiting_left_ms(const struct waiting *w);

/* Looks up the lock. HF_OK; HF_PENDING if the store was away, so that it must be asked again; or an
 * error, with its text set. */
int waiting_inspect(struct waiting *w, const char *name, hf_locks **ret_locks);

/* Does an operation on a counter (`options` NULL: reads it). The same results, and HF_MISMATCH,
 * with the counter as it is. */
int waiting_count(struct waiting *w, const char *name, const hf_count_options *options,
                  hf_counter *ret_counter);

/* Pauses for `most_ms` at most. HF_OK: look again. Otherwise the error to return, with its text
 * set: HF_TIMEOUT, the failure of the last request if the store was away, HF_CANCELLED, … */
int waiting_pause(struct waiting *w, int64_t most_ms);

#endif
