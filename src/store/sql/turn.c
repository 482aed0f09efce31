#include "store/sql/turn.h"

#include "base/map.h"

#include <string.h>

/* ---- Names ----
 *
 * A set that may seem to contain names that it does not: a Bloom filter with two bits for each
 * name. With 100 names in it, about one in 7,000 others seems to be in it; its request is then sent
 * alone without need. */

enum { WORDS = 256, BITS = 64 * WORDS };

struct names {
    uint64_t words[WORDS];
};

static uint64_t hash_of(const struct store_op *op) {
    return map_hash(op->name, strlen(op->name), 0);
}

static bool has_bit(const struct names *names, uint64_t bit) {
    return names->words[bit / 64 % WORDS] >> bit % 64 & 1;
}

static void set_bit(struct names *names, uint64_t bit) {
    names->words[bit / 64 % WORDS] |= UINT64_C(1) << bit % 64;
}

static bool has(const struct names *names, uint64_t hash) {
    return has_bit(names, hash) && has_bit(names, hash / BITS);
}

static void add(struct names *names, uint64_t hash) {
    set_bit(names, hash);
    set_bit(names, hash / BITS);
}

/* ---- Turns ---- */

static void find_contended(const struct list *requests, sql_op_of *op_of, struct names *contended) {
    struct names seen = {0};
    list_each(node, requests) {
        uint64_t hash = hash_of(op_of(node));
        if (has(&seen, hash))
            add(contended, hash);
        add(&seen, hash);
    }
}

static void move_to(struct list *node, struct list *list) {
    list_remove(node);
    list_append(list, node);
}

void sql_turn_take(struct sql_turn *turn, struct list *waiting, sql_op_of *op_of) {
    struct names contended = {0};
    unsigned count = 0;
    list_init(&turn->acquires);
    list_init(&turn->releases);
    list_init(&turn->alone);
    list_each_safe(node, waiting) {
        if (op_of(node) && count++ < SQL_TURN_MAX)
            move_to(node, &turn->alone);
    }
    find_contended(&turn->alone, op_of, &contended);
    list_each_safe(node, &turn->alone) {
        const struct store_op *op = op_of(node);
        if (!has(&contended, hash_of(op)))
            move_to(node, op->type == STORE_ACQUIRE ? &turn->acquires : &turn->releases);
    }
}
