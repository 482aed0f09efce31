/* The table of locks. */
#include "cli/lock_table.h"

#include "cli/look.h"
#include "cli/text.h"

#include <inttypes.h>
#include <string.h>

enum { WAITERS_COLUMN = 3 };

const struct table_column lock_columns[] = {
    {"NAME", .shrink = true},    {"KIND"},
    {"HOLDER", .shrink = true},  {"WAITERS", .right = true},
    {"HELD FOR", .right = true}, {"LEFT", .right = true},
    {"TOKEN", .right = true},
};

bool lock_table_add(struct table *table, const hf_lock_info *info) {
    char name[LOOK_NAME_SIZE], kind[40], who[LOOK_PARTY_SIZE + 40] = "-", waiters[24];
    char since[32] = "-", left[32] = "-", token[24] = "-";
    const hf_party *holder = look_first_holder(info);
    if (holder) {
        look_party(who, LOOK_PARTY_SIZE, holder);
        if (info->holder_count > 1)
            snprintf(who + strlen(who), 32, " +%zu", info->holder_count - 1);
        if (holder->since_ms)
            text_duration(since, sizeof(since), look_wall_ms() - holder->since_ms);
        if (holder->left_ms >= 0) /* -1: it has no end */
            text_duration(left, sizeof(left), holder->left_ms);
        snprintf(token, sizeof(token), "%" PRIu64, holder->token);
    } else if (info->quorum && info->waiter_count) {
        const hf_party *most = look_most_votes(info);
        int used = snprintf(who, sizeof(who), "%" PRIu32 " of %" PRIu32 " votes: ", most->votes,
                            info->quorum);
        look_party(who + used, LOOK_PARTY_SIZE, most);
    }
    snprintf(waiters, sizeof(waiters), "%zu", info->waiter_count);
    text_safe(name, sizeof(name), info->name);
    look_kind(kind, sizeof(kind), info);
    return table_add(table, (const char *[]){name, kind, who, waiters, since, left, token},
                     info->waiter_count ? WAITERS_COLUMN : -1);
}
