/* INSPECT, LIST and BREAK. Each reads locks in two steps: the claims on each lock, then the data of
 * each claim's node. A member that lags behind catches up first, so that every earlier grant is
 * found. Only BREAK changes something. */
#include "store/zookeeper/look.h"

#include "base/error.h"
#include "store/locks.h"
#include "store/zookeeper/zookeeper.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOCKS_AT_ONCE = 64, VALUE_SIZE = 1024 };

/* ---- Data of nodes ---- */

static void append_value(char *text, size_t room, const char *word, const char *value) {
    if (!value || !*value)
        return;
    error_append(text, room, "%s ", word);
    for (const unsigned char *at = (const unsigned char *)value; *at; at++)
        error_append(text, room, *at >= ' ' && *at <= '~' && *at != '%' ? "%c" : "%%%02x", *at);
    error_append(text, room, "\n");
}

static char *value_buffer(const char *const *values, size_t count, size_t *ret_room) {
    *ret_room = 256;
    for (size_t i = 0; i < count; i++)
        *ret_room += values[i] ? 3 * strlen(values[i]) + 32 : 0;
    return calloc(1, *ret_room);
}

char *look_format_party(const struct store_host *host, const struct store_op *op, uint64_t base) {
    const struct store_identity *who = &host->identity;
    const char *values[] = {who->host, who->command, op->label};
    size_t room;
    char *text = value_buffer(values, 3, &room);
    if (!text)
        return NULL;
    append_value(text, room, "host", who->host);
    error_append(text, room, "pid %" PRId64 "\n", who->pid);
    append_value(text, room, "command", who->command);
    append_value(text, room, "label", op->label);
    error_append(text, room, "lease_ms %" PRId64 "\n", op->lease_us / 1000);
    if (base)
        error_append(text, room, "token_base %" PRIu64 "\n", base);
    return text;
}

static int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The value of a word; "": it has none. A value that is too long is cut. */
static const char *value_of(const char *data, const char *word, char ret_value[VALUE_SIZE]) {
    size_t size = strlen(word), used = 0;
    const char *line = data;
    while (line && *line && (strncmp(line, word, size) != 0 || line[size] != ' ')) {
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    const char *at = line && *line ? line + size + 1 : "";
    for (; *at && *at != '\n' && used < VALUE_SIZE - 1; at++) {
        int high = *at == '%' ? digit(at[1]) : -1, low = high >= 0 ? digit(at[2]) : -1;
        ret_value[used++] = low >= 0 ? (char)(high << 4 | low) : *at;
        at += low >= 0 ? 2 : 0;
    }
    ret_value[used] = 0;
    return ret_value;
}

/* What another library has written, whatever that is. */
static const char *cut(const char *data, char ret_value[VALUE_SIZE]) {
    snprintf(ret_value, VALUE_SIZE, "%s", data);
    return ret_value;
}

static int64_t number_of(const char *data, const char *word) {
    char value[VALUE_SIZE];
    return strtoll(value_of(data, word, value), NULL, 10);
}

static uint64_t base_of(const char *data) {
    int64_t base = number_of(data, "token_base");
    return base > 0 && base < (int64_t)STORE_TOKEN_LIMIT ? (uint64_t)base : 0;
}

uint64_t look_base(struct codec_text data) {
    char *text = strndup(data.bytes, data.size);
    uint64_t base = text ? base_of(text) : 0;
    free(text);
    return base;
}

uint64_t look_number(struct codec_text text) {
    uint64_t number = 0;
    for (size_t i = 0; i < text.size; i++) {
        int value = digit(text.bytes[i]);
        if (value < 0 || value > 9 || number >= STORE_TOKEN_LIMIT)
            return 0;
        number = number * 10 + (uint64_t)value;
    }
    return number;
}

/* ---- Reading locks ---- */

struct party {
    struct codec_stat stat;
    char *data; /* NULL: it is gone by now */
};

struct view {
    char *name, *path;
    char *data; /* of the lock's node: the last break */
    int64_t last_zxid;
    struct names_claim *claims;
    struct party *parties;
    size_t count, holders;
    bool exists;
};

struct looking {
    struct hf_locks *locks;
    char **names; /* LIST: those that fit, sorted */
    size_t name_count, next_name;
    struct view views[LOCKS_AT_ONCE];
    size_t view_count;
    uint64_t base;
    int32_t error;
    zk_step *then; /* when the views have been read */
};

static void clear_views(struct looking *l) {
    for (size_t i = 0; i < l->view_count; i++) {
        struct view *view = &l->views[i];
        for (size_t j = 0; view->parties && j < view->count; j++)
            free(view->parties[j].data);
        free(view->name);
        free(view->path);
        free(view->data);
        free(view->claims);
        free(view->parties);
    }
    memset(l->views, 0, sizeof(l->views));
    l->view_count = 0;
}

static void free_looking(void *work) {
    struct looking *l = work;
    if (!l)
        return;
    clear_views(l);
    for (size_t i = 0; i < l->name_count; i++)
        free(l->names[i]);
    free(l->names);
    hf_locks_free(l->locks);
    free(l);
}

static bool add_view(struct zk_task *task, const char *name) {
    struct looking *l = task->work;
    struct view *view = &l->views[l->view_count++];
    view->name = strdup(name);
    view->path = zookeeper_lock_path(task->zk, name);
    return view->name && view->path;
}

static void note_error(struct looking *l, int32_t error) {
    if (error != ZK_OK && error != ZK_NO_NODE)
        l->error = error;
}

static void party_answered(struct zk_request *request, const struct codec_header *header,
                           struct codec_in *in) {
    struct zk_task *task = request->context;
    struct looking *l = task->work;
    struct view *view = &l->views[request->part >> 32];
    struct party *party = &view->parties[request->part & UINT32_MAX];
    if (task_has_reply(request, header)) {
        note_error(l, header->error);
        if (header->error == ZK_OK) {
            struct codec_text data = codec_text(in);
            party->stat = codec_stat(in);
            party->data = strndup(data.bytes, data.size);
            task->no_memory |= !party->data;
        }
    }
    task_answered(task);
}

static void parties_read(struct zk_task *task) {
    struct looking *l = task->work;
    if (l->error)
        task_fail(task, l->error);
    else
        l->then(task);
}

static void read_party(struct zk_task *task, size_t view, size_t party) {
    struct looking *l = task->work;
    struct zk_request *request = task_request(task, party_answered, (uint64_t)view << 32 | party);
    char *path = error_format("%s/%s", l->views[view].path, l->views[view].claims[party].node);
    task->no_memory |= !path;
    if (request && path) {
        codec_get_data(&request->out, request->xid, path, false);
        task_send(task, request);
    } else {
        free(request);
    }
    free(path);
}

static void claims_read(struct zk_task *task) {
    struct looking *l = task->work;
    if (l->error) {
        task_fail(task, l->error);
        return;
    }
    task_step(task, parties_read);
    for (size_t i = 0; i < l->view_count && !task->no_memory; i++) {
        struct view *view = &l->views[i];
        view->holders = names_holders(view->claims, view->count);
        view->parties = calloc(view->count + 1, sizeof(*view->parties));
        task->no_memory |= !view->parties;
        for (size_t j = 0; j < view->count && !task->no_memory; j++)
            read_party(task, i, j);
    }
    task_sent(task);
}

enum { OF_CLAIMS, OF_LOCK, OF_BASE };

static void note_claims(struct zk_task *task, struct view *view, const struct codec_header *header,
                        struct codec_in *in) {
    view->exists = header->error == ZK_OK;
    free(view->claims); /* of an attempt whose connection was lost */
    view->claims = NULL;
    view->count = 0;
    if (!view->exists)
        return;
    if (names_read_claims(task->zk->layout, in, &view->claims, &view->count) < 0)
        task->no_memory = true;
    view->last_zxid = codec_stat(in).pzxid;
}

static void lock_answered(struct zk_request *request, const struct codec_header *header,
                          struct codec_in *in) {
    struct zk_task *task = request->context;
    struct looking *l = task->work;
    struct view *view = &l->views[request->part >> 32];
    if (!task_has_reply(request, header)) {
        task_answered(task);
        return;
    }
    note_error(l, header->error);
    if ((request->part & UINT32_MAX) == OF_CLAIMS) {
        note_claims(task, view, header, in);
    } else if (header->error == ZK_OK) {
        struct codec_text data = codec_text(in);
        if ((request->part & UINT32_MAX) == OF_BASE) {
            l->base = look_number(data);
        } else {
            free(view->data);
            view->data = strndup(data.bytes, data.size);
            task->no_memory |= !view->data;
        }
    }
    task_answered(task);
}

static void read_node(struct zk_task *task, uint64_t part, const char *path) {
    struct zk_request *request = task_request(task, lock_answered, part);
    if (!request)
        return;
    if ((part & UINT32_MAX) == OF_CLAIMS)
        codec_get_children(&request->out, request->xid, path, false);
    else
        codec_get_data(&request->out, request->xid, path, false);
    task_send(task, request);
}

/* Reads the locks of the views, then continues with `then`. */
static void read_views(struct zk_task *task, zk_step *then) {
    struct looking *l = task->work;
    bool has_base = !task->zk->layout->is_foreign;
    char *base = has_base ? zookeeper_base_path(task->zk) : NULL;
    l->then = then;
    l->error = ZK_OK;
    task_step(task, claims_read);
    task_catch_up(task);
    task->no_memory |= has_base && !base;
    for (size_t i = 0; i < l->view_count && !task->no_memory; i++) {
        read_node(task, (uint64_t)i << 32 | OF_CLAIMS, l->views[i].path);
        read_node(task, (uint64_t)i << 32 | OF_LOCK, l->views[i].path);
    }
    if (base && !task->no_memory)
        read_node(task, OF_BASE, base);
    free(base);
    task_sent(task);
}

/* ---- What people see ---- */

/* The token of a claim that holds, from the base in its node: another base may be set by now. */
static uint64_t token_of(const struct view *view, size_t index) {
    const struct party *party = &view->parties[index];
    assert(view->claims);
    bool has_base = party->data && !view->claims[index].is_foreign;
    return (uint64_t)party->stat.czxid + (has_base ? base_of(party->data) : 0);
}

static bool add_party(struct looking *l, const struct view *view, size_t index) {
    const struct party *party = &view->parties[index];
    const struct names_claim *claim = &view->claims[index];
    bool holds = index < view->holders;
    char host[VALUE_SIZE], command[VALUE_SIZE], label[VALUE_SIZE];
    if (!party->data)
        return true;
    assert(view->claims);
    hf_party info = {
        .host = value_of(party->data, "host", host),
        .command = value_of(party->data, "command", command),
        .label =
            claim->is_foreign ? cut(party->data, label) : value_of(party->data, "label", label),
        .pid = number_of(party->data, "pid"),
        .token = holds ? token_of(view, index) : 0,
        .weight = claim->weight,
        .since_ms = party->stat.ctime_ms,
        .left_ms = claim->is_foreign ? -1 : number_of(party->data, "lease_ms"),
    };
    return locks_add_party(l->locks, holds ? LOCKS_HOLDER : LOCKS_WAITER, &info, claim->client,
                           claim->seq);
}

/* The largest token that may have been granted: no token is beyond the last change. */
static uint64_t last_token(const struct looking *l, const struct view *view) {
    uint64_t token = 0;
    for (size_t i = 0; i < view->holders; i++) {
        uint64_t of_holder = token_of(view, i);
        token = of_holder > token ? of_holder : token;
    }
    return view->holders ? token : (uint64_t)view->last_zxid + l->base;
}

static bool add_lock(struct looking *l, const struct view *view) {
    char by[VALUE_SIZE], reason[VALUE_SIZE];
    struct locks_break last = {
        .at_us = number_of(view->data, "broken_us"),
        .token = (uint64_t)number_of(view->data, "token"),
        .by = value_of(view->data, "by", by),
        .reason = value_of(view->data, "reason", reason),
    };
    const struct names_claim *first = view->count ? view->claims : NULL;
    bool ok = locks_add(l->locks, view->name, first ? (enum store_kind)first->kind : STORE_LOCK,
                        first ? first->capacity : STORE_ALL, last_token(l, view)) &&
              (!last.at_us || locks_set_break(l->locks, &last));
    for (size_t i = 0; ok && i < view->count; i++)
        ok = add_party(l, view, i);
    return ok;
}

static void finish_look(struct zk_task *task, bool ok) {
    struct looking *l = task->work;
    if (!ok) {
        task_refuse(task, HF_NO_MEMORY, NULL);
        return;
    }
    task->op->locks = l->locks;
    l->locks = NULL;
    task_done(task, STORE_DONE);
}

/* ---- Inspect ---- */

static void inspected(struct zk_task *task) {
    struct looking *l = task->work;
    l->locks = locks_new();
    finish_look(task, l->locks && (!l->views[0].exists || add_lock(l, &l->views[0])));
}

static void inspect_start(struct zk_task *task) {
    clear_views(task->work);
    if (add_view(task, task->op->name))
        read_views(task, inspected);
    else
        task_refuse(task, HF_NO_MEMORY, NULL);
}

/* ---- List ---- */

static void list_more(struct zk_task *task);

static void listed(struct zk_task *task) {
    struct looking *l = task->work;
    bool ok = true;
    for (size_t i = 0; ok && i < l->view_count; i++) {
        bool is_used = l->views[i].count > 0;
        if (is_used && hf_locks_count(l->locks) < task->op->limit)
            ok = add_lock(l, &l->views[i]);
    }
    l->next_name += l->view_count;
    if (ok && l->next_name < l->name_count && hf_locks_count(l->locks) < task->op->limit)
        list_more(task);
    else
        finish_look(task, ok);
}

static void list_more(struct zk_task *task) {
    struct looking *l = task->work;
    bool ok = true;
    clear_views(l);
    while (ok && l->view_count < LOCKS_AT_ONCE && l->next_name + l->view_count < l->name_count)
        ok = add_view(task, l->names[l->next_name + l->view_count]);
    if (ok)
        read_views(task, listed);
    else
        task_refuse(task, HF_NO_MEMORY, NULL);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void note_names(struct zk_task *task, struct codec_in *in) {
    struct looking *l = task->work;
    const struct store_op *op = task->op;
    size_t count = codec_count(in);
    l->names = calloc(count + 1, sizeof(*l->names));
    task->no_memory |= !l->names;
    for (size_t i = 0; i < count && !task->no_memory; i++) {
        char name[256];
        if (!names_decode(codec_text(in), name) || strncmp(name, op->name, strlen(op->name)) != 0 ||
            (op->after && strcmp(name, op->after) <= 0))
            continue;
        l->names[l->name_count] = strdup(name);
        task->no_memory |= !l->names[l->name_count++];
    }
    if (!task->no_memory)
        qsort(l->names, l->name_count, sizeof(*l->names), by_name);
}

static void names_answered(struct zk_request *request, const struct codec_header *header,
                           struct codec_in *in) {
    struct zk_task *task = request->context;
    struct looking *l = task->work;
    if (task_has_reply(request, header)) {
        note_error(l, header->error);
        if (header->error == ZK_OK)
            note_names(task, in);
    }
    task_answered(task);
}

static void names_read(struct zk_task *task) {
    struct looking *l = task->work;
    l->locks = l->error ? NULL : locks_new();
    if (l->error)
        task_fail(task, l->error);
    else if (l->locks && l->name_count > 0)
        list_more(task);
    else
        finish_look(task, l->locks);
}

static void list_start(struct zk_task *task) {
    struct looking *fresh = calloc(1, sizeof(*fresh));
    free_looking(task->work);
    task->work = fresh;
    if (!fresh) {
        task_refuse(task, HF_NO_MEMORY, NULL);
        return;
    }
    task_step(task, names_read);
    task_catch_up(task);
    struct zk_request *request = task_request(task, names_answered, 0);
    char *path = zookeeper_locks_path(task->zk);
    task->no_memory |= !path;
    if (request && path) {
        codec_get_children(&request->out, request->xid, path, false);
        task_send(task, request);
    } else {
        free(request);
    }
    free(path);
    task_sent(task);
}

/* ---- Break ---- */

static void broken(struct zk_task *task) {
    int32_t error = ((struct looking *)task->work)->error;
    if (error == ZK_OK)
        task_done(task, STORE_DONE);
    else if (error == ZK_NO_NODE)
        task_done(task, task->uncertain ? STORE_UNKNOWN : STORE_NOT_YOURS);
    else
        task_fail(task, error);
}

static void break_answered(struct zk_request *request, const struct codec_header *header,
                           struct codec_in *in) {
    struct zk_task *task = request->context;
    struct looking *l = task->work;
    size_t index;
    if (task_has_reply(request, header))
        l->error = header->error ? header->error : codec_multi_result(in, &index);
    task_answered(task);
}

static char *format_break(const struct zk_task *task) {
    const struct store_op *op = task->op;
    char by[LOCKS_BREAKER_SIZE];
    locks_format_breaker(&task->zk->host->identity, by);
    const char *values[] = {by, op->label};
    size_t room;
    char *text = value_buffer(values, 2, &room);
    if (!text)
        return NULL;
    error_append(text, room, "broken_us %" PRId64 "\ntoken %" PRIu64 "\n",
                 world_wall_us(task->zk->host->world), op->token);
    append_value(text, room, "by", by);
    append_value(text, room, "reason", op->label);
    return text;
}

/* In the layout of another library, something else may be stored there. */
static bool has_room_for_break(const struct view *view) {
    return !view->data || !*view->data || number_of(view->data, "broken_us") > 0;
}

/* The node of a hold is never used for another, so deleting it cannot end another's. */
static void break_hold(struct zk_task *task) {
    struct looking *l = task->work;
    const struct view *view = &l->views[0];
    size_t i = 0;
    while (i < view->holders && (!view->parties[i].data || token_of(view, i) != task->op->token))
        i++;
    if (i == view->holders) {
        task_done(task, task->uncertain ? STORE_UNKNOWN : STORE_NOT_YOURS);
        return;
    }
    char *path = error_format("%s/%s", view->path, view->claims[i].node);
    char *data = format_break(task);
    task_step(task, broken);
    task->no_memory |= !path || !data;
    struct zk_request *request = task_request(task, break_answered, 0);
    if (request && path && data) {
        request->writes = true;
        codec_multi_begin(&request->out, request->xid);
        codec_multi_delete(&request->out, path);
        if (has_room_for_break(view))
            codec_multi_set_data(&request->out, view->path, data, ANY_VERSION);
        codec_multi_end(&request->out);
        task_send(task, request);
    } else {
        free(request);
    }
    free(path);
    free(data);
    task_sent(task);
}

static void break_start(struct zk_task *task) {
    clear_views(task->work);
    if (add_view(task, task->op->name))
        read_views(task, break_hold);
    else
        task_refuse(task, HF_NO_MEMORY, NULL);
}

static void start(struct zookeeper *zk, struct store_op *op, zk_step *first) {
    struct zk_task *task = task_new(zk, op, first);
    if (!task)
        return;
    task->work = calloc(1, sizeof(struct looking));
    task->free_work = free_looking;
    if (task->work)
        first(task);
    else
        task_refuse(task, HF_NO_MEMORY, NULL);
}

void zookeeper_look(struct zookeeper *zk, struct store_op *op) {
    start(zk, op, op->type == STORE_LIST ? list_start : inspect_start);
}

void zookeeper_break(struct zookeeper *zk, struct store_op *op) {
    start(zk, op, break_start);
}
