/* Rules of the lock model that several stores share. */
#include "base/error.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdbool.h>

int store_next_token(uint64_t counter, bool repeats, uint64_t floor, uint64_t base,
                     int64_t server_wall_us, uint64_t *ret_token, char **ret_text) {
    uint64_t clock = server_wall_us > 0 ? (uint64_t)server_wall_us : 0;
    uint64_t limit = (clock > base ? clock : base) + STORE_FLOOR_AHEAD_US;
    if (floor > limit) {
        if (!counter) {
            *ret_text = error_format("the client's clock proposes the token %" PRIu64
                                     ", more than a day ahead of the store's clock",
                                     floor);
            return HF_CLOCK;
        }
        floor = limit;
    }
    uint64_t token = repeats ? counter : counter + 1;
    if (token < floor)
        token = floor;
    if (token < base)
        token = base;
    if (token >= STORE_TOKEN_LIMIT) {
        *ret_text = error_format("the name has used up its tokens, at %" PRIu64, token);
        return HF_CLOCK;
    }
    *ret_token = token;
    return HF_OK;
}

char *store_describe_kind(enum store_kind kind, uint32_t capacity) {
    return kind == STORE_LOCK ? error_format("it is a lock")
                              : error_format("it is permits out of %" PRIu32, capacity);
}
