/* What a COUNT does (rule 13 of store.h), for stores that compute it in the client. If other
 * clients may change the counter meanwhile, the store reads the counter and the client's last
 * answer, calls counts_step, and writes both if neither has changed. */
#ifndef STORE_COUNTS_H
#define STORE_COUNTS_H

#include "store/store.h"

struct counts_number {
    bool exists;
    int64_t value;
};

/* How a COUNT ended, as its store remembers it. */
struct counts_answer {
    uint64_t seq;
    int reason;     /* an hf_error: it was refused; HF_OK: it was not */
    unsigned flags; /* STORE_ABSENT, STORE_MISMATCH */
    int64_t value;
    int64_t lease; /* the number of the counter's lease, in a store that has them; 0: none */
};

enum { COUNTS_NUMBER_SIZE = 24, COUNTS_ANSWER_SIZE = 100 };

/* What the operation makes of the counter, and its answer, in which `lease` is 0. */
struct counts_answer counts_step(const struct store_op *op, struct counts_number before,
                                 struct counts_number *ret_after);

/* A number in decimal digits. Reading fails if the bytes are not a number in exactly the form that
 * is written. */
bool counts_read_number(const void *bytes, size_t size, int64_t *ret_value);
void counts_write_number(int64_t value, char ret_text[COUNTS_NUMBER_SIZE]);

bool counts_read_answer(const void *bytes, size_t size, struct counts_answer *ret_answer);
void counts_write_answer(const struct counts_answer *answer, char ret_text[COUNTS_ANSWER_SIZE]);

/* Completes the operation with its answer. */
void counts_complete(struct store_host *host, struct store_op *op,
                     const struct counts_answer *answer, int64_t life_us);

#endif
