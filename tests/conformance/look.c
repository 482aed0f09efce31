/* Looking: who holds and who waits, and the list of names in pages. */
#include "suite.h"

static int64_t wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

static hf_client *open_as(const char *command) {
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    options.command = command;
    options.wait_lease_ms = WAIT_LEASE_MS;
    return open_client_with(&options);
}

static void check_party(const hf_party *party, const char *command, const char *label,
                        uint32_t weight, int64_t most_left_ms) {
    CHECK(party->size >= sizeof *party);
    CHECK_EQ_STR(party->command, command);
    CHECK_EQ_STR(party->label, label);
    CHECK_EQ_INT(party->weight, weight);
    CHECK_EQ_INT(party->pid, getpid());
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    CHECK_EQ_STR(party->host, host);
    CHECK(strlen(party->owner) > 0);
    CHECK(party->since_ms > wall_ms() - 60000 && party->since_ms <= wall_ms());
    CHECK(party->left_ms > 0 && party->left_ms <= most_left_ms);
}

static const hf_party *holder_with(const hf_lock_info *info, uint64_t token) {
    for (size_t i = 0; i < info->holder_count; i++)
        if (info->holders[i]->token == token)
            return info->holders[i];
    test_fail(__FILE__, __LINE__, "no holder has the token %" PRIu64, token);
}

BOTH_FORMS(a_look_tells_who_holds_and_who_waits) {
    hf_client *a = open_as("program-a"), *b = open_as("program-b");
    const char *name = fresh_name("look");
    hf_hold *one = get(a, name, with_label(as_permits(2, 5, 0), "first"));
    hf_hold *two = get(b, name, with_label(as_permits(3, 5, 0), "second"));
    struct ask *third = queue_up(b, name, with_label(as_permits(4, 5, HF_FOREVER), "third"), 1);
    struct ask *fourth = queue_up(a, name, as_permits(1, 5, HF_FOREVER), 2);
    hf_locks *locks;
    CHECK_IS(inspect(a, name, &locks), HF_OK);
    CHECK_EQ_INT(hf_locks_count(locks), 1);
    CHECK(hf_locks_at(locks, 1) == NULL);
    const hf_lock_info *info = hf_locks_at(locks, 0);
    CHECK(info->size >= sizeof *info);
    CHECK_EQ_STR(info->name, name);
    CHECK_EQ_INT(info->kind, HF_PERMITS);
    CHECK_EQ_INT(info->capacity, 5);
    CHECK_EQ_INT(info->token, hf_hold_token(two));
    CHECK_EQ_INT(info->holder_count, 2);
    CHECK_EQ_INT(info->waiter_count, 2);
    const hf_party *first = holder_with(info, hf_hold_token(one));
    check_party(first, "program-a", "first", 2, LONG_LEASE_MS);
    const hf_party *second = holder_with(info, hf_hold_token(two));
    check_party(second, "program-b", "second", 3, LONG_LEASE_MS);
    check_party(info->waiters[0], "program-b", "third", 4, WAIT_LEASE_MS);
    check_party(info->waiters[1], "program-a", "", 1, WAIT_LEASE_MS);
    CHECK_EQ_INT(info->waiters[0]->token, 0);
    CHECK(strcmp(info->waiters[0]->owner, second->owner) != 0);
    hf_locks_free(locks);
    let_go(one);
    let_go(two);
    let_go(granted(third));
    let_go(granted(fourth));
}

BOTH_FORMS(a_look_tells_the_kind) {
    hf_client *a = open_client();
    const struct {
        hf_acquire_options options;
        hf_kind kind;
    } cases[] = {{as_exclusive(0), HF_EXCLUSIVE},
                 {as_shared(0), HF_SHARED},
                 {as_permits(1, 2, 0), HF_PERMITS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *name = fresh_name("kind");
        hf_hold *hold = get(a, name, cases[i].options);
        hf_locks *locks;
        CHECK_IS(inspect(a, name, &locks), HF_OK);
        CHECK_EQ_INT(hf_locks_at(locks, 0)->kind, cases[i].kind);
        hf_locks_free(locks);
        let_go(hold);
    }
}

BOTH_FORMS(a_look_at_what_nobody_has_finds_nobody) {
    hf_client *a = open_client();
    hf_locks *locks;
    CHECK_IS(inspect(a, fresh_name("never"), &locks), HF_OK);
    CHECK_EQ_INT(hf_locks_count(locks), 0);
    hf_locks_free(locks);
    const char *name = fresh_name("released");
    let_go(get(a, name, as_exclusive(0)));
    CHECK_IS(inspect(a, name, &locks), HF_OK);
    for (size_t i = 0; i < hf_locks_count(locks); i++) {
        CHECK_EQ_INT(hf_locks_at(locks, i)->holder_count, 0);
        CHECK_EQ_INT(hf_locks_at(locks, i)->waiter_count, 0);
    }
    hf_locks_free(locks);
}

static size_t count_listed(hf_client *client, const char *prefix) {
    hf_locks *locks;
    CHECK_IS(list(client, prefix, NULL, 10, &locks), HF_OK);
    size_t count = hf_locks_count(locks);
    hf_locks_free(locks);
    return count;
}

BOTH_FORMS(an_ended_lease_is_not_shown_as_held) {
    hf_client *a = open_client();
    const char *name = fresh_name("ended");
    hf_hold *hold = get(a, name, for_only(as_exclusive(0), 200));
    AWAIT(hf_check(hold, 0) == HF_LOST);
    AWAIT(holders(a, name) == 0);
    AWAIT(count_listed(a, name) == 0); /* each node of a set sees it end at a different time */
    hf_hold_free(hold);
}

/* ---- Lists -------------------------------------------------------------------------------- */

/* Walks through all pages and checks that they are exactly `names`. */
static void check_list(hf_client *client, const char *prefix, size_t limit, char *const *names,
                       size_t count) {
    char after[256] = "";
    size_t seen = 0;
    for (;;) {
        hf_locks *locks;
        CHECK_IS(list(client, prefix, seen ? after : NULL, limit, &locks), HF_OK);
        size_t page = hf_locks_count(locks);
        CHECK(page <= limit);
        for (size_t i = 0; i < page; i++, seen++) {
            const hf_lock_info *info = hf_locks_at(locks, i);
            CHECK(seen < count);
            CHECK_EQ_STR(info->name, names[seen]);
            CHECK_EQ_INT(info->holder_count, 1);
            snprintf(after, sizeof after, "%s", info->name);
        }
        hf_locks_free(locks);
        if (page == 0)
            break;
    }
    CHECK_EQ_INT(seen, count);
}

TEST(a_list_comes_in_pages_in_the_order_of_the_names) {
    hf_client *a = open_client(), *b = open_client();
    enum { COUNT = 120 };
    const char *prefix = fresh_name("pages");
    char *names[COUNT];
    hf_hold *holds[COUNT];
    for (int i = 0; i < COUNT; i++)
        CHECK(asprintf(&names[i], "%s/%03d", prefix, i) > 0);
    for (int i = 0; i < COUNT; i++) { /* 7 and 120 have no common divisor: each comes once */
        int index = i * 7 % COUNT;
        holds[index] = get(i % 2 ? a : b, names[index], as_exclusive(0));
    }
    check_list(a, prefix, 24, names, COUNT);
    check_list(b, prefix, 1000, names, COUNT);
    check_list(a, prefix, 49, names, COUNT);
    for (int i = 0; i < COUNT; i++) /* free locks are not in the list */
        if (i >= 3)
            let_go(holds[i]);
    check_list(a, prefix, 1, names, 3);
    for (int i = 0; i < 3; i++)
        let_go(holds[i]);
    check_list(a, prefix, 50, names, 0);
    for (int i = 0; i < COUNT; i++)
        free(names[i]);
}

BOTH_FORMS(a_list_without_prefix_has_everything) {
    hf_client *a = open_client();
    const char *name = fresh_name("all");
    hf_hold *hold = get(a, name, as_exclusive(0));
    const char *prefixes[] = {"", NULL};
    for (size_t i = 0; i < 2; i++) {
        char after[256] = "";
        bool is_found = false;
        for (size_t count = 1; count > 0;) {
            hf_locks *locks;
            CHECK_IS(list(a, prefixes[i], *after ? after : NULL, 1000, &locks), HF_OK);
            count = hf_locks_count(locks);
            for (size_t j = 0; j < count; j++) {
                const char *found = hf_locks_at(locks, j)->name;
                CHECK(strcmp(found, after) > 0);
                is_found |= strcmp(found, name) == 0;
                snprintf(after, sizeof after, "%s", found);
            }
            hf_locks_free(locks);
        }
        CHECK(is_found);
    }
    let_go(hold);
}

/* ---- Names -------------------------------------------------------------------------------- */

static void hold_all(hf_client *client, char *const *names, size_t count, hf_hold **ret_holds) {
    for (size_t i = 0; i < count; i++)
        ret_holds[i] = get(client, names[i], as_exclusive(0));
}

static void check_each_is_busy(hf_client *client, char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        CHECK_IS(attempt(client, names[i], as_exclusive(0)), HF_BUSY);
        CHECK_EQ_INT(holders(client, names[i]), 1);
    }
}

BOTH_FORMS(names_may_be_long_and_in_any_script) {
    hf_client *a = open_client(), *b = open_client();
    char longest[256], same_but_last[256], script[256];
    const char *base = fresh_name("long");
    memset(longest, 'x', 255);
    longest[255] = '\0';
    memcpy(longest, base, strlen(base));
    memcpy(same_but_last, longest, sizeof longest);
    same_but_last[254] = 'y';
    snprintf(script, sizeof script, "%s/注文/заказ/🔒 {1}", base);
    char *names[] = {script, longest, same_but_last};
    hf_hold *holds[3];
    hold_all(a, names, 3, holds);
    check_each_is_busy(b, names, 3);
    check_list(b, base, 10, names, 3);
    check_list(b, longest, 10, names + 1, 1);
    CHECK_EQ_STR(hf_hold_name(holds[1]), longest);
    for (size_t i = 0; i < 3; i++)
        let_go(holds[i]);
}

BOTH_FORMS(labels_are_shown_as_they_were_given) {
    hf_client *a = open_client();
    char label[256];
    for (int i = 0; i < 255; i++)
        label[i] = (char)(i + 1);
    label[255] = '\0';
    const char *name = fresh_name("label");
    hf_hold *hold = get(a, name, with_label(as_exclusive(0), label));
    hf_locks *locks;
    CHECK_IS(inspect(a, name, &locks), HF_OK);
    CHECK_EQ_STR(hf_locks_at(locks, 0)->holders[0]->label, label);
    hf_locks_free(locks);
    let_go(hold);
}
