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
 * usage: bench-postgres | bench-mysql [-r ROUNDS] URL DATABASE [PART...]
 *
 * URL is the store, DATABASE the same for the client library. Give it a server of its own that
 * commits durably. */
#include "compare.h"
#include "crew.h"
#include "sql_raw.h"

#include <holdfast/holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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
        raw_die(what, hf_last_error());
}

static void pause_us(long us) {
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
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
        pause_us(RETRY_US);
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
        {raw_way_names[RAW_SAME], crew_slice, &crews[RAW_SAME], NULL},
        {"holdfast, one client", crew_slice, &own, count == 1 ? raw_goal_of_one : NULL},
        {raw_way_names[RAW_INSERT], crew_slice, &crews[RAW_INSERT], NULL},
        {raw_way_names[RAW_SESSION], crew_slice, &crews[RAW_SESSION], NULL},
        {raw_way_names[RAW_EMPTY], crew_slice, &crews[RAW_EMPTY], NULL},
    };
    static struct comparison c;
    char title[64];
    snprintf(title, sizeof(title), "%d thread%s on %s", count, count == 1 ? "" : "s",
             count == 1 ? "a free lock" : "as many names, a bare connection each");
    compare(title, "pairs/s", contenders, 5, &c);
    compare_others(&c, 1, 2, "holdfast, to insert and delete",
                   count == 1 ? NULL : raw_goal_of_many);
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
        {raw_way_names[RAW_INSERT], crew_slice, &naive, NULL},
        {"holdfast, one client", crew_slice, &own, NULL},
        {raw_way_names[RAW_SESSION], crew_slice, &session, NULL},
    };
    static struct comparison c;
    char title[64];
    snprintf(title, sizeof(title), "%d threads on one name", count);
    compare(title, "changes/s", contenders, 3, &c);
    compare_others(&c, 1, 2, "holdfast, to the database's own lock", NULL);
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

static void print_costs(const char *what, const struct raw_cost *costs, int count) {
    double statements[COMPARE_ROUNDS_MAX], bytes[COMPARE_ROUNDS_MAX];
    for (int i = 0; i < count; i++) {
        statements[i] = costs[i].statements;
        bytes[i] = costs[i].log_bytes;
    }
    printf("  %-56s %10.2f statements %8.0f bytes of log\n", what,
           compare_median(statements, count), compare_median(bytes, count));
}

static void measure_pair_costs(struct raw_connection *to, hf_client *client) {
    enum { TIMES = 100 };
    struct raw_cost acquire[COMPARE_ROUNDS_MAX] = {0}, release[COMPARE_ROUNDS_MAX] = {0};
    hf_hold *holds[TIMES];
    for (int round = 0; round < compare_rounds; round++) {
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
    print_costs("acquire", acquire, compare_rounds);
    print_costs("release", release, compare_rounds);
}

/* A change of holder: what it takes to wait, to be handed the lock, and to release it. */
static void measure_hand_off_costs(struct raw_connection *to, hf_client *client) {
    struct crew crew = own_crew(THREADS_MAX, true, client);
    struct raw_cost each[COMPARE_ROUNDS_MAX] = {0};
    for (int round = 0; round < compare_rounds; round++) {
        struct raw_cost before = raw_cost(to);
        crew_slice(&crew);
        each[round] = since(to, before, (double)crew.changes);
    }
    print_costs("a change of holder, 64 threads on one name", each, compare_rounds);
}

/* With several in flight, which is faster than one by one. */
static void take_many(hf_client *client, hf_hold **ret_holds) {
    enum { AT_ONCE = 500 };
    hf_call *calls[AT_ONCE];
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = HELD_LEASE_MS;
    for (int begin = 0; begin < HELD; begin += AT_ONCE) {
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

static void measure_renewal_costs(struct raw_connection *to, hf_client *client) {
    static hf_hold *holds[HELD];
    int lost = 0;
    take_many(client, holds);
    struct raw_cost before = raw_cost(to);
    pause_us(HELD_LEASE_MS / 3 * 1000L); /* in which each is renewed once */
    struct raw_cost cost = since(to, before, 1);
    for (int i = 0; i < HELD; i++) {
        lost += hf_check(holds[i], 0) != HF_OK;
        hf_hold_free(holds[i]);
    }
    printf("  %-56s %10.0f statements %8.0f bytes of log for each lock, %d lost\n",
           "10,000 locks renewed once", cost.renewals, cost.log_bytes / HELD, lost);
}

static void measure_cost(void) {
    struct raw_connection *to = raw_connect();
    hf_client *client = open_client();
    printf(
        "\nWhat each costs the server; a statement is a transaction, and a round trip of whoever "
        "is alone\n");
    measure_pair_costs(to, client);
    measure_hand_off_costs(to, client);
    measure_renewal_costs(to, client);
    hf_client_close(client);
    raw_close(to);
}

/* ---- */

static const struct part {
    const char *name;
    void (*measure)(void);
} parts[] = {{"pair", measure_pair}, {"one-name", measure_one_name}, {"cost", measure_cost}};

static bool is_wanted(const char *name, char **words) {
    bool any = *words;
    for (; *words; words++)
        if (strcmp(*words, name) == 0)
            return true;
    return !any;
}

int main(int argc, char **argv) {
    int option;
    while ((option = getopt(argc, argv, "r:")) != -1) {
        if (option == '?')
            return 2;
        compare_rounds = atoi(optarg);
    }
    if (optind + 1 >= argc || compare_rounds < 1 || compare_rounds > COMPARE_ROUNDS_MAX)
        raw_die("usage", "[-r ROUNDS] URL DATABASE [PART...]");
    url = argv[optind];
    hf_client *client = open_client();
    give(take(client, "first")); /* the schema is there */
    hf_client_close(client);
    raw_find_server(argv[optind + 1]);
    printf("medians of %d interleaved rounds\n", compare_rounds);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!is_wanted(parts[i].name, argv + optind + 2))
            continue;
        printf("\n==== %s ====\n", parts[i].name);
        parts[i].measure();
        fflush(stdout);
    }
    return 0;
}
