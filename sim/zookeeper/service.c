/* The model of ZooKeeper as a service of the simulator (sim/service.h). Its servers are the members
 * of one ensemble.
 *
 * The ensemble grants a lock by a transaction after which a claim on it fits. This file derives
 * that from the committed tree, by the layout in docs/stores/zookeeper.md, and not with the store's
 * own code. A grant lasts as long as the leader would keep the session if it heard nothing more. */
#include "sim/service.h"

#include "base/list.h"
#include "sim/zookeeper/ensemble.h"
#include "store/locks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t FOREVER_US = INT64_C(1000000000000);
static const char locks_path[] = "/holdfast/locks/";

/* Stale: its client has made another claim since, in another session. This one still blocks
 * others. */
enum claim_state { CLAIM_NEW, CLAIM_WAITS, CLAIM_HOLDS, CLAIM_STALE };

/* A node that claims a lock. */
struct claim {
    struct list link;
    enum claim_state state;
    char path[200], name[8], owner[LOCKS_OWNER_SIZE];
    char kind;
    uint32_t weight, capacity;
    uint32_t number;
    int64_t czxid, session;
};

/* A fault that affects members that it chooses itself, until it is over. */
struct named_fault {
    const struct plan_fault *fault;
    unsigned members;
};

struct zookeeper_service {
    struct service base;
    int number;
    struct zookeeper_service *first; /* of its ensemble; the first has the rest */
    struct ensemble *ensemble;
    int member_count;
    int64_t now_us;
    struct list claims; /* in the order of their numbers */
    struct named_fault named[PLAN_FAULTS_MAX];
    int stops[ENSEMBLE_MEMBERS_MAX]; /* faults by which a member is down */
};

struct zookeeper_connection {
    struct service_connection base;
    struct ensemble_connection *model;
};

static struct zookeeper_service *self_of(const struct service *service) {
    return container_of(service, struct zookeeper_service, base);
}

static struct zookeeper_service *first_of(const struct service *service) {
    return self_of(service)->first;
}

static struct service_host *host_of(const struct zookeeper_service *first) {
    return first->base.host;
}

/* Does what is due, and sets the timer for what comes next. */
static void go_on(struct zookeeper_service *first) {
    host_of(first)->arm(host_of(first), ensemble_run(first->ensemble));
}

/* ---- Claims ---- */

static bool parse_kind(const char *text, struct claim *claim) {
    claim->kind = text[0];
    claim->capacity = STORE_ALL;
    claim->weight = text[0] == 'x' ? STORE_ALL : 1;
    return text[0] != 'p' || sscanf(text, "p%uof%u", &claim->weight, &claim->capacity) == 2;
}

static bool parse_claim(const char *path, struct claim *claim) {
    char kind[32], client[33], seq[17];
    int end = 0;
    size_t start = sizeof(locks_path) - 1;
    if (strncmp(path, locks_path, start) != 0 ||
        sscanf(path + start, "%7[^/]/%31[xsp0-9of]-%32[0-9a-f]-%16[0-9a-f]-%u%n", claim->name, kind,
               client, seq, &claim->number, &end) != 5 ||
        path[start + (size_t)end])
        return false;
    snprintf(claim->path, sizeof(claim->path), "%s", path);
    snprintf(claim->owner, sizeof(claim->owner), "%s-%s", client, seq);
    return parse_kind(kind, claim);
}

static struct claim *find_claim(const struct zookeeper_service *first, const char *path) {
    list_each(node, &first->claims) {
        struct claim *claim = container_of(node, struct claim, link);
        if (strcmp(claim->path, path) == 0)
            return claim;
    }
    return NULL;
}

static struct claim *find_owner(const struct zookeeper_service *first, const char *name,
                                const char *owner) {
    list_each(node, &first->claims) {
        struct claim *claim = container_of(node, struct claim, link);
        if (claim->state != CLAIM_STALE && strcmp(claim->name, name) == 0 &&
            strcmp(claim->owner, owner) == 0)
            return claim;
    }
    return NULL;
}

static struct claim *last_holder(const struct zookeeper_service *first, const char *name) {
    struct claim *last = NULL;
    list_each(node, &first->claims) {
        struct claim *claim = container_of(node, struct claim, link);
        if (strcmp(claim->name, name) == 0 && claim->state == CLAIM_HOLDS)
            last = claim;
    }
    return last;
}

/* Nobody raises the token base here. */
static uint64_t token_of(const struct claim *claim) {
    return (uint64_t)claim->czxid;
}

/* ---- Reports ---- */

static void report(struct zookeeper_service *first, const struct claim *claim,
                   enum service_request request, enum service_outcome outcome) {
    host_of(first)->report(host_of(first),
                           &(struct service_report){
                               .request = request,
                               .outcome = outcome,
                               .name = claim->name,
                               .owner = claim->owner,
                               .weight = claim->weight,
                               .capacity = claim->capacity,
                               .lease_us = FOREVER_US,
                               .wait_us = FOREVER_US,
                               .token = claim->state == CLAIM_HOLDS ? token_of(claim) : 0,
                           });
}

static void add_claim(struct zookeeper_service *first, const char *path) {
    struct claim *claim = tree_allocate(NULL, sizeof(*claim));
    *claim = (struct claim){.state = CLAIM_NEW};
    if (!parse_claim(path, claim)) {
        free(claim);
        return;
    }
    struct claim *before = find_owner(first, claim->name, claim->owner);
    if (before) {
        report(first, before, SERVICE_RELEASE, SERVICE_GRANTED);
        before->state = CLAIM_STALE;
    }
    const struct tree_node *node = tree_find(ensemble_tree(first->ensemble), path);
    claim->czxid = node->stat.czxid;
    claim->session = node->stat.owner;
    list_append(&first->claims, &claim->link);
}

/* It ended as its client wanted, or with its session; or it was taken away. */
static void remove_claim(struct zookeeper_service *first, const char *path, bool taken) {
    struct claim *claim = find_claim(first, path);
    if (!claim)
        return;
    bool is_break = taken && claim->state == CLAIM_HOLDS;
    if (claim->state != CLAIM_STALE)
        report(first, claim, is_break ? SERVICE_BREAK : SERVICE_RELEASE, SERVICE_GRANTED);
    list_remove(&claim->link);
    free(claim);
}

/* Claims hold a lock starting with the first, as many as fit, and none after a claim of another
 * kind, which its client will withdraw. */
static void grant(struct zookeeper_service *first, const char *name) {
    const struct claim *head = NULL;
    uint64_t weight = 0;
    bool fits = true;
    list_each(node, &first->claims) {
        struct claim *claim = container_of(node, struct claim, link);
        if (strcmp(claim->name, name) != 0)
            continue;
        head = head ? head : claim;
        weight += claim->weight;
        bool is_alike =
            (claim->kind == 'p') == (head->kind == 'p') && claim->capacity == head->capacity;
        fits &= is_alike && weight <= head->capacity;
        if (fits && (claim->state == CLAIM_NEW || claim->state == CLAIM_WAITS)) {
            claim->state = CLAIM_HOLDS;
            report(first, claim, SERVICE_ACQUIRE, SERVICE_GRANTED);
        } else if (claim->state == CLAIM_NEW) {
            claim->state = CLAIM_WAITS;
            report(first, claim, SERVICE_ACQUIRE, SERVICE_QUEUED);
        }
    }
}

/* A holder has checked that its node exists. */
static void note_check(struct zookeeper_service *first, const struct ensemble_part *part,
                       bool done) {
    const struct claim *claim = find_claim(first, part->path);
    struct claim gone;
    if (claim && claim->state == CLAIM_HOLDS && done)
        report(first, claim, SERVICE_RENEW, SERVICE_GRANTED);
    else if (!claim && parse_claim(part->path, &gone))
        report(first, &gone, SERVICE_RENEW, SERVICE_REFUSED);
}

/* The store deletes its own claims one by one; a break deletes one together with other changes. */
static bool takes_away(const struct zookeeper_service *first, const struct ensemble_txn *txn,
                       const char *path) {
    const struct claim *claim = find_claim(first, path);
    return txn->op == OP_CLOSE_SESSION
               ? txn->by_operator
               : txn->op == OP_MULTI || (claim && claim->session != txn->session);
}

static void committed(void *owner, const struct ensemble_txn *txn) {
    struct zookeeper_service *first = owner;
    bool done = !txn->error;
    for (size_t i = 0; i < txn->count; i++)
        done &= !txn->parts[i].error;
    for (size_t i = 0; i < txn->count; i++) {
        const struct ensemble_part *part = &txn->parts[i];
        if (part->op == OP_CHECK)
            note_check(first, part, done);
        else if (part->op == OP_CREATE && done)
            add_claim(first, part->path);
        else if (part->op == OP_DELETE && done)
            remove_claim(first, part->path, takes_away(first, txn, part->path));
    }
    for (int i = 0; i < PLAN_NAMES_MAX && done; i++)
        grant(first, plan_name_text(i));
}

static void noted(void *owner, const char *line) {
    const struct zookeeper_service *first = owner;
    host_of(first)->note(host_of(first), line);
}

static uint64_t chance(void *owner) {
    const struct zookeeper_service *first = owner;
    return host_of(first)->random(host_of(first));
}

/* ---- Connections ---- */

static void send_to(void *context, const char *bytes, size_t size, bool pushed) {
    const struct zookeeper_connection *connection = context;
    connection->base.service->host->send(connection->base.context, bytes, size, pushed);
}

static void close_to(void *context) {
    const struct zookeeper_connection *connection = context;
    connection->base.service->host->close(connection->base.context);
}

static void executed(void *context, const char *line, bool minor) {
    const struct zookeeper_connection *connection = context;
    connection->base.service->host->executed(connection->base.context, line, minor);
}

static const struct ensemble_events events = {
    .send = send_to,
    .close = close_to,
    .executed = executed,
    .committed = committed,
    .note = noted,
    .random = chance,
};

static struct service_connection *zookeeper_connect(struct service *service, void *context) {
    struct zookeeper_connection *connection = tree_allocate(NULL, sizeof(*connection));
    connection->base = (struct service_connection){service, context};
    connection->model =
        ensemble_connect(first_of(service)->ensemble, self_of(service)->number, connection);
    return &connection->base;
}

static void zookeeper_disconnect(struct service_connection *base) {
    struct zookeeper_connection *connection = container_of(base, struct zookeeper_connection, base);
    ensemble_disconnect(connection->model);
    free(connection);
}

static size_t zookeeper_feed(struct service_connection *base, const char *bytes, size_t size) {
    struct zookeeper_connection *connection = container_of(base, struct zookeeper_connection, base);
    size_t used = ensemble_feed(connection->model, bytes, size);
    go_on(first_of(base->service));
    return used;
}

/* A client has one connection, for requests and events. */
static bool zookeeper_listens(const struct service_connection *connection) {
    (void)connection;
    return false;
}

/* ---- Life ---- */

static struct service *zookeeper_open(void) {
    struct zookeeper_service *self = tree_allocate(NULL, sizeof(*self));
    *self = (struct zookeeper_service){.first = self};
    list_init(&self->claims);
    return &self->base;
}

static void zookeeper_reset(struct service *service) {
    struct zookeeper_service *self = self_of(service);
    struct list *node;
    while ((node = list_pop(&self->claims)))
        free(container_of(node, struct claim, link));
    ensemble_free(self->ensemble);
    self->ensemble = NULL;
    self->now_us = 0;
    memset(self->named, 0, sizeof(self->named));
    memset(self->stops, 0, sizeof(self->stops));
}

/* A member may be slow, but not slower than a quarter of a tick: a session relies on the leader's
 * regular pings (see the design notes of src/store/zookeeper/session.c). */
static void zookeeper_unite(struct service *const *members, int count) {
    static const int64_t ticks_ms[] = {100, 500, 1000, 2000};
    struct zookeeper_service *first = self_of(members[0]);
    struct ensemble_config config = {.events = &events, .owner = first, .member_count = count};
    config.tick_us = ticks_ms[chance(first) % 4] * 1000;
    config.sync_limit = 2 + (int)(chance(first) % 15);
    config.containers_us = INT64_C(1000000) + (int64_t)(chance(first) % 14000000);
    for (int i = 0; i < count; i++) {
        self_of(members[i])->number = i;
        self_of(members[i])->first = first;
        config.delay_us[i] = chance(first) % 2 ? (int64_t)(chance(first) % 5000) : 0;
    }
    first->member_count = count;
    first->ensemble = ensemble_new(&config, first->now_us);
    go_on(first);
}

static void zookeeper_set_time(struct service *service, int64_t wall_us) {
    struct zookeeper_service *first = first_of(service);
    first->now_us = wall_us;
    if (first->ensemble)
        ensemble_set_time(first->ensemble, wall_us);
}

static void zookeeper_expire(struct service *service) {
    go_on(first_of(service));
}

/* ---- Its own faults ---- */

enum zookeeper_fault {
    ZOOKEEPER_END_SESSION,
    ZOOKEEPER_ELECT,
    ZOOKEEPER_LAG,
    ZOOKEEPER_CUT_OFF,
    ZOOKEEPER_DELETE,
    ZOOKEEPER_STOP,
    ZOOKEEPER_STOP_ALL,
};

static const struct service_fault zookeeper_faults[] = {
    {FAULT_CUT},
    {FAULT_LOSE_REPLY},
    {FAULT_BLOCK_UP},
    {FAULT_BLOCK_DOWN},
    {FAULT_PARTITION},
    {FAULT_SLOW},
    {FAULT_DELAY},
    {FAULT_REFUSE},
    {FAULT_STALL},
    {FAULT_OWN, ZOOKEEPER_END_SESSION, "an operator ends a session", .calm = true},
    {FAULT_OWN, ZOOKEEPER_ELECT, "the leader's process ends"},
    {FAULT_OWN, ZOOKEEPER_LAG, "members lag behind"},
    {FAULT_OWN, ZOOKEEPER_CUT_OFF, "members are cut off from the others"},
    {FAULT_OWN, ZOOKEEPER_DELETE, "somebody deletes a holder's node", .calm = true},
    {FAULT_OWN, ZOOKEEPER_STOP, "members are down"},
    {FAULT_OWN, ZOOKEEPER_STOP_ALL, "all members are down"},
    {FAULT_SLEW},
    {FAULT_WALL},
    {FAULT_PAUSE},
    {FAULT_KILL},
    {FAULT_BREAK},
};

static void stop(struct zookeeper_service *first, int member, bool begins) {
    first->stops[member] += begins ? 1 : -1;
    if (begins)
        ensemble_stop(first->ensemble, member);
    else if (!first->stops[member])
        ensemble_start(first->ensemble, member);
}

static struct named_fault *name_fault(struct zookeeper_service *first,
                                      const struct plan_fault *fault) {
    struct named_fault *named = first->named;
    while (named->fault && named->fault != fault)
        named++;
    named->fault = fault;
    return named;
}

/* The member that leads now is back when the fault is over. */
static void stop_leader(struct zookeeper_service *first, const struct plan_fault *fault,
                        bool begins) {
    struct named_fault *named = name_fault(first, fault);
    int leader = ensemble_leader(first->ensemble);
    if (begins)
        named->members = leader >= 0 ? 1u << leader : 0;
    for (int i = 0; i < first->member_count; i++) {
        if (named->members & 1u << i)
            stop(first, i, begins);
    }
}

/* Cuts off some members, or the present leader. */
static void cut_off(struct zookeeper_service *first, const struct plan_fault *fault, bool begins) {
    struct named_fault *named = name_fault(first, fault);
    int leader = ensemble_leader(first->ensemble);
    if (begins)
        named->members = fault->amount % 2 && leader >= 0 ? 1u << leader : fault->servers;
    ensemble_cut(first->ensemble, named->members, begins);
}

static void take_away(struct zookeeper_service *first, const struct plan_fault *fault,
                      bool session) {
    const struct claim *claim = last_holder(first, plan_name_text(fault->name));
    if (claim && session)
        ensemble_end_session(first->ensemble, claim->session);
    else if (claim)
        ensemble_delete(first->ensemble, claim->path);
}

/* For a fault that affects several members, the lowest one is called first. */
static bool is_called_first(const struct zookeeper_service *self, const struct plan_fault *fault) {
    return !(fault->servers & ((1u << self->number) - 1));
}

static void zookeeper_befall(struct service *service, int number, const struct plan_fault *fault,
                             bool begins) {
    const struct zookeeper_service *self = self_of(service);
    struct zookeeper_service *first = self->first;
    bool once = is_called_first(self, fault);
    switch ((enum zookeeper_fault)number) {
    case ZOOKEEPER_END_SESSION:
    case ZOOKEEPER_DELETE:
        if (begins && once)
            take_away(first, fault, number == ZOOKEEPER_END_SESSION);
        break;
    case ZOOKEEPER_ELECT:
        if (once)
            stop_leader(first, fault, begins);
        break;
    case ZOOKEEPER_LAG:
        ensemble_lag(first->ensemble, self->number, begins ? fault->amount * 50 : 0);
        break;
    case ZOOKEEPER_CUT_OFF:
        if (once)
            cut_off(first, fault, begins);
        break;
    case ZOOKEEPER_STOP:
        stop(first, self->number, begins);
        break;
    case ZOOKEEPER_STOP_ALL:
        for (int i = 0; i < first->member_count && once; i++)
            stop(first, i, begins);
        break;
    }
    go_on(first);
}

/* ---- For checkers ---- */

static int64_t zookeeper_held_until_us(const struct service *service, const char *name,
                                       const char *owner) {
    const struct zookeeper_service *first = first_of(service);
    const struct claim *claim = find_owner(first, name, owner);
    return claim && claim->state == CLAIM_HOLDS
               ? ensemble_session_until_us(first->ensemble, claim->session)
               : INT64_MIN;
}

static const char *zookeeper_holder(const struct service *service, const char *name) {
    const struct claim *last = last_holder(first_of(service), name);
    return last && last->weight == last->capacity ? last->owner : NULL;
}

/* The next claim holds the lock at once, so nothing is ever reserved. */
static bool zookeeper_is_reserved(const struct service *service, const char *name,
                                  const char *owner) {
    (void)service, (void)name, (void)owner;
    return false;
}

static uint64_t zookeeper_last_token(const struct service *service, const char *name) {
    const struct claim *last = last_holder(first_of(service), name);
    return last ? token_of(last) : 0;
}

static bool zookeeper_find_counter(const struct service *service, const char *name,
                                   int64_t *ret_value, bool *ret_ends) {
    char path[100];
    snprintf(path, sizeof(path), "/holdfast/counters/%s", name);
    const struct tree_node *node = tree_find(ensemble_tree(first_of(service)->ensemble), path);
    if (!node || !node->data[0])
        return false;
    *ret_value = strtoll(node->data, NULL, 10);
    *ret_ends = false;
    return true;
}

/* A container that never had a child stays: a real server also keeps it. */
static const char *zookeeper_remains(const struct service *service) {
    static char text[260];
    const struct zookeeper_service *first = first_of(service);
    const struct tree *tree = ensemble_tree(first->ensemble);
    for (size_t i = 0; i < tree->count; i++) {
        const struct tree_node *node = tree->nodes[i];
        bool is_claim = strncmp(node->path, locks_path, sizeof(locks_path) - 1) == 0;
        if (is_claim && (node->stat.owner != TREE_CONTAINER || node->stat.created)) {
            snprintf(text, sizeof(text), "%s stays behind", node->path);
            return text;
        }
    }
    return ensemble_session_count(first->ensemble) ? "a session stays behind" : NULL;
}

extern const struct store_driver zookeeper_store_driver;

const struct service_type service_zookeeper = {
    .scheme = "zookeeper",
    .url_options = "plaintext=yes&timeout=1000&connect_timeout=1000",
    .driver = &zookeeper_store_driver,
    .told_within_us = 500000,
    .faults = zookeeper_faults,
    .fault_count = sizeof(zookeeper_faults) / sizeof(zookeeper_faults[0]),
    .open = zookeeper_open,
    .reset = zookeeper_reset,
    .set_time = zookeeper_set_time,
    .expire = zookeeper_expire,
    .unite = zookeeper_unite,
    .befall = zookeeper_befall,
    .connect = zookeeper_connect,
    .disconnect = zookeeper_disconnect,
    .feed = zookeeper_feed,
    .listens = zookeeper_listens,
    .held_until_us = zookeeper_held_until_us,
    .holder = zookeeper_holder,
    .is_reserved = zookeeper_is_reserved,
    .last_token = zookeeper_last_token,
    .find_counter = zookeeper_find_counter,
    .counters_stay = true,
    .remains = zookeeper_remains,
};
