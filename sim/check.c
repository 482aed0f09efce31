#include "sim/check.h"

#include "client/client.h"
#include "store/quorum/quorum.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void check_fail(struct check *check, enum verdict verdict, const char *format, ...) {
    if (check->verdict)
        return;
    check->verdict = verdict;
    va_list values;
    va_start(values, format);
    vsnprintf(check->what, sizeof(check->what), format, values);
    va_end(values);
}

static int64_t true_us(const struct check *check) {
    return check->net->time->now_us;
}

static bool is_set(const struct check *check) {
    return check->plan->voter_count > 1;
}

/* With such tokens, a waiter may have its token already. */
static bool has_own_tokens(const struct check *check) {
    return check->plan->service->driver->capabilities & STORE_OWN_TOKENS;
}

/* ---- What servers do ---- */

static int64_t server_now_us(const struct check *check, const struct sim_server *server) {
    return sim_clock_read(&server->wall, true_us(check));
}

static struct attempt *find(struct check *check, const char *owner) {
    for (size_t i = check->attempt_count; i > 0; i--) {
        if (strcmp(check->attempts[i - 1].owner, owner) == 0)
            return &check->attempts[i - 1];
    }
    return NULL;
}

static struct attempt *find_or_add(struct check *check, const char *owner, int name) {
    struct attempt *attempt = find(check, owner);
    if (attempt)
        return attempt;
    if (check->attempt_count == CHECK_ATTEMPTS_MAX) {
        check_fail(check, VERDICT_LIVENESS, "calm: there is no end of attempts");
        check->attempt_count--;
    }
    attempt = &check->attempts[check->attempt_count++];
    *attempt = (struct attempt){.name = name};
    snprintf(attempt->owner, sizeof(attempt->owner), "%s", owner);
    return attempt;
}

/* When the server may grant it to somebody else, in true time. */
static int64_t server_ends_us(const struct sim_server *server, const struct attempt *attempt) {
    int64_t until_us = server->service->type->held_until_us(
        server->service, plan_name_text(attempt->name), attempt->owner);
    return until_us == INT64_MIN ? INT64_MIN : sim_clock_when(&server->wall, until_us);
}

static void check_order(struct check *check, struct sim_server *server, struct attempt *served) {
    int64_t now_us = server_now_us(check, server);
    if (served->barges || served->lapsed || check->names[served->name].unordered)
        return;
    for (size_t i = 0; i < check->attempt_count; i++) {
        struct attempt *other = &check->attempts[i];
        bool waits = other != served && other->name == served->name && other->queued_order &&
                     !other->lapsed && other->waits_until_us > now_us;
        bool came_earlier = !served->queued_order || other->queued_order < served->queued_order;
        if (waits && came_earlier &&
            !server->service->type->is_reserved(server->service, plan_name_text(other->name),
                                                other->owner))
            check_fail(check, VERDICT_SAFETY, "order: %.8s-%s was served before %.8s-%s, who waits",
                       served->owner, served->owner + 33, other->owner, other->owner + 33);
    }
}

/* A server counts in whole milliseconds: a hold may last one longer than was asked for. */
enum { END_SLACK_US = 1000 };

/* The counter of one server. A hold that is taken again may keep its token. */
static void check_token(struct check *check, struct sim_server *server, struct attempt *attempt,
                        bool repeats, const struct service_report *report) {
    uint64_t token = report->token;
    struct check_name *name = &check->names[attempt->name];
    struct check_counter *counter = &name->counters[server->index];
    uint64_t last = repeats ? attempt->votes[server->index].token : counter->last_token;
    bool rises =
        repeats ? token >= last : token > last || (token == last && token == report->retaken);
    if (!rises && counter->lost && report->floor <= counter->last_token)
        name->excused = true;
    else if (!rises)
        check_fail(check, VERDICT_SAFETY, "tokens: %" PRIu64 " was granted after %" PRIu64, token,
                   last);
    if (token > counter->last_token || counter->lost)
        counter->last_token = token;
    counter->lost = false;
}

static void lasts(struct vote *vote, int64_t until_us) {
    if (vote->until_us < until_us)
        vote->until_us = until_us;
}

static void granted(struct check *check, struct sim_server *server, struct attempt *attempt,
                    const struct service_report *report) {
    struct vote *vote = &attempt->votes[server->index];
    int64_t now_us = server_now_us(check, server);
    bool has_its_token = vote->token == report->token;
    bool repeats = vote->granted && !vote->gone &&
                   vote->until_us + (has_its_token ? END_SLACK_US : 0) > now_us;
    check_token(check, server, attempt, repeats, report);
    if (!repeats) {
        if (!is_set(check))
            check_order(check, server, attempt);
        attempt->order = ++check->names[attempt->name].grants;
        vote->until_us = 0;
    }
    lasts(vote, now_us + report->lease_us);
    vote->granted = true;
    vote->gone = false;
    vote->at_us = true_us(check);
    vote->token = report->token;
    attempt->queued_order = 0;
    /* (Getting it back does not make up for the time in which it was lost.) */
    if (!attempt->machine && !report->retaken)
        vote->forgot = vote->counter_lost = false;
}

static void queued(struct check *check, struct sim_server *server, struct attempt *attempt,
                   const struct service_report *report) {
    int64_t now_us = server_now_us(check, server);
    if (!attempt->queued_order)
        attempt->queued_order = ++check->names[attempt->name].queued;
    else if (attempt->waits_until_us <= now_us)
        attempt->lapsed = true;
    attempt->waits_until_us = now_us + report->wait_us;
    /* An earlier grant ended before the client knew of it. */
    attempt->votes[server->index].granted = false;
}

/* A new ballot of an attempt: the ballots before it were lost, and are given up. */
static void supersede(struct check *check, const struct attempt *attempt) {
    uint64_t ballot = strtoull(attempt->owner + 33, NULL, 16);
    for (size_t i = 0; i < check->attempt_count; i++) {
        struct attempt *other = &check->attempts[i];
        uint64_t before = strtoull(other->owner + 33, NULL, 16);
        if (!other->given_up_us && before < ballot &&
            before >> BALLOT_BITS == ballot >> BALLOT_BITS &&
            strncmp(other->owner, attempt->owner, 33) == 0)
            other->given_up_us = true_us(check);
    }
}

/* A server refuses the lock to one client because another has it, although the other has given it
 * up. That is allowed until the release arrives: releases are repeated, and the time between them
 * doubles. A request that arrives after its release, on a connection that was abandoned while
 * nothing got through, is left to its lease. */
static void check_withheld(struct check *check, struct sim_server *server, int name) {
    enum { SLACK_US = 1500000 };
    const char *owner = server->service->type->holder(server->service, plan_name_text(name));
    const struct attempt *holder = owner ? find(check, owner) : NULL;
    if (!holder || !holder->given_up_us || check->faults || check->clients_fail)
        return;
    const struct vote *vote = &holder->votes[server->index];
    int64_t now_us = true_us(check), went_us = holder->given_up_us;
    int64_t fault_us = check->fault_us > went_us ? check->fault_us : went_us;
    if (!vote->forgot && !(vote->released && check->fault_us) &&
        now_us > fault_us + 2 * (fault_us - went_us) + SLACK_US &&
        now_us < went_us + holder->lease_us)
        check_fail(check, VERDICT_LIVENESS,
                   "withheld: %.8s-%s still has \"%s\" at server %d, and let it go", holder->owner,
                   holder->owner + 33, plan_name_text(name), server->index);
}

static void acquire_reported(struct check *check, struct sim_server *server,
                             const struct service_report *report) {
    struct attempt *attempt = find_or_add(check, report->owner, plan_name_number(report->name));
    if (is_set(check) && !attempt->weight)
        supersede(check, attempt);
    attempt->capacity = report->capacity;
    attempt->weight = report->weight;
    attempt->lease_us = report->lease_us;
    attempt->barges = report->barges;
    if (!attempt->machine && !report->only_mine)
        attempt->floor = report->floor;
    if (report->outcome == SERVICE_GRANTED) {
        granted(check, server, attempt, report);
    } else if (report->outcome == SERVICE_QUEUED) {
        queued(check, server, attempt, report);
    } else if (report->outcome == SERVICE_REFUSED) {
        attempt->votes[server->index].granted = false;
        check_withheld(check, server, attempt->name);
    }
}

static void renewed(struct check *check, struct sim_server *server, struct attempt *attempt,
                    int64_t lease_us) {
    int64_t now_us = server_now_us(check, server);
    struct vote *vote = &attempt->votes[server->index];
    if (vote->gone || vote->until_us + END_SLACK_US < now_us ||
        server_ends_us(server, attempt) == INT64_MIN)
        check_fail(check, VERDICT_SAFETY, "ownership: %.8s-%s was renewed, and had ended",
                   attempt->owner, attempt->owner + 33);
    lasts(vote, now_us + lease_us);
}

static void released(struct sim_server *server, struct attempt *attempt) {
    attempt->votes[server->index].gone = true;
    attempt->queued_order = 0;
}

static void broken(struct check *check, struct sim_server *server, int name, uint64_t token) {
    for (size_t i = 0; i < check->attempt_count; i++) {
        struct attempt *attempt = &check->attempts[i];
        struct vote *vote = &attempt->votes[server->index];
        if (attempt->name == name && vote->granted && vote->token == token) {
            released(server, attempt);
            vote->forgot = vote->denied = true;
            vote->broken_us = true_us(check);
            if (!has_own_tokens(check)) /* a break takes a token */
                check->names[name].counters[server->index].last_token = token + 1;
        }
    }
}

void check_reported(struct check *check, struct sim_server *server,
                    const struct service_report *report) {
    bool was_done = report->outcome == SERVICE_GRANTED, failed = report->outcome == SERVICE_FAILED;
    struct attempt *attempt = report->request == SERVICE_RENEW || report->request == SERVICE_RELEASE
                                  ? find(check, report->owner)
                                  : NULL;
    switch (report->request) {
    case SERVICE_ACQUIRE:
        acquire_reported(check, server, report);
        break;
    case SERVICE_RENEW:
        if (attempt && was_done)
            renewed(check, server, attempt, report->lease_us);
        else if (attempt && !failed)
            attempt->votes[server->index].denied = true;
        break;
    case SERVICE_RELEASE:
        if (attempt && !failed)
            attempt->votes[server->index].released = true;
        if (attempt && was_done)
            released(server, attempt);
        break;
    case SERVICE_BREAK:
        if (was_done)
            broken(check, server, plan_name_number(report->name), report->token);
        break;
    }
}

/* Until when a server abstains, in true time. */
static int64_t abstains_until_us(const struct check *check, const struct sim_server *server) {
    if (!is_set(check))
        return INT64_MIN;
    int64_t until_us = server->service->type->abstains_until_us(server->service);
    return until_us == INT64_MAX                      ? INT64_MAX
           : until_us <= server_now_us(check, server) ? INT64_MIN
                                                      : sim_clock_when(&server->wall, until_us);
}

/* Whether the server keeps anything of it. A lease that is over may still exist, and be valid again
 * when the clock is set back. */
static bool is_kept(struct sim_server *server, const struct attempt *attempt) {
    server->service->type->set_time(server->service, 0);
    bool kept = server_ends_us(server, attempt) != INT64_MIN;
    sim_server_tell_time(server);
    return kept;
}

void check_forgot(struct check *check, struct sim_server *server, int name,
                  enum service_forgotten what) {
    sim_server_tell_time(server);
    bool counters = what == FORGOT_ALL || what == FORGOT_COUNTERS;
    for (size_t i = 0; i < check->attempt_count; i++) {
        struct attempt *attempt = &check->attempts[i];
        struct vote *vote = &attempt->votes[server->index];
        if (name >= 0 && attempt->name != name)
            continue;
        vote->forgot |= abstains_until_us(check, server) != INT64_MAX;
        vote->gone = !is_kept(server, attempt);
        vote->counter_lost |= counters;
        if (what == FORGOT_ALL)
            attempt->queued_order = 0;
    }
    for (int i = 0; i < PLAN_NAMES_MAX; i++) {
        if (name >= 0 && name != i)
            continue;
        check->names[i].counters[server->index].lost |= counters;
        check->names[i].unordered |= what == FORGOT_PARTS || what == FORGOT_COUNTERS;
    }
}

void check_time_went_back(struct check *check) {
    for (int i = 0; i < PLAN_NAMES_MAX; i++)
        check->names[i].unordered = true;
}

/* ---- What clients believe ---- */

static bool believes(const struct check *check, const struct attempt *attempt) {
    return attempt->machine && !attempt->machine->dead &&
           (attempt->hold->hold.state == HOLD_HELD || attempt->hold->hold.state == HOLD_SUSPECT) &&
           sim_clock_read(&attempt->machine->now, true_us(check)) < attempt->hold->hold.deadline_us;
}

/* How many servers may forget a grant without making it void. */
static int spare_of(const struct check *check) {
    return 2 * check->plan->quorum - check->plan->voter_count - 1;
}

static bool is_voided(const struct check *check, const struct attempt *attempt) {
    int forgot = 0;
    for (int i = 0; i < check->plan->voter_count; i++)
        forgot += attempt->votes[i].forgot;
    return forgot > spare_of(check);
}

static bool counts(const struct check *check, const struct attempt *attempt) {
    return believes(check, attempt) && !is_voided(check, attempt);
}

/* Holds with different capacities exclude each other. */
static void check_exclusion(struct check *check, const struct attempt *entering, int name) {
    uint64_t capacity = entering ? entering->capacity : 0, weight = entering ? entering->weight : 1;
    for (size_t i = 0; i < check->attempt_count; i++) {
        const struct attempt *other = &check->attempts[i];
        if (other == entering || other->name != name || !counts(check, other))
            continue;
        weight += other->weight;
        if (weight > capacity || other->capacity != capacity)
            check_fail(
                check, VERDICT_SAFETY, "exclusion: %.8s-%s has \"%s\" while %.8s-%s holds it",
                entering ? entering->owner : "somebody", entering ? entering->owner + 33 : "",
                plan_name_text(name), other->owner, other->owner + 33);
    }
}

/* When a server will vote for somebody else, in true time. */
static int64_t vote_ends_us(const struct check *check, const struct attempt *attempt, int index) {
    struct sim_server *server = &check->net->servers[index];
    const struct vote *vote = &attempt->votes[index];
    if (!vote->granted || vote->forgot) /* there are no more than spare_of */
        return vote->forgot ? INT64_MAX : INT64_MIN;
    sim_server_tell_time(server);
    int64_t ends_us = server_ends_us(server, attempt);
    int64_t abstains_us = abstains_until_us(check, server);
    return ends_us > abstains_us ? ends_us : abstains_us;
}

/* When a quorum no longer supports it: the Q-th latest of the times at which votes end. */
static int64_t quorum_ends_us(const struct check *check, const struct attempt *attempt) {
    int64_t ends_us[SIM_SERVERS_MAX];
    for (int i = 0; i < check->plan->voter_count; i++) {
        int64_t one_us = vote_ends_us(check, attempt, i);
        int place = i;
        for (; place > 0 && ends_us[place - 1] < one_us; place--)
            ends_us[place] = ends_us[place - 1];
        ends_us[place] = one_us;
    }
    return ends_us[check->plan->quorum - 1];
}

/* With its first renewal a client asks for notifications, which take effect a moment later. */
static void check_told(struct check *check, const struct attempt *attempt) {
    enum { SETTLED_US = 100000 };
    int64_t within_us = check->plan->service->told_within_us;
    int64_t broken_us = attempt->votes[0].broken_us;
    if (within_us && !check->troubled && attempt->renewed_us && believes(check, attempt) &&
        broken_us > attempt->renewed_us + SETTLED_US && true_us(check) > broken_us + within_us)
        check_fail(check, VERDICT_SAFETY,
                   "told: %.8s-%s believes in \"%s\", which was taken away %" PRId64 " us ago",
                   attempt->owner, attempt->owner + 33, plan_name_text(attempt->name),
                   true_us(check) - broken_us);
}

void check_looked(struct check *check, struct attempt *attempt) {
    const struct hold *hold = &attempt->hold->hold;
    check_told(check, attempt);
    if (attempt->deadline_us == hold->deadline_us || !counts(check, attempt))
        return;
    if (attempt->deadline_us && !attempt->renewed_us)
        attempt->renewed_us = true_us(check);
    attempt->deadline_us = hold->deadline_us;
    int64_t believed_us = sim_clock_when(&attempt->machine->now, hold->deadline_us);
    int64_t given_us = quorum_ends_us(check, attempt);
    if (given_us < believed_us)
        check_fail(check, VERDICT_SAFETY,
                   "validity: %.8s-%s believes in \"%s\" %" PRId64 " us longer than it has it",
                   attempt->owner, attempt->owner + 33, plan_name_text(attempt->name),
                   given_us == INT64_MIN ? believed_us - true_us(check) : believed_us - given_us);
}

/* ---- The holders of a set, one after the other ---- */

static bool is_exclusive(const struct attempt *attempt) {
    return attempt->weight == attempt->capacity;
}

static bool precedes(const struct check *check, const struct attempt *one,
                     const struct attempt *other) {
    return one->held_us <= other->asked_us ||
           (one->held_us < other->held_us && !is_voided(check, one) && !is_voided(check, other));
}

/* Too many counters were lost since, and the later one's clock was behind. */
static bool is_excused(const struct check *check, const struct attempt *one,
                       const struct attempt *later) {
    int lost = 0;
    for (int i = 0; i < check->plan->voter_count; i++)
        lost += one->votes[i].counter_lost;
    return lost > spare_of(check) && later->floor <= one->held_token;
}

/* Only votes since it asked count. (With several names, renewals of the first may have been refused
 * while it waited for the others.) */
static void check_votes(struct check *check, struct attempt *attempt) {
    int granted = 0, agreed = 0, quorum = check->plan->quorum;
    for (int i = 0; i < check->plan->voter_count; i++) {
        struct vote *vote = &attempt->votes[i];
        if (vote->at_us < attempt->asked_us)
            *vote = (struct vote){.denied = vote->denied};
        granted += vote->granted;
        agreed += vote->granted && vote->token >= attempt->held_token;
    }
    if (granted < quorum)
        check_fail(check, VERDICT_SAFETY,
                   "held: %.8s-%s has \"%s\", and %d servers granted it, not %d", attempt->owner,
                   attempt->owner + 33, plan_name_text(attempt->name), granted, quorum);
    else if (agreed < quorum)
        check_fail(check, VERDICT_SAFETY,
                   "tokens: %" PRIu64 " was reported, and %d servers are at it, not %d",
                   attempt->held_token, agreed, quorum);
}

/* No two holds have the same token, whatever clocks do. */
static void check_rises(struct check *check, const struct attempt *attempt,
                        const struct attempt *other) {
    bool same = other->held_token == attempt->held_token;
    if (other->held_token < attempt->held_token || is_excused(check, other, attempt) ||
        !(same || precedes(check, other, attempt)))
        return;
    check_fail(check, VERDICT_SAFETY,
               "tokens: %" PRIu64 " was held after %" PRIu64 ", which %.8s-%s had",
               attempt->held_token, other->held_token, other->owner, other->owner + 33);
}

static void check_held_in_set(struct check *check, struct attempt *attempt) {
    check_votes(check, attempt);
    for (size_t i = 0; i < check->attempt_count && is_exclusive(attempt); i++) {
        const struct attempt *other = &check->attempts[i];
        if (other != attempt && other->name == attempt->name && other->held_us &&
            is_exclusive(other))
            check_rises(check, attempt, other);
    }
}

struct attempt *check_granted(struct check *check, struct sim_machine *machine, hf_hold *hold,
                              int name) {
    const char *owner = hf_hold_owner(hold);
    struct attempt *attempt = find(check, owner);
    if (!attempt || (!is_set(check) && !attempt->votes[0].granted)) {
        check_fail(check, VERDICT_SAFETY, "held: %s has \"%s\", and no server granted it", owner,
                   plan_name_text(name));
        attempt = find_or_add(check, owner, name);
    }
    attempt->machine = machine;
    attempt->hold = hold;
    attempt->deadline_us = attempt->renewed_us = 0;
    attempt->held_us = true_us(check);
    attempt->asked_us = sim_clock_when(&machine->now, hold->hold.asked_us);
    attempt->held_token = hf_hold_token(hold);
    if (is_set(check))
        check_held_in_set(check, attempt);
    else if (!is_voided(check, attempt) && attempt->held_token != attempt->votes[0].token)
        check_fail(check, VERDICT_SAFETY,
                   "tokens: %" PRIu64 " was reported and %" PRIu64 " granted", attempt->held_token,
                   attempt->votes[0].token);
    if (hf_check(hold, 0) != HF_OK)
        check_fail(check, VERDICT_SAFETY, "held: \"%s\" was granted with no time left",
                   plan_name_text(name));
    if (counts(check, attempt))
        check_exclusion(check, attempt, name);
    check_looked(check, attempt);
    return attempt;
}

void check_foreign(struct check *check, int name) {
    if (!is_set(check)) /* in a set it has only one vote */
        check_exclusion(check, NULL, name);
}

void check_ended(struct check *check, struct attempt *attempt) {
    attempt->given_up_us = true_us(check);
    attempt->machine = NULL;
    attempt->hold = NULL;
}

void check_wrote(struct check *check, struct attempt *attempt) {
    struct check_name *name = &check->names[attempt->name];
    const struct attempt *last = name->resource_writer;
    uint64_t token = hf_hold_token(attempt->hold);
    if (!is_exclusive(attempt) || token < name->resource_token)
        return;
    bool stale = !is_set(check) ? attempt->order < name->resource_order && !name->excused
                                : last && last != attempt && precedes(check, attempt, last) &&
                                      !is_excused(check, attempt, last);
    if (stale)
        check_fail(check, VERDICT_SAFETY, "fencing: a stale write with token %" PRIu64 " was taken",
                   token);
    name->resource_token = token;
    name->resource_writer = attempt;
    name->resource_order = attempt->order;
}

/* ---- The end ---- */

void check_fault(struct check *check, bool begins, int64_t felt_us, bool client, bool calm) {
    check->troubled |= !calm;
    check->faults += begins ? 1 : -1;
    if (check->fault_us < true_us(check) + felt_us)
        check->fault_us = true_us(check) + felt_us;
    check->clients_fail |= client;
}

void check_remains(struct check *check, struct sim_server *server) {
    sim_server_tell_time(server);
    const char *what = server->service->type->remains(server->service);
    if (what)
        check_fail(check, VERDICT_LIVENESS, "remains: %s", what);
}
