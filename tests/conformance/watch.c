/* Watching: changes of locks are reported as they happen. */
#include "suite.h"

/* What a watch reported, in order. */
enum { SEEN_MAX = 4000, COARSE_MS = 20 /* how far off a clock that is cheap to read may be */ };

struct seen {
    hf_change_type type;
    int64_t at_ms;
    char name[NAME_SIZE], owner[64], label[32], by[128], reason[32];
    hf_kind kind;
    uint64_t token;
    int64_t pid;
    uint32_t weight;
    bool holds;
};

struct watcher {
    hf_client *client;
    hf_call *call;
    pthread_mutex_t mutex;
    size_t count, watching, missed;
    struct seen seen[SEEN_MAX];
};

static void see(const hf_change *change, void *arg) {
    struct watcher *w = arg;
    pthread_mutex_lock(&w->mutex);
    CHECK(change->size == sizeof *change && change->text != NULL);
    w->watching += change->type == HF_CHANGE_WATCHING;
    w->missed += change->type == HF_CHANGE_MISSED;
    if (change->lock && w->count++ < SEEN_MAX) { /* of all names there may be more */
        const hf_lock_info *lock = change->lock;
        struct seen *seen = &w->seen[w->count - 1];
        *seen = (struct seen){.type = change->type,
                              .at_ms = change->at_ms,
                              .kind = lock->kind,
                              .token = change->party->token,
                              .pid = change->party->pid,
                              .weight = change->party->weight,
                              .holds = lock->holder_count == 1 && lock->waiter_count == 0};
        snprintf(seen->name, sizeof seen->name, "%s", lock->name);
        snprintf(seen->owner, sizeof seen->owner, "%s", change->party->owner);
        snprintf(seen->label, sizeof seen->label, "%s", change->party->label);
        snprintf(seen->by, sizeof seen->by, "%s", lock->broken_by);
        snprintf(seen->reason, sizeof seen->reason, "%s", lock->broken_reason);
    }
    pthread_mutex_unlock(&w->mutex);
}

static size_t read_of(struct watcher *w, const size_t *field) {
    pthread_mutex_lock(&w->mutex);
    size_t value = *field;
    pthread_mutex_unlock(&w->mutex);
    return value;
}

static struct watcher *watch_on(hf_client *client, const char *prefix) {
    struct watcher *w = calloc(1, sizeof *w);
    CHECK(w != NULL);
    w->client = client;
    pthread_mutex_init(&w->mutex, NULL);
    CHECK_IS(noted(hf_watch_start(w->client, prefix, see, w, &w->call)), HF_OK);
    AWAIT(read_of(w, &w->watching) == 1);
    return w;
}

static struct watcher *watch(const char *prefix) {
    return watch_on(open_client(), prefix);
}

static void stop(struct watcher *w) {
    CHECK(hf_call_free(w->call) == NULL);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

/* The changes, once there are this many. */
static const struct seen *await_changes(struct watcher *w, size_t count) {
    AWAIT(read_of(w, &w->count) >= count);
    CHECK_EQ_INT(read_of(w, &w->count), count);
    CHECK_EQ_INT(read_of(w, &w->missed), 0);
    return w->seen;
}

BOTH_FORMS(what_is_taken_and_released_at_once_is_reported) {
    hf_client *client = open_client();
    const char *name = fresh_name("brief");
    struct watcher *w = watch(name);
    int64_t before_ms = wall_ms();
    hf_hold *hold = get(client, name, with_label(as_exclusive(0), "a label"));
    uint64_t token = hf_hold_token(hold);
    let_go(hold);
    const struct seen *seen = await_changes(w, 2);
    CHECK_EQ_INT(seen[0].type, HF_CHANGE_ACQUIRED);
    CHECK_EQ_INT(seen[1].type, HF_CHANGE_RELEASED);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ_STR(seen[i].name, name);
        CHECK_EQ_STR(seen[i].label, "a label");
        CHECK_EQ_STR(seen[i].owner, seen[0].owner);
        CHECK(seen[i].token == token && seen[i].pid == getpid() && seen[i].holds);
        CHECK_EQ_INT(seen[i].kind, HF_EXCLUSIVE);
        CHECK(seen[i].at_ms >= before_ms - COARSE_MS && seen[i].at_ms <= wall_ms() + COARSE_MS);
    }
    CHECK(seen[0].at_ms <= seen[1].at_ms);
    stop(w);
}

TEST(a_break_is_reported_with_its_time_by_whom_and_why) {
    hf_client *client = open_client();
    const char *name = fresh_name("broken");
    struct watcher *w = watch(name);
    hf_hold *hold = get(client, name, as_exclusive(0));
    uint64_t token = hf_hold_token(hold);
    int64_t before_ms = wall_ms();
    CHECK_IS(hf_break(open_client(), name, token, "it hangs"), HF_OK);
    int64_t after_ms = wall_ms();
    const struct seen *seen = await_changes(w, 2);
    CHECK_EQ_INT(seen[1].type, HF_CHANGE_BROKEN);
    CHECK(seen[1].token == token);
    CHECK_EQ_STR(seen[1].owner, seen[0].owner);
    CHECK_EQ_STR(seen[1].reason, "it hangs");
    CHECK(strstr(seen[1].by, " pid "));
    CHECK(seen[1].at_ms >= before_ms - COARSE_MS && seen[1].at_ms <= after_ms + COARSE_MS);
    hf_hold_free(hold);
    stop(w);
}

TEST(who_waits_and_gets_it_or_leaves_is_reported) {
    hf_client *client = open_client();
    const char *name = fresh_name("waiting");
    struct watcher *w = watch(name);
    hf_hold *hold = get(client, name, as_exclusive(0));
    hf_acquire_options options = as_exclusive(HF_FOREVER);
    hf_call *next, *leaves;
    CHECK_IS(hf_acquire_start(open_client(), name, &options, &next), HF_OK);
    await_changes(w, 2);
    CHECK_IS(hf_acquire_start(open_client(), name, &options, &leaves), HF_OK);
    await_changes(w, 3);
    CHECK(hf_call_free(leaves) == NULL);
    await_changes(w, 4);
    let_go(hold);
    CHECK_IS(hf_call_wait(next, PATIENCE_MS), HF_OK);
    const struct seen *seen = await_changes(w, 6);
    static const hf_change_type types[] = {HF_CHANGE_ACQUIRED, HF_CHANGE_WAITING,
                                           HF_CHANGE_WAITING,  HF_CHANGE_LEFT,
                                           HF_CHANGE_RELEASED, HF_CHANGE_ACQUIRED};
    for (int i = 0; i < 6; i++)
        CHECK_EQ_INT(seen[i].type, types[i]);
    CHECK(!seen[1].holds && seen[1].token == 0 && !seen[3].holds);
    CHECK_EQ_STR(seen[3].owner, seen[2].owner);
    CHECK_EQ_STR(seen[4].owner, seen[0].owner);
    CHECK_EQ_STR(seen[5].owner, seen[1].owner);
    hf_call_free(next);
    stop(w);
}

TEST(shares_are_reported) {
    hf_client *client = open_client();
    const char *name = fresh_name("shared");
    struct watcher *w = watch(name);
    hf_hold *one = get(client, name, as_shared(0)), *two = get(client, name, as_shared(0));
    let_go(one);
    let_go(two);
    const struct seen *seen = await_changes(w, 4);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ_INT(seen[i].type, i < 2 ? HF_CHANGE_ACQUIRED : HF_CHANGE_RELEASED);
        CHECK_EQ_INT(seen[i].kind, HF_SHARED);
        CHECK_EQ_STR(seen[i].owner, seen[i % 2].owner);
        CHECK(seen[i].token == seen[i % 2].token && seen[i].weight == 1);
    }
    CHECK(strcmp(seen[0].owner, seen[1].owner) != 0);
    stop(w);
}

TEST(permits_are_reported) {
    hf_client *client = open_client();
    const char *name = fresh_name("permits");
    struct watcher *w = watch(name);
    hf_hold *hold = get(client, name, as_permits(2, 5, 0));
    let_go(hold);
    const struct seen *seen = await_changes(w, 2);
    CHECK(seen[0].kind == HF_PERMITS && seen[0].weight == 2);
    CHECK(seen[1].type == HF_CHANGE_RELEASED && seen[1].weight == 2);
    stop(w);
}

TEST(a_thousand_changes_arrive_in_their_order) {
    hf_client *client = open_client();
    const char *name = fresh_name("many");
    struct watcher *w = watch(name);
    size_t pairs = (size_t)times(500);
    for (size_t i = 0; i < pairs; i++)
        let_go(get(client, name, as_exclusive(0)));
    const struct seen *seen = await_changes(w, 2 * pairs);
    for (size_t i = 0; i < 2 * pairs; i++) {
        CHECK_EQ_INT(seen[i].type, i % 2 ? HF_CHANGE_RELEASED : HF_CHANGE_ACQUIRED);
        CHECK(i == 0 ||
              (i % 2 ? seen[i].token == seen[i - 1].token : seen[i].token > seen[i - 1].token));
    }
    stop(w);
}

TEST(each_of_two_watchers_sees_its_own_names) {
    hf_client *client = open_client();
    char name[2 * NAME_SIZE];
    const char *a = fresh_name("a"), *b = fresh_name("b");
    struct watcher *of_a = watch(a), *of_all = watch(NULL);
    snprintf(name, sizeof name, "%s/x", a);
    let_go(get(client, b, as_exclusive(0)));
    let_go(get(client, name, as_exclusive(0)));
    const struct seen *seen = await_changes(of_a, 2);
    CHECK(strstr(seen[0].name, a) && strstr(seen[1].name, a));
    AWAIT(read_of(of_all, &of_all->count) >= 4);
    stop(of_a);
    stop(of_all);
}

TEST(a_watch_ends_when_it_is_cancelled_and_another_can_begin) {
    hf_client *client = open_client(), *watching = open_client();
    const char *first = fresh_name("first"), *second = fresh_name("second");
    struct watcher *w = watch_on(watching, first), *next;
    hf_call *call = NULL;
    CHECK_IS(hf_watch_start(watching, second, see, w, &call), HF_BAD_ARGUMENT);
    CHECK_IS(hf_call_status(w->call), HF_PENDING);
    CHECK_IS(hf_call_cancel(w->call), HF_OK);
    CHECK_IS(hf_call_wait(w->call, PATIENCE_MS), HF_CANCELLED);
    next = watch_on(watching, second);
    let_go(get(client, first, as_exclusive(0)));
    let_go(get(client, second, as_exclusive(0)));
    await_changes(next, 2);
    CHECK_EQ_INT(read_of(w, &w->count), 0);
    stop(w);
    stop(next);
}

TEST(a_client_that_is_closed_ends_its_watch) {
    hf_client *watching = open_client();
    struct watcher *w = watch_on(watching, fresh_name("closed"));
    close_client(watching);
    CHECK_IS(hf_call_status(w->call), HF_CLOSED);
    stop(w);
}

TEST(a_store_that_does_not_push_refuses_to_watch) {
    hf_client *client = open_client();
    struct watcher w = {0};
    CHECK_IS(noted(hf_watch_start(client, NULL, see, &w, &w.call)), HF_UNSUPPORTED);
    CHECK(strstr(failure, "does not announce changes"));
    CHECK(w.call == NULL);
}
