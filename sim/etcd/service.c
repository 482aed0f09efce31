/* The model of an etcd cluster as a service of the simulator (sim/service.h). The first server owns
 * the cluster.
 *
 * Checkers see no keys: this file knows where the store keeps what, and derives from each change of
 * a key which grant was made or has ended. A hold and a place in the queue last until their key is
 * gone, which is reported; so the report of a grant has no end time. */
#include "sim/service.h"
#include "base/list.h"
#include "sim/etcd/cluster.h"
#include "store/locks.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t NO_END_US = INT64_C(1000000000000);
static const char prefix[] = "holdfast/";

struct etcd_service {
    struct service base;
    struct etcd_service *first;
    int number;
    /* Of the first: */
    struct cluster *cluster;
    int64_t now_us;
    uint64_t last_tokens[PLAN_NAMES_MAX];
    int64_t foreign[PLAN_NAMES_MAX]; /* the lease of a lock of another client; 0: there is none */
    bool foreign_has_it[PLAN_NAMES_MAX];
};

struct etcd_connection {
    struct service_connection base;
    struct cluster_connection *cluster;
};

static struct etcd_service *etcd_of(const struct service *service) {
    return container_of(service, struct etcd_service, base);
}

static struct cluster *cluster_of(const struct service *service) {
    return etcd_of(service)->first->cluster;
}

/* ---- Claims ---- */

/* What a key says, in words of checkers. */
struct record {
    char name[4], owner[LOCKS_OWNER_SIZE];
    bool barges, held;
    uint32_t weight, capacity;
    uint64_t token;
    bool is_moved; /* the token is of an earlier grant */
    int64_t lease_us;
    /* Of a key that exists: */
    int64_t lease, create;
};

/* "holdfast/NAME/OWNER", or with '!' before OWNER. False: it is another key. */
static bool read_record(const ProtobufCBinaryData *key, const ProtobufCBinaryData *value,
                        int64_t revision, struct record *ret) {
    char text[100] = "";
    if (key->len >= sizeof(text) || memchr(key->data, 0, key->len))
        return false;
    memcpy(text, key->data, key->len);
    const char *name = text + sizeof(prefix) - 1, *slash = strchr(name, '/');
    if (strncmp(text, prefix, sizeof(prefix) - 1) != 0 || !slash || slash - name > 3 ||
        strlen(slash) < 34)
        return false;
    bool barges = slash[1] == '!';
    Etcd__Claim *claim = etcd__claim__unpack(NULL, value->len, value->data);
    assert(claim);
    *ret = (struct record){.barges = barges,
                           .held = claim->held,
                           .weight = claim->weight,
                           .capacity = claim->capacity,
                           .token =
                               claim->token ? claim->token : claim->token_base + (uint64_t)revision,
                           .is_moved = claim->token != 0,
                           .lease_us = claim->lease_ms * 1000};
    memcpy(ret->name, name, (size_t)(slash - name));
    snprintf(ret->owner, sizeof(ret->owner), "%s", slash + 1 + barges);
    etcd__claim__free_unpacked(claim, NULL);
    return true;
}

/* The next record of a name that exists, from *place on. */
static bool next_record(const struct cluster *cluster, const char *name, size_t *place,
                        struct record *ret) {
    const struct keys *keys = cluster_keys(cluster);
    while (*place < keys->count) {
        const struct keys_key *key = &keys->list[(*place)++];
        const struct keys_version *version = keys_version_at(key, INT64_MAX);
        if (version && read_record(&key->name, &version->value, version->mod, ret) &&
            strcmp(ret->name, name) == 0) {
            ret->lease = version->lease;
            ret->create = version->create;
            return true;
        }
    }
    return false;
}

static bool find_record(const struct cluster *cluster, const char *name, const char *owner,
                        struct record *ret) {
    size_t place = 0;
    while (next_record(cluster, name, &place, ret)) {
        if (strcmp(ret->owner, owner) == 0)
            return true;
    }
    return false;
}

/* ---- Reports ---- */

static void report(struct etcd_service *etcd, const struct record *record,
                   enum service_request request, enum service_outcome outcome, int64_t lease_us) {
    etcd->base.host->report(
        etcd->base.host,
        &(struct service_report){.request = request,
                                 .outcome = outcome,
                                 .name = record->name,
                                 .owner = request == SERVICE_BREAK ? NULL : record->owner,
                                 .weight = record->weight,
                                 .capacity = record->capacity,
                                 .lease_us = lease_us,
                                 .wait_us = NO_END_US,
                                 .token = record->token,
                                 .barges = record->barges});
}

static void report_put(struct etcd_service *etcd, const struct record *record) {
    if (!record->held) {
        report(etcd, record, SERVICE_ACQUIRE, SERVICE_QUEUED, record->lease_us);
        return;
    }
    if (!record->is_moved) {
        report(etcd, record, SERVICE_ACQUIRE, SERVICE_GRANTED, record->lease_us);
        etcd->last_tokens[plan_name_number(record->name)] = record->token;
    }
    report(etcd, record, SERVICE_RENEW, SERVICE_GRANTED, NO_END_US);
}

/* The request to take it was refused, unless it had been granted before. */
static void report_not_put(struct etcd_service *etcd, const struct record *record) {
    struct record now;
    bool has_it = find_record(etcd->cluster, record->name, record->owner, &now) && now.held;
    if (record->held && !record->is_moved && !has_it)
        report(etcd, record, SERVICE_ACQUIRE, SERVICE_REFUSED, record->lease_us);
}

static void report_deleted(struct etcd_service *etcd, const struct record *record,
                           const struct keys_change *change) {
    bool is_taken_away = change->why == KEYS_REVOKED || change->in_txn;
    if (record->held && is_taken_away) {
        report(etcd, record, SERVICE_BREAK, SERVICE_GRANTED, 0);
        return;
    }
    report(etcd, record, SERVICE_RELEASE, SERVICE_GRANTED, 0);
    if (record->held && change->why == KEYS_EXPIRED)
        report(etcd, record, SERVICE_RENEW, SERVICE_REFUSED, 0);
}

/* Another client holds the lock when its key is the oldest one of the name. */
static void look_for_foreign(struct etcd_service *etcd, int name) {
    const struct keys *keys = cluster_keys(etcd->cluster);
    char range[20];
    int64_t oldest = INT64_MAX, owner = 0;
    int size = snprintf(range, sizeof(range), "%s%s/", prefix, plan_name_text(name));
    for (size_t i = 0; i < keys->count; i++) {
        const struct keys_version *version = keys_version_at(&keys->list[i], INT64_MAX);
        if (version && version->create < oldest && keys->list[i].name.len > (size_t)size &&
            memcmp(keys->list[i].name.data, range, (size_t)size) == 0) {
            oldest = version->create;
            owner = version->lease;
        }
    }
    if (owner != etcd->foreign[name] || etcd->foreign_has_it[name])
        return;
    etcd->foreign_has_it[name] = true;
    etcd->base.host->note(etcd->base.host, "(the other client has it)");
    etcd->base.host->foreign(etcd->base.host, plan_name_text(name));
}

static void tell(struct etcd_service *etcd, const struct record *record,
                 const struct keys_change *change) {
    static const char *const words[] = {[KEYS_PUT] = "waits for",
                                        [KEYS_NOT_PUT] = "does not get",
                                        [KEYS_DELETED] = "leaves",
                                        [KEYS_NOT_DELETED] = ""};
    static const char *const whys[] = {
        [KEYS_ASKED] = "", [KEYS_EXPIRED] = " with its lease", [KEYS_REVOKED] = " by force"};
    char line[100];
    snprintf(line, sizeof(line), "    (%.8s-%s %s \"%s\"%s)", record->owner, record->owner + 33,
             change->what == KEYS_PUT && record->held ? "has" : words[change->what], record->name,
             whys[change->why]);
    etcd->base.host->note(etcd->base.host, line);
}

static void key_changed(void *context, const struct keys_change *change) {
    struct etcd_service *etcd = context;
    struct record record;
    bool is_claim = change->what != KEYS_NOT_DELETED &&
                    read_record(&change->name, &change->value, change->revision, &record);
    if (is_claim)
        tell(etcd, &record, change);
    if (is_claim && change->what == KEYS_PUT)
        report_put(etcd, &record);
    else if (is_claim && change->what == KEYS_NOT_PUT)
        report_not_put(etcd, &record);
    else if (is_claim)
        report_deleted(etcd, &record, change);
    for (int i = 0; i < PLAN_NAMES_MAX; i++) {
        if (etcd->foreign[i])
            look_for_foreign(etcd, i);
    }
}

/* ---- Connections ---- */

static void sent(void *context, const char *bytes, size_t size, bool pushed) {
    struct etcd_connection *connection = context;
    connection->base.service->host->send(connection->base.context, bytes, size, pushed);
}

static void executed(void *context, const char *line, bool minor) {
    struct etcd_connection *connection = context;
    connection->base.service->host->executed(connection->base.context, line, minor);
}

static struct service_connection *etcd_connect(struct service *service, void *context) {
    struct etcd_connection *connection = calloc(1, sizeof(*connection));
    assert(connection);
    connection->base = (struct service_connection){service, context};
    connection->cluster =
        cluster_connect(cluster_of(service), etcd_of(service)->number, connection);
    return &connection->base;
}

static void etcd_disconnect(struct service_connection *base) {
    struct etcd_connection *connection = container_of(base, struct etcd_connection, base);
    cluster_disconnect(connection->cluster);
    free(connection);
}

static size_t etcd_feed(struct service_connection *base, const char *bytes, size_t size) {
    return cluster_feed(container_of(base, struct etcd_connection, base)->cluster, bytes, size);
}

/* Watches share the connection with everything else. */
static bool etcd_listens(const struct service_connection *base) {
    (void)base;
    return false;
}

/* ---- Life ---- */

static void noted(void *context, const char *line) {
    struct etcd_service *etcd = context;
    etcd->base.host->note(etcd->base.host, line);
}

static uint64_t chance(void *context) {
    struct etcd_service *etcd = context;
    return etcd->base.host->random(etcd->base.host);
}

static void wake_at(void *context, int64_t us) {
    struct etcd_service *etcd = context;
    etcd->base.host->arm(etcd->base.host, us);
}

static struct service *etcd_open(void) {
    struct etcd_service *etcd = calloc(1, sizeof(*etcd));
    assert(etcd);
    etcd->first = etcd;
    etcd->cluster = cluster_new(&(struct cluster_config){.output = sent,
                                                         .executed = executed,
                                                         .changed = key_changed,
                                                         .note = noted,
                                                         .random = chance,
                                                         .wake_at = wake_at,
                                                         .context = etcd});
    return &etcd->base;
}

static void etcd_reset(struct service *service) {
    struct etcd_service *etcd = etcd_of(service);
    cluster_reset(etcd->cluster, 1);
    memset(etcd->last_tokens, 0, sizeof(etcd->last_tokens));
    memset(etcd->foreign, 0, sizeof(etcd->foreign));
    memset(etcd->foreign_has_it, 0, sizeof(etcd->foreign_has_it));
}

static void etcd_unite(struct service *const *members, int count) {
    for (int i = 0; i < count; i++) {
        etcd_of(members[i])->first = etcd_of(members[0]);
        etcd_of(members[i])->number = i;
    }
    cluster_reset(etcd_of(members[0])->cluster, count);
}

static void etcd_set_time(struct service *service, int64_t wall_us) {
    cluster_set_time(cluster_of(service), wall_us);
}

static void etcd_expire(struct service *service) {
    cluster_act(cluster_of(service));
}

static void etcd_save(struct service *service) {
    (void)service;
}

/* Acknowledged writes are on the disks of a majority. */
static void etcd_restart(struct service *service, enum service_keep keep) {
    assert(keep == SERVICE_KEEP_ALL);
    cluster_restart(cluster_of(service), etcd_of(service)->number);
}

static void etcd_stand(struct service *service, bool still) {
    cluster_trouble(cluster_of(service), etcd_of(service)->number, CLUSTER_STILL, still);
}

/* ---- Its own faults ---- */

enum etcd_fault {
    ETCD_REVOKE,
    ETCD_DELETE,
    ETCD_COMPACT,
    ETCD_MOVE_LEADER,
    ETCD_DISK_STALLS,
    ETCD_LEADER_CUT_OFF,
    ETCD_CUT_OFF,
    ETCD_LAGS,
    ETCD_FULL,
    ETCD_FOREIGN,
};

/* How long it takes until there is a new leader. */
enum { ELECTION_US = 700000 };

static const struct service_fault etcd_faults[] = {
    {FAULT_CUT},
    {FAULT_LOSE_REPLY},
    {FAULT_BLOCK_UP},
    {FAULT_BLOCK_DOWN},
    {FAULT_PARTITION},
    {FAULT_SLOW},
    {FAULT_DELAY},
    {FAULT_REFUSE},
    {FAULT_STALL, .settles_us = ELECTION_US},
    {FAULT_RESTART_ALL, .settles_us = ELECTION_US},
    {FAULT_SLEW},
    {FAULT_WALL},
    {FAULT_PAUSE},
    {FAULT_KILL},
    {FAULT_BREAK},
    {FAULT_OWN, ETCD_REVOKE, "an operator revokes a lease", .calm = true},
    {FAULT_OWN, ETCD_DELETE, "an operator deletes a key", .calm = true},
    {FAULT_OWN, ETCD_COMPACT, "the history is compacted, and maybe a key deleted", .calm = true},
    {FAULT_OWN, ETCD_MOVE_LEADER, "another member leads", .settles_us = ELECTION_US},
    {FAULT_OWN, ETCD_DISK_STALLS, "the leader's disk stalls", .settles_us = ELECTION_US},
    {FAULT_OWN, ETCD_LEADER_CUT_OFF, "the leader is cut off from the other members",
     .settles_us = ELECTION_US},
    {FAULT_OWN, ETCD_CUT_OFF, "a member is cut off from the others", .settles_us = ELECTION_US},
    {FAULT_OWN, ETCD_LAGS, "a member lags"},
    {FAULT_OWN, ETCD_FULL, "the database is full"},
    {FAULT_OWN, ETCD_FOREIGN, "a client that is not holdfast asks for the lock", .calm = true},
};

/* One of the claims of a name: usually the one that is held. */
static const struct keys_key *choose_key(const struct cluster *cluster,
                                         const struct plan_fault *fault) {
    const struct keys *keys = cluster_keys(cluster);
    const struct keys_key *chosen = NULL;
    for (size_t i = 0; i < keys->count; i++) {
        const struct keys_version *version = keys_version_at(&keys->list[i], INT64_MAX);
        struct record record;
        if (version && read_record(&keys->list[i].name, &version->value, version->mod, &record) &&
            strcmp(record.name, plan_name_text(fault->name)) == 0 &&
            (!chosen || record.held || fault->amount % 4 == 0))
            chosen = &keys->list[i];
    }
    return chosen;
}

static void lock_as_foreign(struct etcd_service *etcd, int name, bool begins) {
    char range[20];
    enum { TTL_S = 60 };
    snprintf(range, sizeof(range), "%s%s/", prefix, plan_name_text(name));
    if (begins && !etcd->foreign[name]) {
        etcd->foreign_has_it[name] = false;
        etcd->foreign[name] = cluster_put_leased(etcd->cluster, range, TTL_S);
        if (etcd->foreign[name])
            look_for_foreign(etcd, name);
    } else if (!begins && etcd->foreign[name]) {
        int64_t lease = etcd->foreign[name];
        etcd->foreign[name] = 0;
        cluster_revoke_lease(etcd->cluster, lease); /* or it expires */
    }
}

static void clear_all(struct cluster *cluster, enum cluster_trouble what) {
    for (int i = 0; i < CLUSTER_MEMBERS_MAX; i++)
        cluster_trouble(cluster, i, what, false);
}

/* Faults of the whole cluster, no matter which members are named. */
static void befall_cluster(struct etcd_service *etcd, enum etcd_fault number,
                           const struct plan_fault *fault, bool begins) {
    struct cluster *cluster = etcd->cluster;
    const struct keys_key *key = choose_key(cluster, fault);
    int leader = cluster_leader(cluster);
    switch (number) {
    case ETCD_REVOKE:
        if (begins && key)
            cluster_revoke(cluster, &key->name);
        break;
    case ETCD_DELETE:
        if (begins && key)
            cluster_delete(cluster, &key->name);
        break;
    case ETCD_COMPACT:
        if (begins && key && fault->amount % 4 == 0) /* the history also forgets the deletion */
            cluster_delete(cluster, &key->name);
        if (begins)
            cluster_compact(cluster);
        else if (key && fault->amount % 2) /* watchers from before the compaction miss it */
            cluster_delete(cluster, &key->name);
        break;
    case ETCD_MOVE_LEADER:
        if (begins)
            cluster_move_leader(cluster);
        break;
    case ETCD_DISK_STALLS:
        if (begins && leader >= 0)
            cluster_trouble(cluster, leader, CLUSTER_DISK_STALLS, true);
        else if (!begins)
            clear_all(cluster, CLUSTER_DISK_STALLS);
        break;
    case ETCD_LEADER_CUT_OFF:
        if (begins && leader >= 0)
            cluster_trouble(cluster, leader, CLUSTER_CUT_OFF, true);
        else if (!begins)
            clear_all(cluster, CLUSTER_CUT_OFF);
        break;
    case ETCD_FULL:
        cluster_set_full(cluster, begins);
        break;
    case ETCD_FOREIGN:
        lock_as_foreign(etcd, fault->name, begins);
        break;
    case ETCD_CUT_OFF:
    case ETCD_LAGS:
        break;
    }
}

static void etcd_befall(struct service *service, int number, const struct plan_fault *fault,
                        bool begins) {
    struct etcd_service *etcd = etcd_of(service);
    bool is_first_of_them = !(fault->servers & ((1 << etcd->number) - 1));
    if (number == ETCD_CUT_OFF)
        cluster_trouble(etcd->first->cluster, etcd->number, CLUSTER_CUT_OFF, begins);
    else if (number == ETCD_LAGS)
        cluster_set_lag(etcd->first->cluster, etcd->number, begins ? fault->amount * 50 : 0);
    else if (is_first_of_them)
        befall_cluster(etcd->first, (enum etcd_fault)number, fault, begins);
}

/* ---- For checkers ---- */

static int64_t etcd_held_until_us(const struct service *service, const char *name,
                                  const char *owner) {
    struct record record;
    if (!find_record(cluster_of(service), name, owner, &record) || !record.held)
        return INT64_MIN;
    return cluster_lease_ends_us(cluster_of(service), record.lease);
}

static const char *etcd_holder(const struct service *service, const char *name) {
    static struct record record;
    size_t place = 0;
    while (next_record(cluster_of(service), name, &place, &record)) {
        if (record.held && record.weight == record.capacity)
            return record.owner;
    }
    return NULL;
}

/* There is room for it beside the holders and those that come first: it only has to take it. */
static bool etcd_is_reserved(const struct service *service, const char *name, const char *owner) {
    struct record mine, other;
    size_t place = 0;
    if (!find_record(cluster_of(service), name, owner, &mine))
        return false;
    uint64_t weight = mine.weight;
    while (next_record(cluster_of(service), name, &place, &other)) {
        bool comes_first = other.held || other.create < mine.create || other.barges;
        weight += comes_first && strcmp(other.owner, owner) != 0 ? other.weight : 0;
    }
    return weight <= mine.capacity;
}

static uint64_t etcd_last_token(const struct service *service, const char *name) {
    return etcd_of(service)->first->last_tokens[plan_name_number(name)];
}

static int64_t etcd_abstains_until_us(const struct service *service) {
    (void)service;
    return INT64_MIN;
}

static const char counter_prefix[] = "holdfast/\0count/";

/* "holdfast/\0count/NAME" */
static bool is_counter(const struct keys_key *key, const char *name) {
    size_t size = sizeof(counter_prefix) - 1;
    return key->name.len == size + strlen(name) &&
           memcmp(key->name.data, counter_prefix, size) == 0 &&
           memcmp(key->name.data + size, name, strlen(name)) == 0;
}

static bool etcd_find_counter(const struct service *service, const char *name, int64_t *ret_value,
                              bool *ret_ends) {
    const struct keys *keys = cluster_keys(cluster_of(service));
    for (size_t i = 0; i < keys->count; i++) {
        const struct keys_version *version = keys_version_at(&keys->list[i], INT64_MAX);
        char number[32] = "";
        if (!version || !is_counter(&keys->list[i], name))
            continue;
        assert(version->value.len < sizeof(number));
        memcpy(number, version->value.data, version->value.len);
        *ret_value = strtoll(number, NULL, 10);
        *ret_ends = version->lease;
        return true;
    }
    return false;
}

static const char *etcd_remains(const struct service *service) {
    static char text[120];
    const struct keys *keys = cluster_keys(cluster_of(service));
    for (size_t i = 0; i < keys->count; i++) {
        const struct keys_key *key = &keys->list[i];
        bool is_own = memchr(key->name.data, 0, key->name.len);
        const struct keys_version *version = keys_version_at(key, INT64_MAX);
        if (version && !is_own) {
            snprintf(text, sizeof(text), "%.*s stays behind", (int)key->name.len,
                     (const char *)key->name.data);
            return text;
        }
        if (version && !version->lease && !is_counter(key, plan_counter_name)) {
            snprintf(text, sizeof(text), "%zu bytes stay for ever", key->name.len);
            return text;
        }
    }
    return NULL;
}

extern const struct store_driver etcd_store_driver;

const struct service_type service_etcd = {
    .scheme = "etcd",
    .url_options = "plaintext=yes&timeout=3000&connect_timeout=1000",
    .driver = &etcd_store_driver,
    .least_lease_ms = 1000,
    .told_within_us = 1300000, /* a hold is watched when it is a second old */
    .faults = etcd_faults,
    .fault_count = sizeof(etcd_faults) / sizeof(etcd_faults[0]),
    .open = etcd_open,
    .reset = etcd_reset,
    .set_time = etcd_set_time,
    .expire = etcd_expire,
    .save = etcd_save,
    .restart = etcd_restart,
    .unite = etcd_unite,
    .stand = etcd_stand,
    .befall = etcd_befall,
    .connect = etcd_connect,
    .disconnect = etcd_disconnect,
    .feed = etcd_feed,
    .listens = etcd_listens,
    .held_until_us = etcd_held_until_us,
    .holder = etcd_holder,
    .is_reserved = etcd_is_reserved,
    .last_token = etcd_last_token,
    .abstains_until_us = etcd_abstains_until_us,
    .find_counter = etcd_find_counter,
    .remains = etcd_remains,
};
