/* A store in a database beside its limits, in one run, each slice between two slices of the limit,
 * medians of rounds: the same requests sent by the bare client library, the naive lock (insert and
 * delete), and the database's own lock for sessions. What counts are the ratios; the absolute
 * figures move with the machine and the minute.
 *
 *   pair      acquire and release of a free lock: 1 thread, and 64 on as many names
 *   one-name  2 and 64 threads on one name: changes of holder
 *   cost      statements and bytes of the server's log: acquire, release, hand-off, renewals of
 *             10,000 locks that are held
 *
 * usage: bench-postgres | bench-mysql URL DATABASE
 *
 * URL is the store, DATABASE the same for the client library. Give it a server of its own that
 * commits durably. */
#include "crew.h"
#include "result.h"
#include "sql_raw.h"

#include <holdfast/holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RETRY_US = 1000, /* after which a naive lock is tried again */
    THREADS_MAX = CREW_MAX,
    HELD = 10000,
    HELD_LEASE_MS = 30000,
    NAME_SIZE = 24,
};

static const char *url;

static void must(int result, const char *what) {
    if (result < 0)
        result_die(what, hf_last_error());
}

static hf_client *open_client(void) {
    hf_client *client;
    must(hf_client_open(url, NULL, &client), "open");
    return client;
}

static hf_hold *take(hf_client *client, const char *name) {
    hf_hold *hold;
    must(hf_acquire(client, name, NULL, &hold), "acquire");
    return hold;
}

static void give(hf_hold *hold) {
    must(hf_release(hold), "release");
    hf_hold_free(hold);
}

/* ---- Threads ---- */

static void own_pair(struct crew *crew, int index, const char *name) {
    hf_hold *hold = take(crew->arg, name);
    crew_holds(crew, index);
    give(hold);
}

static struct crew own_crew(int count, bool one_name, hf_client *client) {
    return (struct crew){
        .count = count, .one_name = one_name, .names = "own", .pair = own_pair, .arg = client};
}

/* A bare connection for each thread. */
struct bare {
    struct raw_connection **to;
    enum raw_way way;
};

static void bare_pair(struct crew *crew, int index, const char *name) {
    const struct bare *bare = crew->arg;
    while (!raw_take(bare->to[index], bare->way, name))
        result_sleep_us(RETRY_US);
    crew_holds(crew, index);
    raw_give(bare->to[index], bare->way, name);
}

static struct crew bare_crew(int count, bool one_name, struct bare *bare) {
    return (struct crew){
        .count = count, .one_name = one_name, .names = "bare", .pair = bare_pair, .arg = bare};
}

/* The bare crews share their connections: they work one after the other. */
static struct raw_connection **connect_all(int count) {
    struct raw_connection **to = calloc((size_t)count, sizeof(struct raw_connection *));
    for (int i = 0; to && i < count; i++)
        to[i] = raw_connect();
    return to;
}

static void close_all(struct raw_connection **to, int count) {
    for (int i = 0; i < count; i++)
        raw_close(to[i]);
    free(to);
}

/* ---- Parts ---- */

/* "postgres/pair-64" */
static const char *name_of(const char *part, int count) {
    static char name[64];
    snprintf(name, sizeof(name), "%s/%s-%d", raw_store, part, count);
    return name;
}

static void measure_pairs_of(int count) {
    struct raw_connection **to = connect_all(count);
    hf_client *client = open_client();
    struct crew own = own_crew(count, false, client), crews[4];
    struct bare bare[4];
    for (int i = 0; i < 4; i++) {
        bare[i] = (struct bare){to, (enum raw_way)i};
        crews[i] = bare_crew(count, false, &bare[i]);
    }
    const struct contender contenders[] = {
        {raw_way_names[RAW_SAME], crew_slice, &crews[RAW_SAME]},
        {"holdfast, one client", crew_slice, &own},
        {raw_way_names[RAW_INSERT], crew_slice, &crews[RAW_INSERT]},
        {raw_way_names[RAW_SESSION], crew_slice, &crews[RAW_SESSION]},
        {raw_way_names[RAW_EMPTY], crew_slice, &crews[RAW_EMPTY]},
    };
    char title[64];
    snprintf(title, sizeof(title), "%d thread%s on %s", count, count == 1 ? "" : "s",
             count == 1 ? "a free lock" : "as many names, a bare connection each");
    result_compare(name_of("pair", count), title, "pairs/s", contenders, 5);
    hf_client_close(client);
    close_all(to, count);
}

static void measure_pair(void) {
    measure_pairs_of(1);
    measure_pairs_of(THREADS_MAX);
}

static void measure_one_name_of(int count) {
    struct raw_connection **to = connect_all(count);
    hf_client *client = open_client();
    struct bare inserts = {to, RAW_INSERT}, locks = {to, RAW_SESSION};
    struct crew own = own_crew(count, true, client), naive = bare_crew(count, true, &inserts),
                session = bare_crew(count, true, &locks);
    const struct contender contenders[] = {
        {raw_way_names[RAW_INSERT], crew_slice, &naive},
        {"holdfast, one client", crew_slice, &own},
        {raw_way_names[RAW_SESSION], crew_slice, &session},
    };
    char title[64];
    snprintf(title, sizeof(title), "%d threads on one name", count);
    result_compare(name_of("one-name", count), title, "changes/s", contenders, 3);
    hf_client_close(client);
    close_all(to, count);
}

static void measure_one_name(void) {
    measure_one_name_of(2);
    measure_one_name_of(THREADS_MAX);
}

/* ---- Costs ---- */

static struct raw_cost since(struct raw_connection *to, struct raw_cost before, double count) {
    struct raw_cost now = raw_cost(to);
    return (struct raw_cost){
        .statements = (now.statements - before.statements) / count,
        .renewals = (now.renewals - before.renewals) / count,
        .log_bytes = (now.log_bytes - before.log_bytes) / count,
    };
}

static void report_costs(const char *what, const struct raw_cost *costs, int count) {
    static const char *const title = "What it costs the server; a statement is a transaction";
    double statements[RESULT_ROUNDS_MAX], bytes[RESULT_ROUNDS_MAX];
    char name[64], text[64];
    snprintf(name, sizeof(name), "%s/cost", raw_store);
    for (int i = 0; i < count; i++) {
        statements[i] = costs[i].statements;
        bytes[i] = costs[i].log_bytes;
    }
    snprintf(text, sizeof(text), "%s: statements", what);
    result_figure(name, title, text, "statements", statements, count);
    snprintf(text, sizeof(text), "%s: log", what);
    result_figure(name, title, text, "bytes", bytes, count);
}

static void measure_pair_costs(struct raw_connection *to, hf_client *client) {
    enum { TIMES = 100 };
    struct raw_cost acquire[RESULT_ROUNDS_MAX] = {0}, release[RESULT_ROUNDS_MAX] = {0};
    hf_hold *holds[TIMES];
    for (int round = 0; round < result_rounds(); round++) {
        struct raw_cost before = raw_cost(to);
        for (int i = 0; i < TIMES; i++) {
            char name[NAME_SIZE];
            snprintf(name, sizeof(name), "cost-%d", i);
            holds[i] = take(client, name);
        }
        acquire[round] = since(to, before, TIMES);
        before = raw_cost(to);
        for (int i = 0; i < TIMES; i++)
            give(holds[i]);
        release[round] = since(to, before, TIMES);
    }
    report_costs("acquire", acquire, result_rounds());
    report_costs("release", release, result_rounds());
}

/* A change of holder: what it takes to wait, to be handed the lock, and to release it. */
static void measure_hand_off_costs(struct raw_connection *to, hf_client *client) {
    struct crew crew = own_crew(THREADS_MAX, true, client);
    struct raw_cost each[RESULT_ROUNDS_MAX] = {0};
    for (int round = 0; round < result_rounds(); round++) {
        struct raw_cost before = raw_cost(to);
        crew_slice(&crew);
        each[round] = since(to, before, (double)crew.changes);
    }
    report_costs("a change of holder", each, result_rounds());
}

/* With several in flight, which is faster than one by one. */
static void take_many(hf_client *client, int count, hf_hold **ret_holds) {
    enum { AT_ONCE = 500 };
    hf_call *calls[AT_ONCE];
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = HELD_LEASE_MS;
    for (int begin = 0; begin < count; begin += AT_ONCE) {
        for (int i = 0; i < AT_ONCE; i++) {
            char name[NAME_SIZE];
            snprintf(name, sizeof(name), "held-%d", begin + i);
            must(hf_acquire_start(client, name, &options, &calls[i]), "acquire");
        }
        for (int i = 0; i < AT_ONCE; i++) {
            must(hf_call_wait(calls[i], HF_FOREVER), "acquire");
            ret_holds[begin + i] = hf_call_take_hold(calls[i]);
            hf_call_free(calls[i]);
        }
    }
}

/* The locks are held until each was renewed once. */
static void measure_renewal_costs(struct raw_connection *to, hf_client *client) {
    static hf_hold *holds[HELD];
    int count = result_scale(HELD, 500);
    take_many(client, count, holds);
    struct raw_cost before = raw_cost(to);
    result_sleep_us(result_scale(HELD_LEASE_MS / 3, 10) * INT64_C(1000));
    struct raw_cost cost = since(to, before, count);
    cost.statements = cost.renewals;
    for (int i = 0; i < count; i++) {
        if (hf_check(holds[i], 0) != HF_OK)
            result_die("held", "a lock was lost");
        hf_hold_free(holds[i]);
    }
    report_costs("a renewal, 10,000 locks held", &cost, 1);
}

static void measure_cost(void) {
    struct raw_connection *to = raw_connect();
    hf_client *client = open_client();
    measure_pair_costs(to, client);
    measure_hand_off_costs(to, client);
    measure_renewal_costs(to, client);
    hf_client_close(client);
    raw_close(to);
}

/* ---- */

int main(int argc, char **argv) {
    if (argc != 3)
        result_die("usage", "URL DATABASE");
    url = argv[1];
    hf_client *client = open_client();
    give(take(client, "first")); /* makes the schema */
    hf_client_close(client);
    raw_find_server(argv[2]);
    result_run((const struct result_part[]){{"pair", measure_pair},
                                            {"one-name", measure_one_name},
                                            {"cost", measure_cost}},
               3);
    return 0;
}
