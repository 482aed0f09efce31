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
#include "sql_raw.h"

#include <errno.h>
#include <holdfast/holdfast.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SLICE_US = 200000,
    RETRY_US = 1000, /* after which a naive lock is tried again */
    THREADS_MAX = 64,
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

/* Threads that each take a lock and give it back until the slice is over: through one client, or on
 * a bare connection each. */
struct crew {
    int count;
    hf_client *client; /* NULL: bare */
    struct raw_connection **to;
    enum raw_way way;
    bool one_name;
    atomic_int last;   /* the last holder */
    atomic_long pairs; /* of all */
    long changes;      /* of holder; whoever holds the lock counts */
    pthread_barrier_t start;
    atomic_bool stop;
};

struct member {
    struct crew *crew;
    int index;
    pthread_t thread;
};

/* Called with the lock. */
static void note_holder(struct crew *crew, int index) {
    if (crew->one_name && atomic_exchange(&crew->last, index) != index)
        crew->changes++;
}

static void do_pair(struct crew *crew, int index, const char *name) {
    if (crew->client) {
        hf_hold *hold = take(crew->client, name);
        note_holder(crew, index);
        give(hold);
        return;
    }
    while (!raw_take(crew->to[index], crew->way, name))
        pause_us(RETRY_US);
    note_holder(crew, index);
    raw_give(crew->to[index], crew->way, name);
}

static void *work(void *arg) {
    const struct member *member = arg;
    struct crew *crew = member->crew;
    char name[NAME_SIZE];
    snprintf(name, sizeof(name), "name-%d-%d", crew->way, crew->one_name ? -1 : member->index);
    long pairs = 0;
    pthread_barrier_wait(&crew->start);
    do {
        do_pair(crew, member->index, name);
        pairs++;
    } while (!atomic_load(&crew->stop));
    atomic_fetch_add(&crew->pairs, pairs);
    return NULL;
}

/* Pairs, or changes of holder, in a second. */
static double crew_slice(void *arg) {
    struct crew *crew = arg;
    static struct member members[THREADS_MAX];
    pthread_barrier_init(&crew->start, NULL, (unsigned)crew->count + 1);
    atomic_store(&crew->stop, false);
    atomic_store(&crew->last, -1);
    atomic_store(&crew->pairs, 0);
    crew->changes = 0;
    for (int i = 0; i < crew->count; i++) {
        members[i] = (struct member){.crew = crew, .index = i};
        if (pthread_create(&members[i].thread, NULL, work, &members[i]))
            raw_die("thread", strerror(errno));
    }
    pthread_barrier_wait(&crew->start);
    int64_t began = compare_now_ns();
    pause_us(SLICE_US);
    atomic_store(&crew->stop, true);
    for (int i = 0; i < crew->count; i++)
        pthread_join(members[i].thread, NULL);
    pthread_barrier_destroy(&crew->start);
    double seconds = (double)(compare_now_ns() - began) / 1e9;
    return (double)(crew->one_name ? crew->changes : atomic_load(&crew->pairs)) / seconds;
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
    struct crew own = {.count = count, .client = open_client()};
    struct crew bare[4];
    for (int i = 0; i < 4; i++)
        bare[i] = (struct crew){.count = count, .to = to, .way = (enum raw_way)i};
    const struct contender contenders[] = {
        {raw_way_names[RAW_SAME], crew_slice, &bare[RAW_SAME], NULL},
        {"holdfast, one client", crew_slice, &own, count == 1 ? raw_goal_of_one : NULL},
        {raw_way_names[RAW_INSERT], crew_slice, &bare[RAW_INSERT], NULL},
        {raw_way_names[RAW_SESSION], crew_slice, &bare[RAW_SESSION], NULL},
        {raw_way_names[RAW_EMPTY], crew_slice, &bare[RAW_EMPTY], NULL},
    };
    static struct comparison c;
    char title[64];
    snprintf(title, sizeof(title), "%d thread%s on %s", count, count == 1 ? "" : "s",
             count == 1 ? "a free lock" : "as many names, a bare connection each");
    compare(title, "pairs/s", contenders, 5, &c);
    compare_others(&c, 1, 2, "holdfast, to insert and delete",
                   count == 1 ? NULL : raw_goal_of_many);
    hf_client_close(own.client);
    close_all(to, count);
}

static void measure_pair(void) {
    measure_pairs_of(1);
    measure_pairs_of(THREADS_MAX);
}

static void measure_one_name_of(int count) {
    struct raw_connection **to = connect_all(count);
    struct crew own = {.count = count, .client = open_client(), .one_name = true};
    struct crew naive = {.count = count, .to = to, .way = RAW_INSERT, .one_name = true};
    struct crew session = {.count = count, .to = to, .way = RAW_SESSION, .one_name = true};
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
    hf_client_close(own.client);
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
    struct crew crew = {.count = THREADS_MAX, .client = client, .one_name = true};
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
