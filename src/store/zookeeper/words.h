/* Four-letter words: what the members of an ensemble tell anybody who asks about themselves. Each
 * word needs a separate connection. By default a server answers only "srvr". */
#ifndef ZOOKEEPER_WORDS_H
#define ZOOKEEPER_WORDS_H

#include "store/zookeeper/zookeeper.h"

enum words_word { WORDS_SRVR, WORDS_CONF, WORDS_COUNT };

struct words_answer {
    struct words *words;
    struct world_peer peer;
    struct net_wire wire;
    enum words_word word;
    bool is_over;
    char text[4096]; /* what it answered, cut to this size; "": nothing */
    size_t size;
};

struct words {
    struct world *world;
    struct zk_task *task; /* the task that waits for them; NULL: none */
    struct world_timer timer;
    struct words_answer *answers;
    size_t count, left;
};

/* Part of a step of this task (task.c): asks each member each word, all at once. The task continues
 * when all have answered, or half its time is over. */
void words_ask(struct words *words, struct zk_task *task);
/* The task no longer waits for them: it fails. */
void words_cancel(struct words *words);
void words_drop(struct words *words);

/* What a member answered; "": nothing. */
const char *words_of(const struct words *words, size_t member, enum words_word word);
/* The number after a key at the beginning of a line; -1: there is none. */
int64_t words_number(const char *text, const char *key);

#endif
