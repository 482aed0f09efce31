/* A real server and the model side by side: every request goes to both, and the replies must
 * be the same bytes.
 *
 * Nothing is masked. The real server's clock also stands still (frozen_clock.c), and its settings
 * leave nothing to chance: expired keys are deleted only when a request finds them, and hashes keep
 * the order of their fields at any size. One order remains: the keys that SCAN finds are sorted
 * before they are compared. Each server has a subscriber, whose messages are also compared after
 * each request.
 *
 * Any difference fails the test, which prints the seed, the step, the request and both
 * replies. */
#ifndef MODEL_PAIR_H
#define MODEL_PAIR_H

#include "sim/redis/bytes.h"
#include "sim/redis/redis.h"

enum { WORDS_MOST = 64 };

/* A request that is being made. */
struct request {
    struct text bytes;
    size_t ends[WORDS_MOST], count;
};

void request_start(struct request *request, const char *command);
void request_add(struct request *request, const void *bytes, size_t size);
void request_format(struct request *request, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

struct pair;

/* Makes both empty and sets the same time. `clock` is the file with the real server's time. */
struct pair *pair_open(const char *url, const char *clock, uint64_t seed);
void pair_close(struct pair *pair);

int64_t pair_now_us(const struct pair *pair);
void pair_set_time(struct pair *pair, int64_t wall_us);

/* Both subscribers listen to this channel from now on. */
void pair_subscribe(struct pair *pair, const char *channel);

/* Asks both. The reply is valid until the next request. */
struct slice pair_ask(struct pair *pair, const struct request *request);
/* The same, with the words of a text that are separated by blanks. */
struct slice pair_ask_words(struct pair *pair, const char *words);

/* Puts both into this mode. LOADING needs a few hundred keys with large values, and ends when the
 * server has loaded them. */
void pair_set_mode(struct pair *pair, enum model_mode mode);

/* Random numbers from the seed. */
uint64_t pair_random(struct pair *pair);
uint64_t pair_below(struct pair *pair, uint64_t limit);
bool pair_chance(struct pair *pair, unsigned per_cent);
#define pair_pick(pair, array) ((array)[pair_below(pair, sizeof(array) / sizeof((array)[0]))])

#endif
