#include "store/sql/names.h"

#include "base/map.h"

#include <string.h>

enum { BITS = 64 * SQL_NAMES_WORDS };

static bool has_bit(const struct sql_names *names, uint64_t bit) {
    return names->words[bit / 64 % SQL_NAMES_WORDS] >> bit % 64 & 1;
}

static void set_bit(struct sql_names *names, uint64_t bit) {
    names->words[bit / 64 % SQL_NAMES_WORDS] |= UINT64_C(1) << bit % 64;
}

bool sql_names_has(const struct sql_names *names, const char *name) {
    uint64_t hash = map_hash(name, strlen(name), 0);
    return has_bit(names, hash) && has_bit(names, hash / BITS);
}

bool sql_names_add(struct sql_names *names, const char *name) {
    uint64_t hash = map_hash(name, strlen(name), 0);
    bool is_new = !sql_names_has(names, name);
    set_bit(names, hash);
    set_bit(names, hash / BITS);
    return is_new;
}
