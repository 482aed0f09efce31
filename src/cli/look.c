/* Looking at locks. */
#include "cli/look.h"

#include "cli/text.h"

#include <errno.h>
#include <string.h>
#include <time.h>

enum { PAGE = 200 };

/* ---- Walking ---- */

int look_next(struct look *look, hf_locks **ret_page) {
    hf_locks *page;
    int r = hf_list(look->client, look->prefix, look->begun ? look->after : NULL, PAGE, &page);
    if (r < 0)
        return r;
    size_t count = hf_locks_count(page);
    if (count) {
        look->begun = true;
        snprintf(look->after, sizeof(look->after), "%s", hf_locks_at(page, count - 1)->name);
    }
    *ret_page = count ? page : hf_locks_free(page);
    return HF_OK;
}

int look_each(hf_client *client, const char *prefix, look_fn *fn, void *arg) {
    struct look look = {.client = client, .prefix = prefix};
    bool more = true;
    while (more) {
        hf_locks *page;
        int r = look_next(&look, &page);
        if (r < 0)
            return r;
        more = page != NULL;
        for (size_t i = 0; more && i < hf_locks_count(page); i++)
            more = fn(arg, hf_locks_at(page, i));
        hf_locks_free(page);
    }
    return HF_OK;
}

int64_t look_wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

const hf_party *look_first_holder(const hf_lock_info *info) {
    const hf_party *first = NULL;
    for (size_t i = 0; i < info->holder_count; i++) {
        if (!first || info->holders[i]->since_ms < first->since_ms)
            first = info->holders[i];
    }
    return first;
}

const hf_party *look_most_votes(const hf_lock_info *info) {
    const hf_party *most = NULL;
    for (size_t i = 0; i < info->waiter_count; i++) {
        if (!most || info->waiters[i]->votes > most->votes)
            most = info->waiters[i];
    }
    return most;
}

const hf_party *look_holder_with(const hf_lock_info *info, uint64_t token) {
    for (size_t i = 0; i < info->holder_count; i++) {
        if (info->holders[i]->token == token)
            return info->holders[i];
    }
    return NULL;
}

/* ---- Kinds ---- */

static const char *kind_of_party(const hf_lock_info *info, const hf_party *party) {
    if (info->kind == HF_PERMITS)
        return "permits";
    return party->weight > 1 ? "exclusive" : "shared"; /* a shared hold weighs 1 */
}

static const char *kind_of_lock(const hf_lock_info *info) {
    return info->kind == HF_PERMITS ? "permits" : info->kind == HF_SHARED ? "shared" : "exclusive";
}

/* ---- For people ---- */

bool look_is_foreign(const hf_party *party) {
    return !*party->host && !party->pid;
}

char *look_process(char *ret, size_t size, const hf_party *party) {
    char host[LOOK_NAME_SIZE];
    if (look_is_foreign(party))
        return text_safe(ret, size, *party->label ? party->label : "?");
    snprintf(ret, size, "%s pid %lld",
             *party->host ? text_safe(host, sizeof(host), party->host) : "?",
             (long long)party->pid);
    return ret;
}

char *look_party(char *ret, size_t size, const hf_party *party) {
    char words[LOOK_NAME_SIZE];
    const char *what = *party->label ? party->label : party->command;
    size_t used = strlen(look_process(ret, size, party));
    if (*what && !look_is_foreign(party))
        snprintf(ret + used, size - used, " (%s)", text_safe(words, sizeof(words), what));
    return ret;
}

char *look_kind(char *ret, size_t size, const hf_lock_info *info) {
    uint64_t used = 0;
    for (size_t i = 0; i < info->holder_count; i++)
        used += info->holders[i]->weight;
    if (info->kind == HF_PERMITS)
        snprintf(ret, size, "permits %llu/%u", (unsigned long long)used, (unsigned)info->capacity);
    else if (info->holder_count)
        snprintf(ret, size, "%s", kind_of_party(info, info->holders[0]));
    else
        snprintf(ret, size, "%s", kind_of_lock(info));
    return ret;
}

char *look_time(char *ret, size_t size, int64_t wall_ms) {
    struct tm parts;
    time_t seconds = wall_ms / 1000;
    if (!localtime_r(&seconds, &parts) || !strftime(ret, size, "%Y-%m-%d %H:%M:%S", &parts))
        snprintf(ret, size, "?");
    return ret;
}

/* ---- For programs ---- */

void look_put_party(struct json *json, const char *key, const hf_lock_info *info,
                    const hf_party *party) {
    json_object(json, key);
    json_string(json, "owner", party->owner);
    json_string(json, "host", party->host);
    json_number(json, "pid", party->pid);
    json_string(json, "command", party->command);
    json_string(json, "label", party->label);
    json_string(json, "kind", kind_of_party(info, party));
    json_number(json, "permits", info->kind == HF_PERMITS ? party->weight : 1);
    json_token(json, "token", party->token);
    json_number(json, "since_ms", party->since_ms);
    json_number(json, "left_ms", party->left_ms);
    json_number(json, "votes", party->votes);
    json_object_end(json);
}

static void put_parties(struct json *json, const char *key, const hf_lock_info *info,
                        const hf_party *const *parties, size_t count) {
    json_array(json, key);
    for (size_t i = 0; i < count; i++)
        look_put_party(json, NULL, info, parties[i]);
    json_array_end(json);
}

static void put_nodes(struct json *json, const hf_lock_info *info) {
    json_array(json, "nodes");
    for (size_t i = 0; i < info->node_count; i++) {
        const hf_node *node = info->nodes[i];
        json_object(json, NULL);
        json_string(json, "name", node->name);
        json_string(json, "failure", *node->failure ? node->failure : NULL);
        json_token(json, "token", node->token);
        put_parties(json, "holders", info, node->holders, node->holder_count);
        json_object_end(json);
    }
    json_array_end(json);
}

static void put_break(struct json *json, const hf_lock_info *info) {
    if (!info->broken_ms) {
        json_string(json, "broken", NULL);
        return;
    }
    json_object(json, "broken");
    json_number(json, "at_ms", info->broken_ms);
    json_token(json, "token", info->broken_token);
    json_string(json, "by", info->broken_by);
    json_string(json, "reason", info->broken_reason);
    json_object_end(json);
}

void look_put_lock(struct json *json, const hf_lock_info *info) {
    json_string(json, "name", info->name);
    json_bool(json, "held", info->holder_count > 0);
    json_string(json, "kind", kind_of_lock(info));
    json_number(json, "capacity", info->kind == HF_PERMITS ? info->capacity : 1);
    json_token(json, "token", info->token);
    put_parties(json, "holders", info, info->holders, info->holder_count);
    put_parties(json, "waiters", info, info->waiters, info->waiter_count);
    put_break(json, info);
    json_number(json, "quorum", info->quorum);
    put_nodes(json, info);
}
