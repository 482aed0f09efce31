#include "sim/check.h"

#include "client/client.h"
#include "store/redis/scripts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *check_name_of(int name) {
    static const char *const names[] = {"a", "b"};
    return names[name];
}

const char *check_key_of(int name) {
    static const char *const keys[] = {"holdfast:a", "holdfast:b"};
    return keys[name];
}

static const char *companion_of(int name, char letter) {
    static char key[32];
    snprintf(key, sizeof(key), "{%s}.%c", check_key_of(name), letter);
    return key;
}

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

/* ---- What the server does ---- */

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
        fprintf(stderr, "sim: too many attempts in one history\n");
        exit(70);
    }
    attempt = &check->attempts[check->attempt_count++];
    *attempt = (struct attempt){.name = name};
    snprintf(attempt->owner, sizeof(attempt->owner), "%s", owner);
    return attempt;
}

/* Whether the lock, or a share of it, is set aside for one who waits. */
static bool is_reserved(struct sim_server *server, const struct attempt *attempt) {
    size_t size;
    const char *k = model_find_string(server->model, check_key_of(attempt->name), &size);
    return (k && k[0] == '?' && strcmp(k + 1, attempt->owner) == 0) ||
           model_find_field(server->model, companion_of(attempt->name, 'i'), attempt->owner);
}

/* When the server will let somebody else in, in true time. */
static int64_t server_ends_us(struct sim_server *server, const struct attempt *attempt) {
    struct model_key key;
    size_t size;
    const char *k = model_find_string(server->model, check_key_of(attempt->name), &size);
    if (k && strcmp(k, attempt->owner) == 0 &&
        model_find_key(server->model, check_key_of(attempt->name), &key))
        return sim_clock_when(&server->wall, key.expires_ms * 1000);
    struct model_member member;
    for (size_t i = 0; model_member_at(server->model, companion_of(attempt->name, 'h'), i, &member);
         i++) {
        if (strcmp(member.name, attempt->owner) == 0)
            return sim_clock_when(&server->wall, (int64_t)member.score);
    }
    return INT64_MIN;
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
        if (waits && came_earlier && !is_reserved(server, other))
            check_fail(check, VERDICT_SAFETY, "order: %.8s-%s was served before %.8s-%s, who waits",
                       served->owner, served->owner + 33, other->owner, other->owner + 33);
    }
}

static void check_token(struct check *check, struct attempt *attempt, bool repeats, uint64_t token,
                        uint64_t floor) {
    struct check_name *name = &check->names[attempt->name];
    bool rises = repeats ? token >= attempt->token : token > name->last_token;
    if (!rises && name->counter_lost && floor <= name->last_token)
        name->excused = true;
    else if (!rises)
        check_fail(check, VERDICT_SAFETY, "tokens: %" PRIu64 " was granted after %" PRIu64, token,
                   repeats ? attempt->token : name->last_token);
    if (token > name->last_token || name->counter_lost)
        name->last_token = token;
    name->counter_lost = false;
}

static void lasts(struct attempt *attempt, int64_t until_us) {
    if (attempt->until_us < until_us)
        attempt->until_us = until_us;
}

static void served(struct check *check, struct sim_server *server, struct attempt *attempt,
                   uint64_t token, uint64_t floor, int64_t lease_us) {
    int64_t now_us = server_now_us(check, server);
    bool repeats = attempt->granted && !attempt->gone && attempt->until_us > now_us;
    check_token(check, attempt, repeats, token, floor);
    if (!repeats) {
        check_order(check, server, attempt);
        attempt->order = ++check->names[attempt->name].grants;
        attempt->until_us = 0;
    }
    lasts(attempt, now_us + lease_us);
    attempt->granted = true;
    attempt->voided = attempt->ended = attempt->gone = false;
    attempt->token = token;
    attempt->queued_order = 0;
}

/* The second word of an answer like {'done', '17'}; a script's strings have no line ends. */
static const char *second_word(const char *reply, char ret_word[32]) {
    const char *at = reply;
    for (int i = 0; i < 4 && at; i++)
        at = strchr(at + 1, '\n');
    snprintf(ret_word, 32, "%.*s", at ? (int)strcspn(at + 1, "\r") : 0, at ? at + 1 : "");
    return ret_word;
}

static void acquire_executed(struct check *check, struct sim_server *server,
                             const char *const *words, const char *reply) {
    int name = strcmp(words[0], check_key_of(0)) == 0 ? 0 : 1;
    const char *const *arguments = words + 6;
    struct attempt *attempt = find_or_add(check, arguments[0], name);
    struct check_name *of = &check->names[name];
    attempt->weight = (uint32_t)strtoul(arguments[9], NULL, 10);
    attempt->barges = strcmp(arguments[6], "1") == 0;
    char word[32];
    if (strncmp(reply, "*2\r\n$4\r\ndone", 12) == 0) {
        served(check, server, attempt, strtoull(second_word(reply, word), NULL, 10),
               strtoull(arguments[3], NULL, 10), strtoll(arguments[1], NULL, 10) * 1000);
    } else if (strncmp(reply, "*4\r\n$6\r\nqueued", 14) == 0) {
        int64_t now_us = server_now_us(check, server);
        if (!attempt->queued_order)
            attempt->queued_order = ++of->queued;
        else if (attempt->waits_until_us <= now_us)
            attempt->lapsed = true;
        attempt->waits_until_us = now_us + strtoll(arguments[2], NULL, 10) * 1000;
        attempt->granted = false; /* what it once got has ended before it knew of it */
    }
}

/* A renewal was answered yes. Ends are in whole ms, so one of slack. */
static void renewed(struct check *check, struct sim_server *server, const char *owner,
                    int64_t lease_us) {
    struct attempt *attempt = find(check, owner);
    int64_t now_us = server_now_us(check, server);
    if (!attempt)
        return;
    if (attempt->gone || attempt->until_us + 1000 < now_us ||
        server_ends_us(server, attempt) == INT64_MIN)
        check_fail(check, VERDICT_SAFETY, "ownership: %.8s-%s was renewed, and had ended", owner,
                   owner + 33);
    lasts(attempt, now_us + lease_us);
}

/* `words` are those behind the number of keys; what was not renewed is answered 0, in the same order. */
static void renewal_executed(struct check *check, struct sim_server *server, size_t keys,
                             const char *const *words, const char *reply) {
    const char *answer = reply[0] == '*' ? strchr(reply, ':') : NULL;
    for (size_t i = 0; i < keys && answer; i++, answer = strchr(answer + 1, ':')) {
        if (answer[1] == '1')
            renewed(check, server, words[keys + 2 * i],
                    strtoll(words[keys + 2 * i + 1], NULL, 10) * 1000);
    }
}

static void end_at_server(struct attempt *attempt) {
    attempt->ended = attempt->voided = attempt->gone = true;
    attempt->queued_order = 0;
}

static enum redis_script_id script_of(const char *const *words) {
    for (int i = 0; i < REDIS_SCRIPTS; i++) {
        const struct redis_script *script = &redis_scripts[i];
        if (strcmp(words[0], "EVALSHA") == 0
                ? strcmp(words[1], script->sha1) == 0
                : strncmp(words[1], script->text, script->size) == 0 && !words[1][script->size])
            return (enum redis_script_id)i;
    }
    return REDIS_SCRIPTS;
}

void check_executed(struct check *check, struct sim_server *server, size_t count,
                    const char *const *words, const char *reply) {
    if (count < 5 || strncmp(words[0], "EVAL", 4) != 0)
        return;
    switch (script_of(words)) {
    case REDIS_ACQUIRE:
        acquire_executed(check, server, words + 3, reply);
        break;
    case REDIS_RELEASE: {
        struct attempt *attempt = find(check, words[9]);
        if (attempt && strcmp(reply, ":1\r\n") == 0)
            end_at_server(attempt);
        break;
    }
    case REDIS_RENEW:
        renewal_executed(check, server, strtoul(words[2], NULL, 10), words + 3, reply);
        break;
    case REDIS_RENEW_SHARE:
        if (strcmp(reply, ":1\r\n") == 0)
            renewed(check, server, words[6], strtoll(words[7], NULL, 10) * 1000);
        break;
    case REDIS_BREAK:
        for (size_t i = 0; i < check->attempt_count && strcmp(reply, ":1\r\n") == 0; i++) {
            struct attempt *attempt = &check->attempts[i];
            if (strcmp(words[3], check_key_of(attempt->name)) == 0 && attempt->granted &&
                attempt->token == strtoull(words[9], NULL, 10)) {
                end_at_server(attempt);
                check->names[attempt->name].last_token = attempt->token + 1;
            }
        }
        break;
    default:
        break;
    }
}

void check_forgot(struct check *check, struct sim_server *server, int name, enum forgotten what) {
    sim_server_tell_time(server);
    for (size_t i = 0; i < check->attempt_count; i++) {
        struct attempt *attempt = &check->attempts[i];
        if (name >= 0 && attempt->name != name)
            continue;
        attempt->voided = true;
        attempt->gone |= server_ends_us(server, attempt) == INT64_MIN;
        if (what == FORGOT_ALL)
            attempt->queued_order = 0;
    }
    for (int i = 0; i < PLAN_NAMES_MAX; i++) {
        if (name >= 0 && name != i)
            continue;
        check->names[i].counter_lost |= what == FORGOT_ALL || what == FORGOT_COUNTERS;
        check->names[i].unordered |= what == FORGOT_PARTS || what == FORGOT_COUNTERS;
    }
}

void check_time_went_back(struct check *check) {
    for (int i = 0; i < PLAN_NAMES_MAX; i++)
        check->names[i].unordered = true;
}

/* ---- What clients believe ---- */

static bool believes(const struct check *check, const struct attempt *attempt) {
    return attempt->node && !attempt->node->dead &&
           sim_clock_read(&attempt->node->now, true_us(check)) < attempt->hold->hold.deadline_us;
}

static bool counts(const struct check *check, const struct attempt *attempt) {
    return !attempt->voided && believes(check, attempt);
}

static void check_exclusion(struct check *check, const struct attempt *entering, int name,
                            uint64_t weight) {
    uint64_t capacity = check->plan->names[name].capacity;
    for (size_t i = 0; i < check->attempt_count; i++) {
        const struct attempt *other = &check->attempts[i];
        if (other == entering || other->name != name || !counts(check, other))
            continue;
        weight += other->weight;
        if (weight > capacity)
            check_fail(
                check, VERDICT_SAFETY, "exclusion: %.8s-%s has \"%s\" while %.8s-%s holds it",
                entering ? entering->owner : "somebody", entering ? entering->owner + 33 : "",
                check_name_of(name), other->owner, other->owner + 33);
    }
}

void check_looked(struct check *check, struct attempt *attempt) {
    const struct hold *hold = &attempt->hold->hold;
    struct sim_server *server = &check->net->servers[0];
    if (attempt->deadline_us == hold->deadline_us || !counts(check, attempt))
        return;
    attempt->deadline_us = hold->deadline_us;
    sim_server_tell_time(server);
    int64_t believed_us = sim_clock_when(&attempt->node->now, hold->deadline_us);
    int64_t given_us = server_ends_us(server, attempt);
    if (given_us < believed_us)
        check_fail(check, VERDICT_SAFETY,
                   "validity: %.8s-%s believes in \"%s\" %" PRId64 " us longer than it has it",
                   attempt->owner, attempt->owner + 33, check_name_of(attempt->name),
                   given_us == INT64_MIN ? believed_us - true_us(check) : believed_us - given_us);
}

struct attempt *check_granted(struct check *check, struct sim_node *node, hf_hold *hold, int name) {
    struct attempt *attempt = find(check, hf_hold_owner(hold));
    if (!attempt || !attempt->granted) {
        check_fail(check, VERDICT_SAFETY, "held: %s has \"%s\", and no server granted it",
                   hf_hold_owner(hold), check_name_of(name));
        attempt = find_or_add(check, hf_hold_owner(hold), name);
    }
    attempt->node = node;
    attempt->hold = hold;
    attempt->deadline_us = 0;
    if (!attempt->voided && hf_hold_token(hold) != attempt->token)
        check_fail(check, VERDICT_SAFETY, "tokens: %" PRIu64 " was told and %" PRIu64 " granted",
                   hf_hold_token(hold), attempt->token);
    if (hf_check(hold, 0) != HF_OK)
        check_fail(check, VERDICT_SAFETY, "held: \"%s\" was granted with no time left",
                   check_name_of(name));
    if (counts(check, attempt))
        check_exclusion(check, attempt, name, attempt->weight);
    check_looked(check, attempt);
    return attempt;
}

void check_foreign(struct check *check, int name) {
    check_exclusion(check, NULL, name, check->plan->names[name].capacity);
}

void check_ended(struct attempt *attempt) {
    attempt->node = NULL;
    attempt->hold = NULL;
}

void check_wrote(struct check *check, const struct attempt *attempt) {
    struct check_name *name = &check->names[attempt->name];
    uint64_t token = hf_hold_token(attempt->hold);
    if (attempt->weight != check->plan->names[attempt->name].capacity ||
        token < name->resource_token)
        return;
    if (attempt->order < name->resource_order && !name->excused)
        check_fail(check, VERDICT_SAFETY, "fencing: a stale write with token %" PRIu64 " was taken",
                   token);
    name->resource_token = token;
    name->resource_order = attempt->order;
}

/* ---- The end ---- */

void check_remains(struct check *check, struct sim_server *server) {
    struct model_key key;
    sim_server_tell_time(server);
    for (size_t i = 0; model_key_at(server->model, i, &key); i++) {
        bool is_counter = key.size > 2 && strcmp(key.name + key.size - 2, ".s") == 0;
        if (!key.expired && !is_counter)
            check_fail(check, VERDICT_LIVENESS, "remains: %s stays behind", key.name);
        else if (is_counter && key.expires_ms < 0)
            check_fail(check, VERDICT_LIVENESS, "remains: %s stays for ever", key.name);
    }
}
