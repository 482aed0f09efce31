/* Leader election. The leader is the holder of an exclusive lock, so to campaign is to acquire the
 * lock, and to resign is to release it. All that is left for the recipe is to observe who leads.
 *
 * hf_observe compares with a token, not with what it saw last. So it keeps no state between two
 * calls, and no change of leaders is missed because nobody was in the call when it happened. */
#include "recipes/waiting.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* A holder without a token is not a client of holdfast: nobody was elected. */
static int read_leader(hf_locks *locks, hf_leader *ret) {
    const hf_lock_info *lock = hf_locks_at(locks, 0);
    *ret = (hf_leader)HF_LEADER_INIT;
    if (!lock || lock->holder_count == 0)
        return HF_OK;
    if (lock->kind != HF_EXCLUSIVE)
        return error_set(HF_WRONG_KIND, "\"%s\" is shared or has permits: it has no leader",
                         lock->name);
    const hf_party *holder = lock->holders[0];
    if (holder->token == 0)
        return HF_OK;
    ret->token = holder->token;
    ret->since_ms = holder->since_ms;
    ret->left_ms = holder->left_ms;
    ret->pid = holder->pid;
    snprintf(ret->host, sizeof(ret->host), "%s", holder->host);
    snprintf(ret->value, sizeof(ret->value), "%s", holder->label);
    return HF_OK;
}

static int look(struct waiting *w, const char *name, hf_leader *ret_leader) {
    hf_locks *locks;
    int r = waiting_inspect(w, name, &locks);
    if (r < 0)
        return r;
    r = read_leader(locks, ret_leader);
    hf_locks_free(locks);
    return r;
}

/* No change is announced when the lease of a dead leader ends, so that is the time to look
 * again. */
static int64_t until_lease_ends_ms(const hf_leader *leader) {
    return leader->token && leader->left_ms >= 0 ? leader->left_ms + 1 : INT64_MAX;
}

static int observe(struct waiting *w, const char *name, uint64_t known, hf_leader *ret_leader) {
    for (;;) {
        hf_leader leader = HF_LEADER_INIT;
        int r = look(w, name, &leader);
        if (r == HF_OK && leader.token != known) {
            leader.size = ret_leader->size;
            memcpy(ret_leader, &leader,
                   leader.size < sizeof(leader) ? leader.size : sizeof(leader));
            return HF_OK;
        }
        if (r == HF_OK || r == HF_PENDING)
            r = waiting_pause(w, until_lease_ends_ms(&leader));
        if (r < 0)
            return r;
    }
}

int hf_observe(hf_client *client, const char *name, uint64_t known_token, int64_t wait_ms,
               hf_leader *ret_leader) {
    if (!ret_leader || ret_leader->size < sizeof(ret_leader->size))
        return error_set(HF_BAD_ARGUMENT, "ret_leader is NULL, or its size is not set");
    struct waiting waiting;
    int r = waiting_begin(&waiting, client, name, wait_ms);
    if (r < 0)
        return r;
    r = observe(&waiting, name, known_token, ret_leader);
    waiting_end(&waiting);
    return r;
}
