#include "store/redis/rights.h"

#include "base/error.h"

#include <assert.h>
#include <string.h>

enum { RIGHTS_SIZE = 1024 };

enum purpose { FOR_LOCKS, FOR_COUNTERS, FOR_WAKING, FOR_OPERATORS, FOR_KEY_EVENTS };

enum when { ALWAYS, IN_CLUSTER, NOT_IN_CLUSTER, NOT_IN_SET, WITH_REPLICAS };

/* ROLE, in the greeting of a master that sentinels name, is not here: without permission for it
 * there is no connection to ask over. */
static const struct right {
    enum purpose purpose;
    const char *words;
    enum when when;
} table[] = {
    {FOR_LOCKS, "EVAL return 0"},
    {FOR_LOCKS, "EVALSHA none 0"},
    {FOR_LOCKS, "TIME"},
    {FOR_LOCKS, "GET K"},
    {FOR_LOCKS, "SET K x PX 0"},
    {FOR_LOCKS, "SETRANGE K 0 ''"},
    {FOR_LOCKS, "DEL K"},
    {FOR_LOCKS, "PTTL K"},
    {FOR_LOCKS, "PEXPIRE K x"},
    {FOR_LOCKS, "HGET S x"},
    {FOR_LOCKS, "HMGET S x"},
    {FOR_LOCKS, "HSET S x x x"},
    {FOR_LOCKS, "HDEL S x"},
    {FOR_LOCKS, "HINCRBY S x x"},
    {FOR_LOCKS, "ZADD S x x"},
    {FOR_LOCKS, "ZREM B x"},
    {FOR_LOCKS, "ZRANGE S 0 0"},
    {FOR_LOCKS, "ZRANGEBYSCORE S 0 0"},
    {FOR_LOCKS, "ZRANK S x"},
    {FOR_LOCKS, "ZSCORE S x"},
    {FOR_LOCKS, "PUBLISH @ ''"},
    {FOR_COUNTERS, "INCRBY K x", NOT_IN_SET}, /* a set has no counters */
    {FOR_WAKING, "PING"},
    {FOR_OPERATORS, "SCAN 0"},
    {FOR_OPERATORS, "HGETALL S"},
    {FOR_LOCKS, "CLUSTER|SLOTS", IN_CLUSTER},
    {FOR_LOCKS, "ASKING", IN_CLUSTER},
    {FOR_LOCKS, "WAIT 0 0", WITH_REPLICAS},
    {FOR_KEY_EVENTS, "UNSUBSCRIBE #", NOT_IN_CLUSTER},
    {FOR_WAKING, "SUBSCRIBE @"},
    {FOR_KEY_EVENTS, "SUBSCRIBE #", NOT_IN_CLUSTER},
};

static_assert(sizeof(table) / sizeof(table[0]) == RIGHTS, "rights.h has their number");

const char *rights_words(size_t which) {
    return table[which].words;
}

static bool has_slots(const struct redis *redis) {
    return redis->route && redis->route->kind->has_slots;
}

bool rights_needs(const struct redis *redis, size_t which) {
    enum when when = table[which].when;
    return when == ALWAYS || (when == IN_CLUSTER && has_slots(redis)) ||
           (when == NOT_IN_CLUSTER && !has_slots(redis)) || (when == NOT_IN_SET && !redis->set) ||
           (when == WITH_REPLICAS && redis->wait_replicas);
}

bool rights_is_denial(const struct reply *reply) {
    return reply_is_error(reply, "NOPERM") || reply_is_error(reply, "ERR unknown command");
}

/* The server refuses the command itself, the key in it, or the channel. */
void rights_note(struct rights *rights, size_t which, const struct reply *reply) {
    const char *keys = "KSB", *argument = strchr(table[which].words, ' ');
    const char *key = argument ? strchr(keys, argument[1]) : NULL;
    if (!rights_is_denial(reply))
        return;
    bool of_key = strstr(reply->text, "access a key") || strstr(reply->text, "of the keys");
    bool of_channel = strstr(reply->text, "a channel") || strstr(reply->text, "of the channels");
    if (of_key && key)
        rights->denied_key[key - keys] = true;
    else if (of_channel && argument && argument[1] == '@')
        rights->denied_channel = true;
    else if (of_channel && argument && argument[1] == '#')
        rights->denied_key_channel = true;
    else if (which != RIGHTS - 1) /* it has the same command as the previous one */
        rights->denied[which] = true;
}

/* ---- The report ---- */

struct report {
    const struct rights *rights;
    const struct redis *redis;
    bool lacks_info;
    hf_examination *to;
    bool ok; /* there was memory for all of it */
};

static const char *user_of(const struct redis *redis) {
    return redis->login.user ? redis->login.user : "default";
}

/* The missing permissions for a purpose, as ACL SETUSER takes them, with a space before each. */
static void list_denied(const struct report *report, enum purpose purpose, char ret[RIGHTS_SIZE]) {
    const struct rights *rights = report->rights;
    const char *prefix = report->redis->prefix;
    const char *open = strchr(prefix, '{'), *close = open ? strchr(open, '}') : NULL;
    bool has_tag = close && close > open + 1; /* companions then have the same tag */
    ret[0] = 0;
    for (size_t i = 0; i < RIGHTS; i++) {
        if (!rights->denied[i] || table[i].purpose != purpose)
            continue;
        error_append(ret, RIGHTS_SIZE, " +");
        for (const char *c = table[i].words; *c && *c != ' '; c++)
            error_append(ret, RIGHTS_SIZE, "%c", *c | 0x20);
    }
    if (purpose == FOR_KEY_EVENTS && rights->denied_key_channel)
        error_append(ret, RIGHTS_SIZE, " &__keyspace@*__:%s*", prefix);
    if (purpose != FOR_LOCKS)
        return;
    if (rights->denied_key[0])
        error_append(ret, RIGHTS_SIZE, " ~%s*", prefix);
    if (rights->denied_key[1] && !has_tag)
        error_append(ret, RIGHTS_SIZE, " ~{%s*}.?", prefix);
    if (rights->denied_key[2] || (rights->denied_key[1] && has_tag))
        error_append(ret, RIGHTS_SIZE, " ~{*}.?.%s*", prefix);
    if (report->redis->set && report->lacks_info) /* boot.lua calls INFO */
        error_append(ret, RIGHTS_SIZE, " +info");
    if (rights->denied_set)
        error_append(ret, RIGHTS_SIZE, " ~{%s}.set", prefix);
    if (rights->denied_channel)
        error_append(ret, RIGHTS_SIZE, " &%s*", report->redis->channels);
}

static bool report_denied(struct report *report, enum purpose purpose, hf_severity severity,
                          const char *id, const char *means) {
    char denied[RIGHTS_SIZE], fix[RIGHTS_SIZE] = "ACL SETUSER ";
    const char *user = user_of(report->redis);
    list_denied(report, purpose, denied);
    if (!denied[0])
        return false;
    error_append(fix, RIGHTS_SIZE, "%s%s%s", user, denied,
                 has_slots(report->redis) ? ", on each node" : "");
    report->ok &=
        findings_add(report->to, severity, id, means, fix, "the user \"%s\" lacks%s", user, denied);
    return true;
}

bool rights_report(const struct rights *rights, const struct redis *redis, bool lacks_info,
                   hf_examination *to) {
    struct report report = {rights, redis, lacks_info, to, true};
    bool any = report_denied(&report, FOR_LOCKS, HF_PROBLEM, "rights",
                             "some or all locks fail; if a script is refused halfway, the next one "
                             "cleans up");
    any |= report_denied(&report, FOR_COUNTERS, HF_NOTE, "counter-rights",
                         "locks are unaffected, but nothing can be added to a counter");
    any |=
        report_denied(&report, FOR_WAKING, HF_WARNING, "wake-ups",
                      "waiters are not notified that a lock is free: they ask once a second; and "
                      "a broken hold is noticed only at its next renewal");
    any |= report_denied(&report, FOR_OPERATORS, HF_WARNING, "looking",
                         "ls and watch fail (+scan), or the break of a shared lock (+hgetall)");
    any |= report_denied(&report, FOR_KEY_EVENTS, HF_NOTE, "key-rights",
                         "a lock that somebody deletes or overwrites is noticed only at its next "
                         "renewal, even if the server publishes what happens to keys");
    if (any || !report.ok)
        return report.ok;
    return findings_add(to, HF_FINE, "rights", "the server refuses nothing that holdfast does", "",
                        "the user \"%s\" has all permissions that are needed", user_of(redis));
}
