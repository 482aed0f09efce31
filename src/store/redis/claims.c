/* Acquire, renew, release, break, vote: operations become requests, and replies become outcomes.
 * The rules are in the scripts; nothing is decided here. */
#include "base/error.h"
#include "store/redis/greeting.h"
#include "store/redis/redis.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RENEWALS_AT_ONCE = 128, /* in one script: the server does nothing else while it runs */
    DAY_MS = 86400000
};

static void add_owner(struct redis *redis, uint64_t seq) {
    char *end = locks_put_seq(redis->owner + LOCKS_ID_SIZE, seq);
    command_add(&redis->command, redis->owner, (size_t)(end - redis->owner));
}

static void start_with_keys(struct redis *redis, enum redis_script_id script,
                            const struct store_op *op) {
    command_start_script(&redis->command, script, REDIS_COMPANIONS);
    command_add_keys(&redis->command, redis->prefix, op->name, REDIS_KEYS);
}

static void send_or_refuse(struct redis *redis, struct store_op *op, enum redis_script_id script,
                           redis_answered *answered) {
    struct redis_request *request = redis_new_request(redis, op, script, answered, NULL, 0);
    if (request)
        route_submit(redis, request);
    else
        store_refuse(redis->host, op, HF_NO_MEMORY, NULL);
}

/* ---- Acquire ---- */

static void format_kind(const struct store_op *op, char ret_kind[16]) {
    if (op->kind == STORE_PERMITS)
        snprintf(ret_kind, 16, "p%" PRIu32, op->capacity);
    else
        strcpy(ret_kind, "rw");
}

static char *describe_kind(const struct reply *kind) {
    if (kind->type != REPLY_STRING)
        return NULL;
    if (kind->text[0] == 'p')
        return store_describe_kind(STORE_PERMITS, (uint32_t)strtoul(kind->text + 1, NULL, 10));
    return store_describe_kind(STORE_LOCK, STORE_ALL);
}

/* A foreign lock without expiry (-1) may be freed at any time, or never: that counts as a long
 * time. */
static int64_t left_us(const struct reply *reply) {
    int64_t ms = reply_number(reply_at(reply, 1), 0), most_ms = INT64_C(1) << 50;
    return ms < 0 ? INT64_C(3600000000) : (ms < most_ms ? ms : most_ms) * 1000;
}

static bool read_token(const struct reply *reply, uint64_t *ret_token) {
    uint64_t token = 0;
    if (reply->type != REPLY_STRING || reply->size > 16)
        return false;
    for (size_t i = 0; i < reply->size; i++) {
        if (reply->text[i] < '0' || reply->text[i] > '9')
            return false;
        token = token * 10 + (uint64_t)(reply->text[i] - '0');
    }
    *ret_token = token;
    return token > 0 && token < STORE_TOKEN_LIMIT;
}

/* With wait_replicas, a grant counts only once that many replicas have it. WAIT is sent over the
 * connection of the grant, since it is about that connection's writes. If too few replicas have it,
 * the lock is released again, and the acquire is refused. */

struct waiting {
    struct store_op *op;
    uint64_t token, replicas;
};

static void released_again(struct redis *redis, struct redis_request *request,
                           const struct reply *reply, const char *why) {
    struct waiting *waiting = request->context;
    struct store_op *op = waiting->op;
    (void)why;
    op->text =
        error_format("%" PRIu64 " of the %" PRIu64 " replicas that wait_replicas asks for had "
                     "it after %" PRIu64 " ms, so it was released again",
                     waiting->replicas, redis->wait_replicas, redis->wait_timeout_ms);
    op->reason = HF_UNREACHABLE;
    bool is_gone = reply && reply->type == REPLY_INTEGER &&
                   (reply->integer || request->script == REDIS_RELEASE);
    redis_request_free(request);
    free(waiting);
    store_complete(redis->host, op, is_gone ? STORE_REFUSED : STORE_UNKNOWN);
}

static void start_release(struct redis *redis, const struct store_op *op, bool announced);

static void replicas_answered(struct redis *redis, struct redis_request *request,
                              const struct reply *reply, const char *why) {
    struct waiting *waiting = request->context;
    struct store_op *op = waiting->op;
    bool is_number = reply && reply->type == REPLY_INTEGER;
    waiting->replicas = is_number ? (uint64_t)reply->integer : 0;
    if (is_number && waiting->replicas < redis->wait_replicas) {
        redis_request_free(request);
        start_release(redis, op, redis->set);
        request = redis_new_request(redis, op, REDIS_RELEASE, released_again, waiting, 0);
        if (request) {
            route_submit(redis, request);
            return;
        }
        op->reason = HF_NO_MEMORY;
        store_complete(redis->host, op, STORE_UNKNOWN);
    } else if (is_number) {
        redis_request_free(request);
        op->token = waiting->token;
        store_complete(redis->host, op, STORE_DONE);
    } else {
        redis_explain(request, reply, why, &op->reason, &op->text);
        redis_request_free(request);
        store_complete(redis->host, op,
                       STORE_UNKNOWN); /* it was granted; which replicas have it is not known */
    }
    free(waiting);
}

static void wait_for_replicas(struct redis *redis, struct redis_link *via, struct store_op *op) {
    struct waiting *waiting = malloc(sizeof(*waiting));
    struct redis_request *request =
        waiting ? redis_new_wait(redis, op, replicas_answered, waiting) : NULL;
    if (!request) {
        free(waiting);
        op->reason = HF_NO_MEMORY;
        store_complete(redis->host, op, STORE_UNKNOWN);
        return;
    }
    *waiting = (struct waiting){.op = op, .token = op->token};
    link_submit(via, request);
}

/* The answers of acquire.lua, and of vote.lua as far as they are the same: a word, and what goes
 * with it. */

struct answer {
    struct redis *redis;
    struct store_op *op;
    const struct reply *reply;
    struct redis_link *via;
};

static const char *detail_of(const struct answer *a) {
    const struct reply *detail = reply_at(a->reply, 1);
    return detail->type == REPLY_STRING ? detail->text : "?";
}

/* The script ran, and what it did is not known. */
static void answered_nonsense(const struct answer *a) {
    a->op->reason = HF_BAD_STORE;
    store_complete(a->redis->host, a->op, STORE_UNKNOWN);
}

static void answered_done(const struct answer *a) {
    if (!read_token(reply_at(a->reply, 1), &a->op->token)) {
        answered_nonsense(a);
        return;
    }
    if (!(a->op->flags & STORE_KEEP)) /* its release may never come */
        redis_note_hold(a->redis, a->op);
    if (a->redis->wait_replicas)
        wait_for_replicas(a->redis, a->via, a->op);
    else
        store_complete(a->redis->host, a->op, STORE_DONE);
}

static void note_holder(const struct answer *a) {
    a->op->left_us = left_us(a->reply);
    a->op->flags |= reply_number(reply_at(a->reply, 2), 0) ? STORE_FOREIGN : 0;
}

static void answered_queued(const struct answer *a) {
    note_holder(a);
    a->op->flags |= reply_number(reply_at(a->reply, 3), 1) == 0 ? STORE_HEAD : 0;
    redis_subscribe(a->redis);
    store_complete(a->redis->host, a->op, STORE_QUEUED);
}

static void answered_busy(const struct answer *a) {
    note_holder(a);
    if (a->redis->set)
        redis_subscribe(a->redis);
    store_refuse(a->redis->host, a->op, HF_BUSY, NULL);
}

static void answered_kind(const struct answer *a) {
    store_refuse(a->redis->host, a->op, HF_WRONG_KIND, describe_kind(reply_at(a->reply, 1)));
}

static void answered_clock(const struct answer *a) {
    store_refuse(a->redis->host, a->op, HF_CLOCK,
                 error_format("the client's clock proposes the token %" PRIu64
                              ", more than a day ahead of the server's clock, %s",
                              a->op->floor, detail_of(a)));
}

static void answered_spent(const struct answer *a) {
    store_refuse(a->redis->host, a->op, HF_CLOCK,
                 error_format("the name has used up its tokens, at %s", detail_of(a)));
}

static const struct {
    const char *word;
    void (*handle)(const struct answer *answer);
} answers[] = {
    {"done", answered_done}, {"queued", answered_queued}, {"busy", answered_busy},
    {"kind", answered_kind}, {"clock", answered_clock},   {"spent", answered_spent},
};

static void acquire_answered(struct redis *redis, struct redis_request *request,
                             const struct reply *reply, const char *why) {
    struct answer answer = {redis, request->op, reply, request->via};
    if (!reply || reply->type != REPLY_ARRAY) {
        redis_fail(redis, request, reply, why);
        return;
    }
    if (request->script == REDIS_ACQUIRE && reply_is(reply_at(reply, 0), "done"))
        redis_note_watched(redis, request, reply_at(reply, 2));
    redis_request_free(request);
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        if (reply_is(reply_at(reply, 0), answers[i].word)) {
            answers[i].handle(&answer);
            return;
        }
    }
    answered_nonsense(&answer);
}

static void add_particulars(struct redis *redis, const struct store_op *op) {
    command_add_text(&redis->command, redis->particulars);
    if (op->label)
        command_append(&redis->command, op->label, strlen(op->label));
}

/* No lock has this key. If the prefix is empty, names of this form are refused. Any other K begins
 * with the prefix. This key cannot: the prefix would have to consist of opening braces, but one
 * that begins with a brace must also have a closing one. */
void redis_add_set_key(struct redis *redis) {
    command_add(&redis->command, "{", 1);
    command_append(&redis->command, redis->prefix, strlen(redis->prefix));
    command_append(&redis->command, "}.set", 5);
}

/* The refusals that only votes get. False: it is none of them. */
static bool refuse_vote(struct redis *redis, struct store_vote *vote, const struct reply *reply) {
    const struct reply *word = reply_at(reply, 0), *what = reply_at(reply, 1);
    const char *text = what->type == REPLY_STRING ? what->text : "?";
    if (reply_is(word, "lost"))
        store_refuse(redis->host, &vote->op, HF_NOT_YOURS, NULL);
    else if (reply_is(word, "below"))
        store_refuse(redis->host, &vote->op, HF_NOT_YOURS,
                     error_format("its token is now %s", text));
    else if (reply_is(word, "set"))
        store_refuse_vote(redis->host, vote, text, redis->set->name);
    else if (reply_is(word, "quarantine"))
        store_refuse(
            redis->host, &vote->op, HF_UNREACHABLE,
            error_format(
                "it is new or restarted, may have forgotten who holds locks, and will not vote for "
                "another %" PRId64 " ms",
                left_us(reply) / 1000));
    else
        return false;
    return true;
}

static void vote_answered(struct redis *redis, struct redis_request *request,
                          const struct reply *reply, const char *why) {
    struct store_vote *vote = container_of(request->op, struct store_vote, op);
    if (reply && reply_is(reply_at(reply, 0), "done"))
        vote->node_id = reply_number(reply_at(reply, 2), 0);
    if (reply && refuse_vote(redis, vote, reply))
        redis_request_free(request);
    else
        acquire_answered(redis, request, reply, why);
}

void redis_vote(struct redis *redis, struct store_vote *vote) {
    struct command *command = &redis->command;
    struct store_op *op = &vote->op;
    char kind[16];
    format_kind(op, kind);
    if (!redis->votes)
        redis_begin_to_vote(redis);
    command_start_script(command, REDIS_VOTE, REDIS_COMPANIONS + 1);
    command_add_keys(command, redis->prefix, op->name, REDIS_KEYS);
    redis_add_set_key(redis);
    add_owner(redis, op->seq);
    command_add_number(command, (uint64_t)op->lease_us / 1000);
    command_add_number(command, vote->type == STORE_GIVE ? op->floor : vote->token);
    command_add_number(command, vote->type == STORE_RETAKE ? vote->token : 0);
    command_add_number(command, redis->host->token_floor);
    command_add_text(command, vote->type == STORE_RAISE ? "1" : "0");
    command_add_text(command, kind);
    command_add_number(command, op->capacity);
    command_add_number(command, op->weight);
    add_particulars(redis, op);
    command_add_text(command, redis->set->name);
    command_add_number(command, (uint64_t)redis->host->max_lease_us / 1000);
    command_add_text(command, redis->set->founds ? "1" : "0");
    command_add_number(command, (uint64_t)redis->number++ + 1);
    send_or_refuse(redis, op, REDIS_VOTE, vote_answered);
}

void redis_acquire(struct redis *redis, struct store_op *op) {
    struct command *command = &redis->command;
    char kind[16];
    format_kind(op, kind);
    start_with_keys(redis, REDIS_ACQUIRE, op);
    add_owner(redis, op->seq);
    command_add_number(command, (uint64_t)op->lease_us / 1000);
    command_add_number(command,
                       op->flags & STORE_WAIT ? (uint64_t)redis->host->wait_lease_us / 1000 : 0);
    command_add_number(command, op->floor);
    command_add_number(command, redis->host->token_floor);
    command_add_text(command, op->flags & STORE_BARGE ? "1" : "0");
    command_add_text(command, kind);
    command_add_number(command, op->capacity);
    command_add_number(command, op->weight);
    add_particulars(redis, op);
    command_add_text(command, redis->channels);
    redis_add_watch_key(redis);
    send_or_refuse(redis, op, REDIS_ACQUIRE, acquire_answered);
}

/* ---- Release, break ---- */

static void start_release(struct redis *redis, const struct store_op *op, bool announced) {
    redis_forget_hold(redis, op);
    start_with_keys(redis, REDIS_RELEASE, op);
    add_owner(redis, op->seq);
    command_add_text(&redis->command, redis->channels);
    command_add_text(&redis->command, announced ? op->name : "");
    redis_add_watch_key(redis);
}

/* Changes a request before it is sent again. If there is no memory, it stays the same. */
static void replace_script(struct redis *redis, struct redis_request *request, int script) {
    size_t size;
    char *bytes = command_bytes(&redis->command, &size);
    if (!bytes)
        return;
    free(request->bytes);
    request->bytes = bytes;
    request->size = size;
    request->script = script;
    request->is_whole = false;
}

void redis_release_one_key(struct redis *redis, struct redis_request *request) {
    command_start_script(&redis->command, REDIS_RELEASE_ONE_KEY, 1);
    command_add_keys(&redis->command, redis->prefix, request->op->name, "K");
    add_owner(redis, request->op->seq);
    replace_script(redis, request, REDIS_RELEASE_ONE_KEY);
}

/* "Not mine" may be the effect of the same request, if it was sent before and its reply was
 * lost. */
static void finish_release(struct redis *redis, struct redis_request *request,
                           const struct reply *reply, const char *why, bool announced) {
    struct store_op *op = request->op;
    bool is_undecided = reply && reply->type == REPLY_INTEGER && !reply->integer &&
                        request->script == REDIS_RELEASE_ONE_KEY;
    redis_forget_hold(redis, op); /* again: its grant may have arrived meanwhile */
    if (is_undecided) { /* a share, a place in the queue, or not mine: all keys are needed */
        start_release(redis, op, announced);
        replace_script(redis, request, REDIS_RELEASE);
        request->sends--;
        route_submit(redis, request);
        return;
    }
    if (!reply || reply->type != REPLY_INTEGER) {
        redis_fail(redis, request, reply, why);
        return;
    }
    bool repeated = request->sends > 1;
    redis_request_free(request);
    store_complete(redis->host, op,
                   reply->integer ? STORE_DONE
                   : repeated     ? STORE_UNKNOWN
                                  : STORE_NOT_YOURS);
}

static void ended(struct redis *redis, struct redis_request *request, const struct reply *reply,
                  const char *why) {
    finish_release(redis, request, reply, why, redis->set);
}

static void given_back(struct redis *redis, struct redis_request *request,
                       const struct reply *reply, const char *why) {
    finish_release(redis, request, reply, why, false);
}

void redis_release(struct redis *redis, struct store_op *op) {
    start_release(redis, op, redis->set);
    send_or_refuse(redis, op, REDIS_RELEASE, ended);
}

void redis_give_back(struct redis *redis, struct store_op *op) {
    start_release(redis, op, false);
    send_or_refuse(redis, op, REDIS_RELEASE, given_back);
}

void redis_break(struct redis *redis, struct store_op *op) {
    char by[LOCKS_BREAKER_SIZE];
    locks_format_breaker(&redis->host->identity, by);
    start_with_keys(redis, REDIS_BREAK, op);
    command_add_number(&redis->command, op->token);
    command_add_text(&redis->command, by);
    command_add_text(&redis->command, op->label ? op->label : "");
    command_add_text(&redis->command, redis->channels);
    command_add_text(&redis->command, redis->set ? op->name : "");
    redis_add_watch_key(redis);
    send_or_refuse(redis, op, REDIS_BREAK, ended);
}

/* ---- Renew ----
 *
 * Many exclusive holds are renewed by one script, which names one key for each. A share needs three
 * keys and its own request. The operation completes with the last of its requests. */

struct renewing {
    struct store_op *op;
    size_t requests;
    int reason; /* of the last that failed */
    char *text;
    enum store_outcome outcome; /* of those that failed */
    bool any_answered;
};

static void renewing_finish(struct redis *redis, struct renewing *renewing) {
    if (--renewing->requests > 0)
        return;
    struct store_op *op = renewing->op;
    enum store_outcome outcome = renewing->outcome;
    if (renewing->any_answered || !outcome) {
        outcome = STORE_DONE; /* each renewal has its own outcome */
        free(renewing->text);
    } else {
        op->reason = renewing->reason;
        op->text = renewing->text;
    }
    free(renewing);
    store_complete(redis->host, op, outcome);
}

static void note_failure(struct renewing *renewing, enum store_outcome outcome, int reason,
                         char *text) {
    free(renewing->text);
    renewing->outcome = outcome;
    renewing->reason = reason;
    renewing->text = text;
}

static enum store_outcome outcome_of(const struct reply *reply) {
    if (reply->type != REPLY_INTEGER || reply->integer < 0 || reply->integer > 1)
        return STORE_UNKNOWN;
    return reply->integer ? STORE_DONE : STORE_NOT_YOURS;
}

static void renew_answered(struct redis *redis, struct redis_request *request,
                           const struct reply *reply, const char *why) {
    struct renewing *renewing = request->context;
    struct store_renewal *renewals = renewing->op->renewals;
    bool answered = reply && (request->script == REDIS_RENEW
                                  ? reply->type == REPLY_ARRAY && reply->count == request->count
                                  : reply->type == REPLY_INTEGER);
    enum store_outcome outcome = 0;
    int reason = 0;
    if (!answered) {
        char *text;
        outcome = redis_explain(request, reply, why, &reason, &text);
        note_failure(renewing, outcome, reason, text);
    }
    for (uint32_t i = 0; i < request->count; i++) {
        if (answered) {
            const struct reply *one = request->script == REDIS_RENEW ? reply_at(reply, i) : reply;
            outcome = outcome_of(one);
        }
        const struct store_op *of = renewals[request->items[i]].of;
        if (outcome == STORE_NOT_YOURS && of)
            redis_forget_hold(redis, of); /* nobody will release it */
        renewals[request->items[i]].outcome = outcome;
        renewals[request->items[i]].reason = reason;
    }
    renewing->any_answered |= answered;
    redis_request_free(request);
    renewing_finish(redis, renewing);
}

static bool is_alone(const struct store_op *of) {
    return of->weight == of->capacity;
}

static void renewing_send(struct redis *redis, struct renewing *renewing, int script,
                          const uint16_t *items, size_t count) {
    struct redis_request *request =
        redis_new_request(redis, renewing->op, script, renew_answered, renewing, count);
    renewing->requests++;
    if (!request) {
        for (size_t i = 0; i < count; i++) {
            renewing->op->renewals[items[i]].outcome = STORE_REFUSED;
            renewing->op->renewals[items[i]].reason = HF_NO_MEMORY;
        }
        note_failure(renewing, STORE_REFUSED, HF_NO_MEMORY, NULL);
        renewing_finish(redis, renewing);
        return;
    }
    memcpy(request->items, items, count * sizeof(*items));
    route_submit(redis, request);
}

static void add_lease(struct redis *redis, const struct store_renewal *renewal) {
    add_owner(redis, renewal->of->seq);
    command_add_number(&redis->command, (uint64_t)renewal->lease_us / 1000);
}

static void renew_alone(struct redis *redis, struct renewing *renewing, const uint16_t *items,
                        size_t count) {
    const struct store_renewal *renewals = renewing->op->renewals;
    command_start_script(&redis->command, REDIS_RENEW, count);
    for (size_t i = 0; i < count; i++)
        command_add_keys(&redis->command, redis->prefix, renewals[items[i]].of->name, "K");
    for (size_t i = 0; i < count; i++)
        add_lease(redis, &renewals[items[i]]);
    renewing_send(redis, renewing, REDIS_RENEW, items, count);
}

static void renew_share(struct redis *redis, struct renewing *renewing, uint16_t item) {
    const struct store_renewal *renewal = &renewing->op->renewals[item];
    command_start_script(&redis->command, REDIS_RENEW_SHARE, 3);
    command_add_keys(&redis->command, redis->prefix, renewal->of->name, "KHI");
    add_lease(redis, renewal);
    renewing_send(redis, renewing, REDIS_RENEW_SHARE, &item, 1);
}

/* A lock that is held for longer than a week must not lose its counter. So once a day, for as long
 * as the longest lease, each renewal also extends the life of the counter. */
static void keep_counters(struct redis *redis, const struct store_op *op) {
    int64_t now_us = world_now_us(redis->host->world);
    if (now_us < redis->keep_from_us)
        return;
    if (now_us > redis->keep_from_us + redis->host->max_lease_us)
        redis->keep_from_us = now_us + INT64_C(1000) * DAY_MS;
    for (size_t i = 0; i < op->renewal_count; i++) {
        if (!op->renewals[i].of)
            continue;
        command_start(&redis->command);
        command_add_text(&redis->command, "PEXPIRE");
        command_add_keys(&redis->command, redis->prefix, op->renewals[i].of->name, "S");
        command_add_number(&redis->command, UINT64_C(8) * DAY_MS);
        struct redis_request *request =
            redis_new_request(redis, NULL, -1, redis_ignore_reply, NULL, 0);
        if (request)
            route_submit(redis, request);
    }
}

void redis_renew(struct redis *redis, struct store_op *op) {
    struct renewing *renewing = calloc(1, sizeof(*renewing));
    if (!renewing) {
        store_refuse(redis->host, op, HF_NO_MEMORY, NULL);
        return;
    }
    renewing->op = op;
    renewing->requests = 1; /* until all have been sent */
    keep_counters(redis, op);
    uint16_t alone[RENEWALS_AT_ONCE];
    size_t count = 0,
           at_once = redis->route && redis->route->kind->has_slots ? 1 : RENEWALS_AT_ONCE;
    assert(op->renewal_count <= UINT16_MAX);
    for (size_t i = 0; i < op->renewal_count; i++) {
        const struct store_op *of = op->renewals[i].of;
        if (!of)
            continue; /* the hold ended before it was submitted */
        if (!is_alone(of)) {
            renew_share(redis, renewing, (uint16_t)i);
            continue;
        }
        alone[count++] = (uint16_t)i;
        if (count == at_once) {
            renew_alone(redis, renewing, alone, count);
            count = 0;
        }
    }
    if (count)
        renew_alone(redis, renewing, alone, count);
    renewing_finish(redis, renewing);
}
