/* What a look found: built by a store, read by a program; and built without memory. */
#include "check.h"
#include "store/locks.h"
#include "support/failing.h"

static const uint8_t id[16] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xff};

TEST(an_owner_id_in_full_is_the_client_and_the_attempt) {
    char owner[LOCKS_OWNER_SIZE];
    locks_format_owner(id, 0x2a, owner);
    CHECK_EQ_STR(owner, "0123456789abcdefff00000000000000-2a");
    locks_format_owner(id, 0, owner);
    CHECK_EQ_STR(owner, "0123456789abcdefff00000000000000-0");
    locks_format_owner(id, UINT64_MAX, owner);
    CHECK_EQ_STR(owner, "0123456789abcdefff00000000000000-ffffffffffffffff");
}

TEST(nothing_found_is_an_empty_list) {
    hf_locks *locks = locks_new();
    CHECK_EQ_INT(hf_locks_count(locks), 0);
    CHECK(!hf_locks_at(locks, 0));
    CHECK(!hf_locks_free(locks));
    CHECK_EQ_INT(hf_locks_count(NULL), 0);
    CHECK(!hf_locks_at(NULL, 0));
    CHECK(!hf_locks_free(NULL));
}

TEST(locks_are_there_in_the_order_in_which_they_were_added) {
    hf_locks *locks = locks_new();
    CHECK(locks_add(locks, "a", STORE_LOCK, STORE_ALL, 7));
    CHECK(locks_add(locks, "b", STORE_LOCK, STORE_ALL, 0));
    CHECK(locks_add(locks, "c", STORE_PERMITS, 5, 9));
    CHECK_EQ_INT(hf_locks_count(locks), 3);
    CHECK_EQ_STR(hf_locks_at(locks, 0)->name, "a");
    CHECK_EQ_INT(hf_locks_at(locks, 0)->kind, HF_EXCLUSIVE);
    CHECK_EQ_INT(hf_locks_at(locks, 0)->token, 7);
    CHECK_EQ_INT(hf_locks_at(locks, 0)->holder_count, 0);
    CHECK_EQ_INT(hf_locks_at(locks, 2)->kind, HF_PERMITS);
    CHECK_EQ_INT(hf_locks_at(locks, 2)->capacity, 5);
    CHECK(!hf_locks_at(locks, 3));
    hf_locks_free(locks);
}

TEST(a_party_is_copied_and_its_owner_abbreviated) {
    char host[] = "db1", command[] = "backup", label[] = "nightly";
    hf_party party = {.host = host,
                      .command = command,
                      .label = label,
                      .pid = 42,
                      .token = 7,
                      .weight = 1,
                      .since_ms = 1700000000000,
                      .left_ms = 900};
    hf_locks *locks = locks_new();
    CHECK(locks_add(locks, "a", STORE_LOCK, STORE_ALL, 7));
    CHECK(locks_add_party(locks, LOCKS_HOLDER, &party, id, 0x2a));
    host[0] = command[0] = label[0] = '?';
    const hf_lock_info *info = hf_locks_at(locks, 0);
    CHECK_EQ_INT(info->holder_count, 1);
    CHECK_EQ_INT(info->waiter_count, 0);
    const hf_party *holder = info->holders[0];
    CHECK_EQ_INT(holder->size, sizeof(hf_party));
    CHECK_EQ_STR(holder->owner, "01234567-2a");
    CHECK_EQ_STR(holder->host, "db1");
    CHECK_EQ_STR(holder->command, "backup");
    CHECK_EQ_STR(holder->label, "nightly");
    CHECK_EQ_INT(holder->pid, 42);
    CHECK_EQ_INT(holder->token, 7);
    CHECK_EQ_INT(holder->weight, 1);
    CHECK_EQ_INT(holder->since_ms, 1700000000000);
    CHECK_EQ_INT(holder->left_ms, 900);
    hf_locks_free(locks);
}

TEST(what_is_not_known_of_a_party_is_an_empty_string) {
    hf_locks *locks = locks_new();
    CHECK(locks_add(locks, "a", STORE_LOCK, STORE_ALL, 7));
    CHECK(locks_add_party(locks, LOCKS_WAITER, &(hf_party){.weight = 1}, id, 1));
    const hf_party *waiter = hf_locks_at(locks, 0)->waiters[0];
    CHECK_EQ_STR(waiter->host, "");
    CHECK_EQ_STR(waiter->command, "");
    CHECK_EQ_STR(waiter->label, "");
    hf_locks_free(locks);
}

TEST(parties_belong_to_the_lock_added_last_and_keep_their_order) {
    hf_locks *locks = locks_new();
    CHECK(locks_add(locks, "a", STORE_PERMITS, 9, 7));
    for (int64_t pid = 0; pid < 9; pid++) {
        hf_party party = {.pid = pid};
        CHECK(locks_add_party(locks, pid % 3 ? LOCKS_WAITER : LOCKS_HOLDER, &party, id, 1));
    }
    CHECK(locks_add(locks, "b", STORE_LOCK, STORE_ALL, 8));
    CHECK(locks_add_party(locks, LOCKS_HOLDER, &(hf_party){.pid = 99}, id, 1));
    const hf_lock_info *a = hf_locks_at(locks, 0), *b = hf_locks_at(locks, 1);
    CHECK_EQ_INT(a->holder_count, 3);
    CHECK_EQ_INT(a->waiter_count, 6);
    CHECK_EQ_INT(a->holders[2]->pid, 6);
    CHECK_EQ_INT(a->waiters[0]->pid, 1);
    CHECK_EQ_INT(a->waiters[5]->pid, 8);
    CHECK_EQ_INT(b->holder_count, 1);
    CHECK_EQ_INT(b->holders[0]->pid, 99);
    hf_locks_free(locks);
}

TEST(the_last_break_is_copied_and_belongs_to_the_lock_added_last) {
    char by[] = "db1 pid 42 (tool)", reason[] = "it hangs";
    hf_locks *locks = locks_new();
    CHECK(locks_add(locks, "a", STORE_LOCK, STORE_ALL, 7));
    CHECK(locks_set_break(locks, &(struct locks_break){0}));
    CHECK(locks_add(locks, "b", STORE_LOCK, STORE_ALL, 9));
    CHECK(locks_set_break(
        locks, &(struct locks_break){1700000000000999, .token = 8, .by = by, .reason = reason}));
    by[0] = reason[0] = '?';
    const hf_lock_info *a = hf_locks_at(locks, 0), *b = hf_locks_at(locks, 1);
    CHECK_EQ_INT(a->broken_ms, 0);
    CHECK_EQ_INT(a->broken_token, 0);
    CHECK_EQ_STR(a->broken_by, "");
    CHECK_EQ_STR(a->broken_reason, "");
    CHECK_EQ_INT(b->broken_ms, 1700000000000);
    CHECK_EQ_INT(b->broken_token, 8);
    CHECK_EQ_STR(b->broken_by, "db1 pid 42 (tool)");
    CHECK_EQ_STR(b->broken_reason, "it hangs");
    hf_locks_free(locks);
}

TEST(the_last_break_names_host_and_process) {
    char by[LOCKS_BREAKER_SIZE], endless[2 * LOCKS_BREAKER_SIZE];
    struct store_identity who = {.host = "db1", .command = "tool", .pid = 42};
    locks_format_breaker(&who, by);
    CHECK_EQ_STR(by, "db1 pid 42 (tool)");
    memset(endless, 'x', sizeof(endless) - 1);
    endless[sizeof(endless) - 1] = 0;
    who.command = endless;
    locks_format_breaker(&who, by);
    CHECK_EQ_INT(strlen(by), LOCKS_BREAKER_SIZE - 1);
}

TEST(nodes_belong_to_the_lock_added_last_and_votes_to_the_node_added_last) {
    char name[] = "db1:6379", failure[] = "it sleeps";
    hf_locks *locks = locks_new();
    CHECK(locks_add(locks, "a", STORE_LOCK, STORE_ALL, 7));
    CHECK(locks_add(locks, "b", STORE_LOCK, STORE_ALL, 9));
    locks_set_quorum(locks, 2);
    CHECK(locks_add_node(locks, "db0:6379", NULL, 9));
    CHECK(locks_add_party(locks, LOCKS_VOTE, &(hf_party){.pid = 42, .token = 9}, id, 1));
    CHECK(locks_add_node(locks, name, failure, 0));
    name[0] = failure[0] = '?';
    const hf_lock_info *a = hf_locks_at(locks, 0), *b = hf_locks_at(locks, 1);
    CHECK_EQ_INT(a->quorum, 0);
    CHECK_EQ_INT(a->node_count, 0);
    CHECK_EQ_INT(b->quorum, 2);
    CHECK_EQ_INT(b->node_count, 2);
    CHECK_EQ_INT(b->holder_count, 0);
    CHECK_EQ_INT(b->nodes[0]->size, sizeof(hf_node));
    CHECK_EQ_STR(b->nodes[0]->failure, "");
    CHECK_EQ_INT(b->nodes[0]->token, 9);
    CHECK_EQ_INT(b->nodes[0]->holder_count, 1);
    CHECK_EQ_INT(b->nodes[0]->holders[0]->pid, 42);
    CHECK_EQ_STR(b->nodes[1]->name, "db1:6379");
    CHECK_EQ_STR(b->nodes[1]->failure, "it sleeps");
    CHECK_EQ_INT(b->nodes[1]->holder_count, 0);
    hf_locks_free(locks);
}

/* As much as memory lets it. */
static hf_locks *build(void) {
    hf_locks *locks = locks_new();
    if (!locks)
        return NULL;
    for (int i = 0; i < 3; i++) {
        if (!locks_add(locks, "a", STORE_LOCK, STORE_ALL, 7) ||
            !locks_set_break(locks, &(struct locks_break){1, .token = 1, .by = "h"}))
            return locks;
        for (int j = 0; j < 3; j++) {
            if (!locks_add_party(locks, LOCKS_HOLDER, &(hf_party){.host = "h"}, id, 1) ||
                !locks_add_party(locks, LOCKS_WAITER, &(hf_party){.host = "h"}, id, 2) ||
                !locks_add_node(locks, "n", NULL, 7) ||
                !locks_add_party(locks, LOCKS_VOTE, &(hf_party){.host = "h"}, id, 1) ||
                !locks_add_party(locks, LOCKS_VOTE, &(hf_party){.host = "h"}, id, 2))
                return locks;
        }
    }
    return locks;
}

TEST(a_list_built_without_enough_memory_is_sound) {
    while (fail_next(FAIL_ALL_AFTER)) {
        hf_locks *locks = build();
        size_t parties = 0;
        for (size_t j = 0; j < hf_locks_count(locks); j++) {
            const hf_lock_info *info = hf_locks_at(locks, j);
            for (size_t k = 0; k < info->holder_count; k++)
                CHECK_EQ_STR(info->holders[k]->host, "h");
            parties += info->holder_count + info->waiter_count;
            for (size_t k = 0; k < info->node_count; k++)
                parties += info->nodes[k]->holder_count;
        }
        hf_locks_free(locks);
        CHECK_EQ_INT(parties == 36, !fail_happened());
    }
}
