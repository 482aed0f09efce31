/* The Redis store beside its limits: the same requests sent by bare hiredis (redis_raw.h).
 *
 *   pair      acquire and release of a free lock by one thread
 *   threads   8 and 64 threads on as many names and one client
 *   server    what a pair of a free lock costs the server
 *   hand-off  2, 16 and 64 clients on one name: changes of holder, and what each costs
 *   latency   from the start of a release until the next client, which slept, has the lock
 *   held      10,000 locks that are held and renewed for 30 s
 *   run       `holdfast run x -- true` beside `flock x true`
 *
 * usage: bench-redis URL
 *
 * What depends on where client and server run is measured pinned and by default (place.h). Give it
 * a server of its own on this host: token counters stay behind. */
#include "crew.h"
#include "place.h"
#include "process.h"
#include "redis_raw.h"
#include "result.h"

#include <errno.h>
#include <holdfast/holdfast.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    SLICE_MS = 60,
    CREW_SLICE_MS = 90,
    LATENCIES = 20,
    HELD = 10000,
    HELD_S = 30,
    HELD_LEASE_MS = 10000,
    NAME_SIZE = 24,
};

static const char *const same = "the same requests bare";
static const char *url;

static void must(int result, const char *what) {
    if (result < 0)
        result_die(what, hf_last_error());
}

/* ---- The store ---- */

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

/* Pairs in a second. */
struct pairs {
    hf_client *client; /* NULL: bare */
    redisContext *to;
    const char *name;
    struct raw_lock lock;
};

static void do_pair(struct pairs *pairs) {
    if (pairs->client)
        give(take(pairs->client, pairs->name));
    else
        raw_pair(pairs->to, &pairs->lock);
}

static double pairs_slice(void *arg) {
    struct pairs *pairs = arg;
    int64_t began = result_now_ns(), now = began, until = began + result_slice_ns(SLICE_MS);
    int count = 0;
    for (; now < until; count++) {
        int64_t before = now;
        do_pair(pairs);
        now = result_now_ns();
        result_time(now - before);
    }
    return count * 1e9 / (double)(now - began);
}

static void close_bare(struct pairs *pairs) {
    redisFree(pairs->to);
    raw_lock_free(&pairs->lock);
}

static void measure_pair(void) {
    struct pairs own = {.client = open_client(), .name = "pair"};
    struct pairs bare = {.to = raw_connect(), .lock = raw_lock("pair-bare", 1)};
    struct pairs published = {.to = raw_connect(), .lock = raw_published_lock("pair-published")};
    const struct contender contenders[] = {
        {same, pairs_slice, &bare},
        {"holdfast", pairs_slice, &own},
        {"SET NX PX bare, no token", pairs_slice, &published},
    };
    result_compare("redis/pair", "A free lock, one thread", "pairs/s", contenders, 3);
    hf_client_close(own.client);
    close_bare(&bare);
    close_bare(&published);
}

/* ---- Threads ---- */

/* What the members of a crew have: a client of the store, or bare connections. */
struct means {
    hf_client *client[CREW_MAX];
    redisContext *to[CREW_MAX], *from[CREW_MAX];
    struct raw_lock lock[CREW_MAX];
    struct raw_bytes tell_next[CREW_MAX];
    bool knows[CREW_MAX]; /* that it is time to stop */
    redisContext *info;
    struct raw_cost each[RESULT_ROUNDS_MAX * RESULT_CONTENDERS_MAX]; /* change, of each slice */
    int slices;
};

static struct crew crew_new(int count, void (*pair)(struct crew *, int, const char *)) {
    struct means *means = calloc(1, sizeof(*means));
    if (!means)
        result_die("crew", strerror(errno));
    return (struct crew){
        .count = count, .names = "name", .pair = pair, .arg = means, .slice_ms = CREW_SLICE_MS};
}

static void crew_free(struct crew *crew) {
    struct means *means = crew->arg;
    for (int i = 0; i < crew->count; i++) {
        if (i == 0 || means->client[i] != means->client[0])
            hf_client_close(means->client[i]);
        redisFree(means->to[i]);
        redisFree(means->from[i]);
        raw_lock_free(&means->lock[i]);
        free(means->tell_next[i].bytes);
    }
    redisFree(means->info);
    free(means);
}

static void own_pair(struct crew *crew, int i, const char *name) {
    struct means *means = crew->arg;
    hf_hold *hold = take(means->client[i], name);
    crew_holds(crew, i);
    give(hold);
}

/* ---- Threads on names of their own ---- */

static void bare_pair(struct crew *crew, int i, const char *name) {
    struct means *means = crew->arg;
    (void)name;
    raw_pair(means->to[i], &means->lock[i]);
}

static double pipeline_slice(void *arg) {
    struct crew *crew = arg;
    struct means *means = crew->arg;
    int64_t began = result_now_ns(), passed;
    int count = 0;
    do {
        raw_pipelined_pairs(means->to[0], means->lock, (size_t)crew->count);
        count += crew->count;
        passed = result_now_ns() - began;
    } while (passed < result_slice_ns(SLICE_MS));
    return count * 1e9 / (double)passed;
}

static void measure_threads_of(int count) {
    struct crew bare = crew_new(count, bare_pair), own = crew_new(count, own_pair);
    struct means *of_bare = bare.arg, *of_own = own.arg;
    for (int i = 0; i < count; i++) {
        char name[NAME_SIZE];
        snprintf(name, sizeof(name), "bare-%d", i);
        of_bare->to[i] = raw_connect();
        of_bare->lock[i] = raw_lock(name, (unsigned)i + 1);
        of_own->client[i] = i ? of_own->client[0] : open_client();
    }
    const struct contender contenders[] = {
        {"a bare connection each", crew_slice, &bare},
        {"holdfast, one client", crew_slice, &own},
        {"a bare pipeline, one thread", pipeline_slice, &bare},
    };
    char name[64], title[64];
    snprintf(name, sizeof(name), "redis/threads-%d", count);
    snprintf(title, sizeof(title), "%d threads on as many names", count);
    result_compare(name, title, "pairs/s", contenders, 3);
    crew_free(&own);
    crew_free(&bare);
}

static void measure_threads(void) {
    measure_threads_of(8);
    measure_threads_of(64);
}

/* ---- The server's costs ---- */

/* What `what` costs the server: requests, time in scripts, and CPU time. */
static void report_costs(const char *name, const char *title, const char *what,
                         const struct raw_cost *costs, int count) {
    double reads[RESULT_ROUNDS_MAX], scripts_us[RESULT_ROUNDS_MAX], server_us[RESULT_ROUNDS_MAX];
    char text[64];
    for (int i = 0; i < count; i++) {
        reads[i] = costs[i].reads;
        scripts_us[i] = costs[i].scripts_us;
        server_us[i] = costs[i].cpu_us;
    }
    snprintf(text, sizeof(text), "%s: requests", what);
    result_figure(name, title, text, "requests", reads, count);
    snprintf(text, sizeof(text), "%s: in scripts", what);
    result_figure(name, title, text, "us", scripts_us, count);
    snprintf(text, sizeof(text), "%s: CPU", what);
    result_figure(name, title, text, "us", server_us, count);
}

static struct raw_cost cost_of_pairs(redisContext *info, struct pairs *pairs) {
    int count = result_scale(1000, 10);
    struct raw_cost before = raw_cost(info);
    for (int i = 0; i < count; i++)
        do_pair(pairs);
    return raw_cost_each(info, before, count);
}

static void measure_server(void) {
    static const char *const title = "What a pair of a free lock costs the server";
    redisContext *info = raw_connect();
    struct pairs own = {.client = open_client(), .name = "pair"};
    struct pairs published = {.to = raw_connect(), .lock = raw_published_lock("pair-published")};
    struct raw_cost of_own[RESULT_ROUNDS_MAX], of_published[RESULT_ROUNDS_MAX];
    do_pair(&own);
    for (int i = 0; i < result_rounds(); i++) {
        of_own[i] = cost_of_pairs(info, &own);
        of_published[i] = cost_of_pairs(info, &published);
    }
    report_costs("redis/server", title, "holdfast", of_own, result_rounds());
    report_costs("redis/server", title, "SET NX PX, no token", of_published, result_rounds());
    hf_client_close(own.client);
    close_bare(&published);
    redisFree(info);
}

/* ---- Hand-off: many on one name ---- */

/* The protocol of the store. */
static void bare_turn(struct crew *crew, int i, const char *name) {
    struct means *means = crew->arg;
    char text[64];
    (void)name;
    while (!raw_acquire(means->to[i], &means->lock[i]))
        raw_hear(means->from[i], text, sizeof(text));
    crew_holds(crew, i);
    raw_do(means->to[i], &means->lock[i].release);
}

/* No lock, only its hand-over: the thread that gets a message asks the server something and sends a
 * message to the next. When it is time to stop, the message says so, and how many threads know. A
 * thread leaves only when it knows: otherwise the message would go to one that has left. */
static void bare_hand_over(struct crew *crew, int i, const char *name) {
    struct means *means = crew->arg;
    char text[64];
    (void)name;
    raw_hear(means->from[i], text, sizeof(text));
    int know = *text == 'x' ? atoi(text + 1) : 0;
    if (!know) {
        raw_do(means->to[i], &means->lock[i].acquire);
        crew_holds(crew, i);
        if (!atomic_load(&crew->stop)) {
            raw_do(means->to[i], &means->tell_next[i]);
            return;
        }
    }
    means->knows[i] = true;
    if (know < crew->count - 1)
        freeReplyObject(redisCommand(means->to[i], "PUBLISH over-%d-%d x%d", crew->count,
                                     (i + 1) % crew->count, know + 1));
}

static bool knows(struct crew *crew, int i) {
    const struct means *means = crew->arg;
    return means->knows[i];
}

static double changes_slice(void *arg) {
    struct crew *crew = arg;
    struct means *means = crew->arg;
    memset(means->knows, 0, sizeof(means->knows));
    struct raw_cost before = raw_cost(means->info);
    if (crew->pair == bare_hand_over)
        raw_do(means->info, &means->tell_next[crew->count - 1]);
    double changes = crew_slice(crew);
    means->each[means->slices++] = raw_cost_each(means->info, before, (double)crew->changes);
    return changes;
}

static struct crew own_crew(int count) {
    struct crew crew = crew_new(count, own_pair);
    struct means *means = crew.arg;
    means->info = raw_connect();
    for (int i = 0; i < count; i++)
        means->client[i] = open_client();
    return crew;
}

static struct crew bare_crew(int count) {
    struct crew crew = crew_new(count, bare_turn);
    struct means *means = crew.arg;
    means->info = raw_connect();
    for (int i = 0; i < count; i++) {
        means->to[i] = raw_connect();
        means->lock[i] = raw_lock("turns", (unsigned)(1000 * count + i));
        means->from[i] = raw_subscribe(means->lock[i].channel);
    }
    return crew;
}

static struct crew hand_over_crew(int count) {
    struct crew crew = crew_new(count, bare_hand_over);
    struct means *means = crew.arg;
    crew.leaves = knows;
    means->info = raw_connect();
    for (int i = 0; i < count; i++) {
        char own[32], next[32];
        snprintf(own, sizeof(own), "over-%d-%d", count, i);
        snprintf(next, sizeof(next), "over-%d-%d", count, (i + 1) % count);
        means->to[i] = raw_connect();
        means->from[i] = raw_subscribe(own);
        means->lock[i].acquire = raw_command(3, (const char *[]){"SET", "over", own});
        means->tell_next[i] = raw_command(3, (const char *[]){"PUBLISH", next, "t"});
    }
    return crew;
}

static void measure_hand_off_of(int count) {
    struct crew crews[] = {bare_crew(count), own_crew(count), hand_over_crew(count)};
    const struct means *own = crews[1].arg;
    const struct contender contenders[] = {
        {same, changes_slice, &crews[0]},
        {"holdfast", changes_slice, &crews[1]},
        {"publish and ask bare, no lock", changes_slice, &crews[2]},
    };
    char name[64], title[64];
    for (int i = 0; i < 3; i++)
        crews[i].one_name = true;
    snprintf(name, sizeof(name), "redis/hand-off-%d", count);
    snprintf(title, sizeof(title), "%d clients on one name", count);
    result_compare(name, title, "changes/s", contenders, 3);
    report_costs(name, title, "a change", own->each + 1, result_rounds()); /* without the warm-up */
    crews[1].slice_ms = 1000;
    crew_slice(&crews[1]);
    result_figure(name, title, "grants, the fewest to the most", "of the most",
                  (double[]){crew_least_to_most(&crews[1])}, 1);
    for (int i = 0; i < 3; i++)
        crew_free(&crews[i]);
}

static void measure_hand_off(void) {
    measure_hand_off_of(2);
    measure_hand_off_of(16);
    measure_hand_off_of(64);
}

/* ---- Latency of a hand-off to a waiter that sleeps ---- */

struct relay {
    void (*prepare)(struct relay *relay); /* here; for the lock: takes it */
    void (*wait)(struct relay *relay);    /* in the other thread, until it has the lock */
    void (*after)(struct relay *relay);   /* in the other thread */
    void (*pass)(struct relay *relay);    /* here: what is timed begins */
    const char *name;                     /* of the lock, if the waiter queues for it; or NULL */
    hf_client *client[2];
    hf_hold *hold[2];
    redisContext *to[2], *from, *look;
    struct raw_lock lock[2];
    struct raw_bytes ask, tell;
    atomic_int turn;
    _Atomic int64_t owned_ns;
};

static void nothing(struct relay *relay) {
    (void)relay;
}

static void own_prepare(struct relay *relay) {
    relay->hold[0] = take(relay->client[0], relay->name);
}
static void own_wait(struct relay *relay) {
    relay->hold[1] = take(relay->client[1], relay->name);
}
static void own_after(struct relay *relay) {
    give(relay->hold[1]);
}
static void own_pass(struct relay *relay) {
    give(relay->hold[0]);
}

static void bare_prepare(struct relay *relay) {
    if (!raw_acquire(relay->to[0], &relay->lock[0]))
        result_die("latency", "somebody else has the lock");
}
static void bare_wait(struct relay *relay) {
    char text[64];
    while (!raw_acquire(relay->to[1], &relay->lock[1]))
        raw_hear(relay->from, text, sizeof(text));
}
static void bare_after(struct relay *relay) {
    raw_do(relay->to[1], &relay->lock[1].release);
}
static void bare_pass(struct relay *relay) {
    raw_do(relay->to[0], &relay->lock[0].release);
}

static void over_wait(struct relay *relay) {
    char text[64];
    raw_hear(relay->from, text, sizeof(text));
    raw_do(relay->to[1], &relay->ask);
}
static void over_pass(struct relay *relay) {
    raw_do(relay->to[0], &relay->tell);
}

static void *receive(void *arg) {
    struct relay *relay = arg;
    for (int i = 1; i <= result_scale(LATENCIES, 2); i++) {
        while (atomic_load(&relay->turn) < i)
            result_sleep_us(50);
        relay->wait(relay);
        int64_t owned = result_now_ns();
        relay->after(relay);
        atomic_store(&relay->owned_ns, owned);
    }
    return NULL;
}

static void await_sleeper(struct relay *relay) {
    while (relay->name && raw_waiters(relay->look, relay->name) == 0)
        result_sleep_us(50);
    result_sleep_us(500);
}

static double latency_slice(void *arg) {
    struct relay *relay = arg;
    pthread_t thread;
    atomic_store(&relay->turn, 0);
    if (pthread_create(&thread, NULL, receive, relay))
        result_die("thread", strerror(errno));
    for (int i = 0; i < result_scale(LATENCIES, 2); i++) {
        relay->prepare(relay);
        atomic_store(&relay->owned_ns, 0);
        atomic_store(&relay->turn, i + 1);
        await_sleeper(relay);
        int64_t began = result_now_ns(), owned;
        relay->pass(relay);
        while (!(owned = atomic_load(&relay->owned_ns)))
            result_sleep_us(50);
        result_time(owned - began);
    }
    pthread_join(thread, NULL);
    return result_median_us();
}

static double idle_slice(void *arg) {
    struct relay *relay = arg;
    for (int i = 0; i < result_scale(LATENCIES, 2); i++) {
        result_sleep_us(500);
        int64_t began = result_now_ns();
        raw_do(relay->to[1], &relay->ask);
        result_time(result_now_ns() - began);
    }
    return result_median_us();
}

static void measure_latency(void) {
    struct relay over = {
        .prepare = nothing, .wait = over_wait, .after = nothing, .pass = over_pass};
    struct relay bare = {bare_prepare, bare_wait, bare_after, bare_pass, .name = "relay-bare"};
    struct relay own = {own_prepare, own_wait, own_after, own_pass, .name = "relay"};
    over.from = raw_subscribe("relay");
    over.ask = raw_command(3, (const char *[]){"SET", "relay", "mine"});
    over.tell = raw_command(3, (const char *[]){"PUBLISH", "relay", "t"});
    own.look = bare.look = raw_connect();
    for (int i = 0; i < 2; i++) {
        over.to[i] = raw_connect();
        bare.to[i] = raw_connect();
        bare.lock[i] = raw_lock(bare.name, (unsigned)i + 1);
        own.client[i] = open_client();
    }
    bare.from = raw_subscribe(bare.lock[1].channel);
    const struct contender contenders[] = {
        {"publish and ask bare, no lock", latency_slice, &over},
        {"holdfast", latency_slice, &own},
        {same, latency_slice, &bare},
        {"a round trip after idling", idle_slice, &over},
    };
    result_compare("redis/latency", "Release begun until the next, which slept, has the lock", "us",
                   contenders, 4);
    for (int i = 0; i < 2; i++) {
        hf_client_close(own.client[i]);
        redisFree(over.to[i]);
        redisFree(bare.to[i]);
        raw_lock_free(&bare.lock[i]);
    }
    redisFree(over.from);
    redisFree(bare.from);
    redisFree(bare.look);
    free(over.ask.bytes);
    free(over.tell.bytes);
}

/* ---- Many locks that are held ---- */

static double used_bytes(void) {
    struct mallinfo2 info = mallinfo2();
    return (double)(info.uordblks + info.hblkhd);
}

static double cpu_us(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* With several in flight, which is faster than one by one. */
static void take_many(hf_client *client, int count, hf_hold **ret_holds) {
    enum { AT_ONCE = 500 };
    hf_call *calls[AT_ONCE];
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = HELD_LEASE_MS;
    for (int begin = 0; begin < count; begin += AT_ONCE) {
        int end = begin + AT_ONCE < count ? begin + AT_ONCE : count;
        for (int i = begin; i < end; i++) {
            char name[NAME_SIZE];
            snprintf(name, sizeof(name), "held-%d", i);
            must(hf_acquire_start(client, name, &options, &calls[i - begin]), "acquire");
        }
        for (int i = begin; i < end; i++) {
            must(hf_call_wait(calls[i - begin], HF_FOREVER), "acquire");
            ret_holds[i] = hf_call_take_hold(calls[i - begin]);
            hf_call_free(calls[i - begin]);
        }
    }
}

static void measure_held(void) {
    int count = result_scale(HELD, 100), seconds = result_scale(HELD_S, 1), lost = 0;
    hf_hold **holds = calloc((size_t)count, sizeof(hf_hold *));
    redisContext *info = raw_connect();
    hf_client *client = open_client();
    give(take(client, "pair"));
    double bytes = used_bytes();
    take_many(client, count, holds);
    bytes = used_bytes() - bytes;
    struct raw_cost before = raw_cost(info);
    double cpu = cpu_us();
    result_sleep_us(seconds * INT64_C(1000000));
    cpu = cpu_us() - cpu;
    struct raw_cost cost = raw_cost_each(info, before, 1);
    for (int i = 0; i < count; i++) {
        lost += hf_check(holds[i], 0) != HF_OK;
        hf_hold_free(holds[i]);
    }
    const char *title = "10,000 locks held for 30 s, lease 10 s";
    result_figure("redis/held", title, "CPU of the client", "s", (double[]){cpu / 1e6}, 1);
    result_figure("redis/held", title, "CPU of the server", "s", (double[]){cost.cpu_us / 1e6}, 1);
    result_figure("redis/held", title, "the client's, for each lock", "bytes",
                  (double[]){bytes / count}, 1);
    result_figure("redis/held", title, "renewals", "renewals", (double[]){cost.renewals}, 1);
    result_figure("redis/held", title, "locks lost", "locks", (double[]){lost}, 1);
    hf_client_close(client);
    redisFree(info);
    free(holds);
}

/* ---- The command ---- */

static void measure_run(void) {
    static char path[] = "/tmp/bench-redis-XXXXXX";
    const char *command = getenv("HOLDFAST");
    int file = mkstemp(path);
    if (!command || file < 0)
        result_die("run", command ? strerror(errno) : "HOLDFAST does not name the command");
    close(file);
    setenv("HOLDFAST_URL", url, 1);
    const struct contender contenders[] = {
        {"flock x true", process_command_slice, (const char *[]){"flock", path, "true", NULL}},
        {"holdfast run x -- true", process_command_slice,
         (const char *[]){command, "run", "x", "--", "true", NULL}},
        {"true", process_command_slice, (const char *[]){"true", NULL}},
    };
    result_compare("redis/run", "A command under a lock", "ms", contenders, 3);
    unlink(path);
}

/* ---- */

static int server;

static void pair_placed(void) {
    place_both(server, measure_pair);
}

static void threads_placed(void) {
    place_both(server, measure_threads);
}

static void hand_off_placed(void) {
    place_both(server, measure_hand_off);
}

static void latency_placed(void) {
    place_both(server, measure_latency);
}

int main(int argc, char **argv) {
    static const struct result_part parts[] = {
        {"redis/pair", pair_placed},       {"redis/threads", threads_placed},
        {"redis/server", measure_server},  {"redis/hand-off", hand_off_placed},
        {"redis/latency", latency_placed}, {"redis/held", measure_held},
        {"redis/run", measure_run},
    };
    if (argc != 2)
        result_die("usage", "bench-redis URL");
    url = argv[1];
    raw_find_server(url);
    redisContext *to = raw_connect();
    server = raw_server_pid(to);
    redisFree(to);
    result_run(parts, sizeof(parts) / sizeof(parts[0]));
    return 0;
}
