/* A real server and the model, asked the same: every request goes to both, and the replies must be the same bytes.
 *
 * Nothing is masked, as the real server's clock stands still too (frozen_clock.c), and its settings make defined what
 * depends on chance: keys that have expired are deleted only when somebody comes upon them, and hashes keep the
 * order of their fields whatever their size. One order is left: what SCAN finds is sorted before it is compared.
 * A subscriber at each hears what is published; that is compared after each request, too.
 *
 * Any difference fails the test, and says the seed, the step, the request and both replies. */
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

/* Both empty, at the same time. `clock` is the file that has the real server's. */
struct pair *pair_open(const char *url, const char *clock, uint64_t seed);
void pair_close(struct pair *pair);

int64_t pair_now_us(const struct pair *pair);
void pair_set_time(struct pair *pair, int64_t wall_us);

/* Both subscribers listen to this channel from now on. */
void pair_subscribe(struct pair *pair, const char *channel);

/* Asks both. What is returned stays until the next request. */
struct slice pair_ask(struct pair *pair, const struct request *request);
/* The same with the words of a text, between which there are blanks. */
struct slice pair_ask_words(struct pair *pair, const char *words);

/* Puts both into this mode. For LOADING there must be some hundred keys with large values, and the mode ends when
 * the server has loaded them. */
void pair_set_mode(struct pair *pair, enum model_mode mode);

/* Random numbers from the seed. */
uint64_t pair_random(struct pair *pair);
uint64_t pair_below(struct pair *pair, uint64_t limit);
bool pair_chance(struct pair *pair, unsigned per_cent);
#define pair_pick(pair, array) ((array)[pair_below(pair, sizeof(array) / sizeof((array)[0]))])

#endif
