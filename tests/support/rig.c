#include "support/rig.h"

#include "base/url.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

extern const struct store_driver holdfast_store_driver;

static struct rig *rig_of(struct store_host *host) {
    return container_of(host, struct rig, host);
}

static void completed(struct store_host *host, struct store_op *op) {
    struct asked *asked = container_of(op, struct asked, op);
    assert(asked->rig == rig_of(host));
    assert(asked->completions == 0);
    assert(op->outcome >= STORE_DONE && op->outcome <= STORE_UNKNOWN);
    assert(op->outcome != STORE_REFUSED || op->reason < 0);
    asked->completions++;
}

static void wake(struct store_host *host, uint64_t seq) {
    struct rig *rig = rig_of(host);
    if (rig->woken_count++ < RIG_NEWS_MAX)
        rig->woken[rig->woken_count - 1] = seq;
}

static void forgot(struct store_host *host, store_concerns *concerns, void *context) {
    (void)host;
    if (concerns)
        concerns(context, "x");
}

static void gone(struct store_host *host, uint64_t seq) {
    struct rig *rig = rig_of(host);
    if (rig->gone_count++ < RIG_NEWS_MAX)
        rig->gone[rig->gone_count - 1] = seq;
}

static void check(struct store_host *host, uint64_t seq) {
    struct rig *rig = rig_of(host);
    if (rig->checked_count++ < RIG_NEWS_MAX)
        rig->checked[rig->checked_count - 1] = seq;
}

/* Only records what the change says. */
static void changed(struct store_host *host, const struct store_change *change) {
    struct rig *rig = rig_of(host);
    const hf_lock_info *lock = hf_locks_at(change->locks, 0);
    const hf_party *who = lock && lock->holder_count ? lock->holders[0]
                          : lock                     ? lock->waiters[0]
                                                     : NULL;
    if (rig->change_count++ < RIG_NEWS_MAX)
        rig->changes[rig->change_count - 1] = change->type;
    if (!who)
        snprintf(rig->change, sizeof(rig->change), "%s", change->text ? change->text : "");
    else
        snprintf(rig->change, sizeof(rig->change),
                 "%s at %" PRId64 ": %d %u of %u, %s %s %" PRId64 " %s, %s, token %" PRIu64
                 ", left %" PRId64 ", since %" PRId64 ", broken by %s\"%s\"",
                 lock->name, change->at_us, (int)lock->kind, who->weight, lock->capacity,
                 who->owner, who->host, who->pid, who->command, who->label, who->token,
                 who->left_ms, who->since_ms, lock->broken_by, lock->broken_reason);
    hf_locks_free(change->locks);
}

int rig_open_url(struct rig *rig, const char *text, char **ret_text) {
    *rig = (struct rig){.knows_scripts = true};
    *ret_text = NULL;
    rig->world = fake_world();
    if (!rig->world)
        return HF_NO_MEMORY;
    rig->host = (struct store_host){
        .world = rig->world,
        .identity = {.host = "here", .command = "test", .pid = 7},
        .wait_lease_us = 15000000,
        .max_lease_us = INT64_C(86400000000),
        .completed = completed,
        .wake = wake,
        .gone = gone,
        .check = check,
        .forgot = forgot,
        .changed = changed,
    };
    for (int i = 0; i < 16; i++)
        rig->host.identity.id[i] = (uint8_t)(i * 0x11);
    struct url url;
    const char *why;
    int r = url_parse(text, &url, &why);
    if (r < 0)
        return r;
    r = holdfast_store_driver.open(&rig->host, &url, &rig->store, ret_text);
    url_free(&url);
    return r;
}

void rig_open(struct rig *rig, const char *url) {
    char *text;
    int r = rig_open_url(rig, url, &text);
    if (r < 0)
        printf("# %s: %d %s\n", url, r, text ? text : "");
    assert(r == HF_OK && rig->store);
}

void rig_close_store(struct rig *rig) {
    if (rig->store)
        holdfast_store_driver.close(rig->store);
    rig->store = NULL;
}

void rig_close(struct rig *rig) {
    rig_close_store(rig);
    if (rig->world)
        world_close(rig->world);
    rig->world = NULL;
}

void rig_submit(struct rig *rig, struct asked *asked) {
    asked->rig = rig;
    asked->completions = 0;
    holdfast_store_driver.submit(rig->store, &asked->op);
}

static void ask(struct rig *rig, struct asked *asked) {
    rig_submit(rig, asked);
    fake_settle(rig->world);
}

static void make(struct asked *asked, enum store_op_type type, const char *name) {
    static uint64_t seq;
    seq++;
    *asked = (struct asked){.op = {.type = type, .name = name, .seq = seq}};
    list_init(&asked->op.link);
}

void make_acquire(struct asked *asked, const char *name, unsigned flags) {
    make(asked, STORE_ACQUIRE, name);
    asked->op.kind = STORE_LOCK;
    asked->op.flags = (uint8_t)flags;
    asked->op.capacity = asked->op.weight = STORE_ALL;
    asked->op.lease_us = 30000000;
    asked->op.label = "a label";
}

void make_share(struct asked *asked) {
    asked->op.kind = STORE_PERMITS;
    asked->op.capacity = 5;
    asked->op.weight = 1;
}

void ask_acquire(struct rig *rig, struct asked *asked, const char *name, unsigned flags) {
    make_acquire(asked, name, flags);
    ask(rig, asked);
}

void ask_release(struct rig *rig, struct asked *asked, const char *name) {
    make(asked, STORE_RELEASE, name);
    ask(rig, asked);
}

void rig_join(struct rig *rig, void (*freed)(struct store_host *host, const char *name)) {
    char *text = NULL;
    rig->host.max_lease_us = 60000000;
    rig->set = (struct store_set){.name = "test/3/2/60000", .freed = freed};
    int r = holdfast_store_driver.voting->join(rig->store, &rig->set, &text);
    assert(r == HF_OK);
}

void ask_vote(struct rig *rig, struct asked *asked, enum store_vote_type type, uint64_t token) {
    make_acquire(asked, "x", 0);
    asked->rig = rig;
    asked->vote.type = type;
    asked->vote.token = token;
    holdfast_store_driver.voting->vote(rig->store, &asked->vote);
    fake_settle(rig->world);
}

void ask_give_back(struct rig *rig, struct asked *asked, const char *name) {
    make(asked, STORE_RELEASE, name);
    asked->rig = rig;
    holdfast_store_driver.voting->give_back(rig->store, &asked->op);
    fake_settle(rig->world);
}

void ask_break(struct rig *rig, struct asked *asked, const char *name, uint64_t token) {
    make(asked, STORE_BREAK, name);
    asked->op.token = token;
    asked->op.label = "why not";
    ask(rig, asked);
}

void ask_inspect(struct rig *rig, struct asked *asked, const char *name) {
    make(asked, STORE_INSPECT, name);
    ask(rig, asked);
}

void ask_count(struct rig *rig, struct asked *asked, const char *name, enum store_count what,
               int64_t number) {
    make(asked, STORE_COUNT, name);
    asked->op.kind = (uint8_t)what;
    asked->op.number = number;
    ask(rig, asked);
}

void ask_list(struct rig *rig, struct asked *asked, const char *prefix, size_t limit) {
    make(asked, STORE_LIST, prefix);
    asked->op.limit = limit;
    ask(rig, asked);
}

void ask_examine(struct rig *rig, struct asked *asked) {
    make(asked, STORE_EXAMINE, NULL);
    ask(rig, asked);
}

void ask_renew(struct rig *rig, struct asked *asked, struct asked *const *holds, size_t count) {
    make(asked, STORE_RENEW, NULL);
    assert(count <= sizeof(asked->renewals) / sizeof(asked->renewals[0]));
    for (size_t i = 0; i < count; i++)
        asked->renewals[i] = (struct store_renewal){.of = holds[i] ? &holds[i]->op : NULL,
                                                    .lease_us = asked->op.lease_us};
    asked->op.renewals = asked->renewals;
    asked->op.renewal_count = count;
    ask(rig, asked);
}

void asked_clear(struct asked *asked) {
    bool looked = asked->op.type == STORE_INSPECT || asked->op.type == STORE_LIST;
    if (looked && asked->completions && asked->op.outcome == STORE_DONE)
        hf_locks_free(asked->op.locks);
    if (asked->op.type == STORE_EXAMINE && asked->completions && asked->op.outcome == STORE_DONE)
        hf_examination_free(asked->op.examination);
    free(asked->op.text);
    *asked = (struct asked){.completions = 0};
}
