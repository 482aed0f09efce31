/* The Redis store beside its limits: the same requests sent by bare hiredis (redis_raw.h), in one
 * run, each slice between two slices of the limit, medians of rounds. What counts are the ratios;
 * the absolute figures move with the machine and the minute.
 *
 *   pair      acquire and release of a free lock by one thread
 *   threads   8 and 64 threads on as many names and one client
 *   server    what a pair of a free lock costs the server
 *   hand-off  2, 16 and 64 clients on one name: changes of holder, and what each costs
 *   latency   release begun until the next, which slept, has the lock
 *   held      10,000 locks that are held and renewed for 30 s
 *   run       `holdfast run x -- true` beside `flock x true`
 *   growth    the cost of a pair over names, of a hand-off over clients, of a renewal over holds
 *
 * usage: bench-redis [-r ROUNDS] [-p | -d] URL [PART...]
 *
 * -p: pinned, client and server on one core; -d: by default, where the scheduler puts them. Without
 * either, the parts in which that matters are measured both ways and the others by default. Give it
 * a server of its own on this host: token counters stay behind, in the databases 0 to 3. */
#include "compare.h"
#include "redis_raw.h"

#include <errno.h>
#include <fcntl.h>
#include <holdfast/holdfast.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SLICE_NS = 60000000,
    LATENCIES = 20,
    SPAWNS = 5,
    HELD = 10000,
    HELD_S = 30,
    PARTIES_MAX = 256,
    NAME_SIZE = 24,
};

extern char **environ;

static void must(int result, const char *what) {
    if (result < 0)
        raw_die(what, hf_last_error());
}

static void pause_us(long us) {
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

/* ---- The store ---- */

static hf_client *open_client(int database) {
    hf_client *client;
    must(hf_client_open(raw_url(database), NULL, &client), "open");
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
    int64_t began = compare_now_ns(), passed;
    int count = 0;
    do {
        for (int i = 0; i < 16; i++, count++)
            do_pair(pairs);
        passed = compare_now_ns() - began;
    } while (passed < SLICE_NS);
    return count * 1e9 / (double)passed;
}

static void close_bare(struct pairs *pairs) {
    redisFree(pairs->to);
    raw_lock_free(&pairs->lock);
}

static void measure_pair(void) {
    struct pairs own = {.client = open_client(0), .name = "pair"};
    struct pairs bare = {.to = raw_connect(), .lock = raw_lock("pair-bare", 1)};
    struct pairs again = {.to = raw_connect(), .lock = raw_lock("pair-again", 2)};
    struct pairs published = {.to = raw_connect(), .lock = raw_published_lock("pair-published")};
    const struct contender contenders[] = {
        {"bare hiredis, the same two requests (limit)", pairs_slice, &bare, NULL},
        {"holdfast", pairs_slice, &own, ">= 0.95 pinned, 0.9 default"},
        {"the limit again: the noise", pairs_slice, &again, NULL},
        {"bare hiredis, the published pair, without token", pairs_slice, &published, NULL},
    };
    static struct comparison c;
    compare("One thread, a free lock", "pairs/s", contenders, 4, &c);
    compare_others(&c, 0, 3, "what a token leaves of the published pair", ">= 0.9");
    compare_others(&c, 1, 3, "holdfast, to the published pair", NULL);
    hf_client_close(own.client);
    close_bare(&bare);
    close_bare(&again);
    close_bare(&published);
}

/* ---- Threads ---- */

/* Threads that each repeat a step until the slice is over. A step that waits for others is finished
 * once begun: the holder releases the lock. */
struct crew {
    int count;
    bool (*step)(struct crew *crew, int index); /* whether to go on */
    hf_client *client[PARTIES_MAX];
    redisContext *to[PARTIES_MAX], *from[PARTIES_MAX];
    struct raw_lock lock[PARTIES_MAX];
    struct raw_bytes tell_next[PARTIES_MAX];
    char name[PARTIES_MAX][NAME_SIZE];
    long steps[PARTIES_MAX];
    atomic_int last; /* the last holder */
    long changes;    /* of the one who has it */
    long slice_us;
    pthread_barrier_t start;
    atomic_bool stop;

    /* For hand-offs, of each slice but the first: */
    redisContext *info;
    int slices;
    struct raw_cost each[COMPARE_ROUNDS_MAX]; /* change of holder */
};

struct member {
    struct crew *crew;
    int index;
    pthread_t thread;
};

static void *work(void *arg) {
    struct member *member = arg;
    struct crew *crew = member->crew;
    pthread_barrier_wait(&crew->start);
    long steps = 1;
    while (crew->step(crew, member->index))
        steps++;
    crew->steps[member->index] = steps;
    return NULL;
}

/* Returns the seconds that it took. */
static double run_crew(struct crew *crew) {
    static struct member members[PARTIES_MAX];
    pthread_barrier_init(&crew->start, NULL, (unsigned)crew->count + 1);
    atomic_store(&crew->stop, false);
    atomic_store(&crew->last, -1);
    crew->changes = 0;
    for (int i = 0; i < crew->count; i++) {
        members[i] = (struct member){.crew = crew, .index = i};
        if (pthread_create(&members[i].thread, NULL, work, &members[i]))
            raw_die("thread", strerror(errno));
    }
    pthread_barrier_wait(&crew->start);
    int64_t began = compare_now_ns();
    pause_us(crew->slice_us);
    atomic_store(&crew->stop, true);
    for (int i = 0; i < crew->count; i++)
        pthread_join(members[i].thread, NULL);
    pthread_barrier_destroy(&crew->start);
    return (double)(compare_now_ns() - began) / 1e9;
}

static double steps_slice(void *arg) {
    struct crew *crew = arg;
    double seconds = run_crew(crew);
    long steps = 0;
    for (int i = 0; i < crew->count; i++)
        steps += crew->steps[i];
    return (double)steps / seconds;
}

static struct crew *crew_new(int count, bool (*step)(struct crew *, int)) {
    struct crew *crew = calloc(1, sizeof(*crew));
    if (!crew)
        raw_die("crew", strerror(errno));
    crew->count = count;
    crew->step = step;
    crew->slice_us = 3 * SLICE_NS / 2000;
    for (int i = 0; i < count; i++)
        snprintf(crew->name[i], NAME_SIZE, "name-%d", i);
    return crew;
}

static void crew_free(struct crew *crew) {
    for (int i = 0; i < crew->count; i++) {
        if (i == 0 || crew->client[i] != crew->client[0])
            hf_client_close(crew->client[i]);
        redisFree(crew->to[i]);
        redisFree(crew->from[i]);
        raw_lock_free(&crew->lock[i]);
        free(crew->tell_next[i].bytes);
    }
    redisFree(crew->info);
    free(crew);
}

/* ---- Threads on names of their own ---- */

static bool own_pair(struct crew *crew, int i) {
    give(take(crew->client[i], crew->name[i]));
    return !atomic_load(&crew->stop);
}

static bool bare_pair(struct crew *crew, int i) {
    raw_pair(crew->to[i], &crew->lock[i]);
    return !atomic_load(&crew->stop);
}

static double pipeline_slice(void *arg) {
    struct crew *crew = arg;
    int64_t began = compare_now_ns(), passed;
    int count = 0;
    do {
        raw_pipelined_pairs(crew->to[0], crew->lock, (size_t)crew->count);
        count += crew->count;
        passed = compare_now_ns() - began;
    } while (passed < SLICE_NS);
    return count * 1e9 / (double)passed;
}

static void measure_threads_of(int count) {
    struct crew *bare = crew_new(count, bare_pair), *own = crew_new(count, own_pair);
    for (int i = 0; i < count; i++) {
        bare->to[i] = raw_connect();
        bare->lock[i] = raw_lock(bare->name[i], (unsigned)i + 1);
        own->client[i] = i ? own->client[0] : open_client(0);
    }
    const struct contender contenders[] = {
        {"bare hiredis, a connection each (limit)", steps_slice, bare, NULL},
        {"holdfast, one client", steps_slice, own,
         count > 8 ? ">= 2 pinned, 1.3 default" : ">= 0.9 default"},
        {"bare hiredis, one thread, all in a pipeline", pipeline_slice, bare, NULL},
    };
    static struct comparison c;
    char title[64];
    snprintf(title, sizeof(title), "%d threads on as many names", count);
    compare(title, "pairs/s", contenders, 3, &c);
    compare_others(&c, 1, 2, "holdfast, to the pipeline", count > 8 ? ">= 0.7" : NULL);
    crew_free(own);
    crew_free(bare);
}

static void measure_threads(void) {
    measure_threads_of(8);
    measure_threads_of(64);
}

/* ---- The server's cost of a pair ---- */

static void cost_of_pairs(redisContext *info, struct pairs *pairs, struct raw_cost *ret) {
    enum { PAIRS = 1000 };
    struct raw_cost before = raw_cost(info);
    for (int i = 0; i < PAIRS; i++)
        do_pair(pairs);
    *ret = raw_cost_each(info, before, PAIRS);
}

static void print_costs(const char *what, const struct raw_cost *costs, int count,
                        const char *scripts_goal, const char *cpu_goal) {
    double values[4][COMPARE_ROUNDS_MAX];
    for (int i = 0; i < count; i++) {
        values[0][i] = costs[i].reads;
        values[1][i] = costs[i].scripts;
        values[2][i] = costs[i].scripts_us;
        values[3][i] = costs[i].cpu_us;
    }
    printf("  %-40s %6.2f reads  %5.2f scripts %-6s %6.1f us in scripts  %6.1f us of CPU %s\n",
           what, compare_median(values[0], count), compare_median(values[1], count), scripts_goal,
           compare_median(values[2], count), compare_median(values[3], count), cpu_goal);
}

static void measure_server(void) {
    redisContext *info = raw_connect();
    struct pairs own = {.client = open_client(0), .name = "pair"};
    struct pairs published = {.to = raw_connect(), .lock = raw_published_lock("pair-published")};
    struct raw_cost of_own[COMPARE_ROUNDS_MAX], of_published[COMPARE_ROUNDS_MAX];
    do_pair(&own);
    for (int i = 0; i < compare_rounds; i++) {
        cost_of_pairs(info, &own, &of_own[i]);
        cost_of_pairs(info, &published, &of_published[i]);
    }
    printf("\nWhat a pair of a free lock costs the server\n");
    print_costs("holdfast", of_own, compare_rounds, "", "(goal: 25 us in scripts)");
    print_costs("the published pair (SET is no script)", of_published, compare_rounds, "", "");
    hf_client_close(own.client);
    close_bare(&published);
    redisFree(info);
}

/* ---- Hand-off: many on one name ---- */

/* Called by the one who has the lock. */
static void note_holder(struct crew *crew, int i) {
    if (atomic_exchange(&crew->last, i) != i)
        crew->changes++;
}

static bool own_turn(struct crew *crew, int i) {
    hf_hold *hold = take(crew->client[i], "turns");
    note_holder(crew, i);
    give(hold);
    return !atomic_load(&crew->stop);
}

/* The protocol of the store. */
static bool bare_turn(struct crew *crew, int i) {
    char text[64];
    while (!raw_acquire(crew->to[i], &crew->lock[i]))
        raw_hear(crew->from[i], text, sizeof(text));
    note_holder(crew, i);
    raw_do(crew->to[i], &crew->lock[i].release);
    return !atomic_load(&crew->stop);
}

/* No lock, only its hand-over: the thread that gets a message asks the server something and sends a
 * message to the next. When it is time to stop, the message says so, and how many threads know. */
static bool bare_hand_over(struct crew *crew, int i) {
    char text[64];
    raw_hear(crew->from[i], text, sizeof(text));
    int know = *text == 'x' ? atoi(text + 1) : 0;
    if (!know) {
        raw_do(crew->to[i], &crew->lock[i].acquire);
        note_holder(crew, i);
        if (!atomic_load(&crew->stop)) {
            raw_do(crew->to[i], &crew->tell_next[i]);
            return true;
        }
    }
    if (know < crew->count - 1)
        freeReplyObject(redisCommand(crew->to[i], "PUBLISH over-%d-%d x%d", crew->count,
                                     (i + 1) % crew->count, know + 1));
    return false;
}

static double changes_slice(void *arg) {
    struct crew *crew = arg;
    struct raw_cost before = raw_cost(crew->info);
    if (crew->step == bare_hand_over)
        raw_do(crew->info, &crew->tell_next[crew->count - 1]);
    double seconds = run_crew(crew);
    if (crew->slices > 0 && crew->slices <= compare_rounds) {
        crew->each[crew->slices - 1] = raw_cost_each(crew->info, before, (double)crew->changes);
    }
    crew->slices++;
    return (double)crew->changes / seconds;
}

static struct crew *own_crew(int count) {
    struct crew *crew = crew_new(count, own_turn);
    crew->info = raw_connect();
    for (int i = 0; i < count; i++)
        crew->client[i] = open_client(0);
    return crew;
}

static struct crew *bare_crew(int count) {
    struct crew *crew = crew_new(count, bare_turn);
    crew->info = raw_connect();
    for (int i = 0; i < count; i++) {
        crew->to[i] = raw_connect();
        crew->lock[i] = raw_lock("turns", (unsigned)(1000 * count + i));
        crew->from[i] = raw_subscribe(crew->lock[i].channel);
    }
    return crew;
}

static struct crew *hand_over_crew(int count) {
    struct crew *crew = crew_new(count, bare_hand_over);
    crew->info = raw_connect();
    for (int i = 0; i < count; i++) {
        char own[32], next[32];
        snprintf(own, sizeof(own), "over-%d-%d", count, i);
        snprintf(next, sizeof(next), "over-%d-%d", count, (i + 1) % count);
        crew->to[i] = raw_connect();
        crew->from[i] = raw_subscribe(own);
        crew->lock[i].acquire = raw_command(3, (const char *[]){"SET", "over", own});
        crew->tell_next[i] = raw_command(3, (const char *[]){"PUBLISH", next, "t"});
    }
    return crew;
}

/* The grants of the one who had the fewest to those of the one who had the most, in a second. */
static double least_to_most(struct crew *crew) {
    crew->slice_us = 1000000;
    run_crew(crew);
    long least = crew->steps[0], most = least;
    for (int i = 1; i < crew->count; i++) {
        least = crew->steps[i] < least ? crew->steps[i] : least;
        most = crew->steps[i] > most ? crew->steps[i] : most;
    }
    return (double)least / (double)most;
}

static void measure_hand_off_of(int count) {
    struct crew *bare = bare_crew(count), *own = own_crew(count), *over = hand_over_crew(count);
    const struct contender contenders[] = {
        {"bare hiredis, the same requests (limit)", changes_slice, bare, NULL},
        {"holdfast", changes_slice, own, ">= 0.7"},
        {"bare hiredis, publish and ask, no lock", changes_slice, over, NULL},
    };
    static struct comparison c;
    char title[64];
    snprintf(title, sizeof(title), "%d clients on one name", count);
    compare(title, "changes/s", contenders, 3, &c);
    compare_others(&c, 1, 2, "holdfast, to publish and ask", ">= 0.7");
    print_costs("  a change: holdfast", own->each, compare_rounds, "(3)", "");
    print_costs("  a change: the same requests", bare->each, compare_rounds, "(3)", "");
    printf("    grants, the least to the most: %.3f of holdfast (goal: 0.95), %.3f bare\n",
           least_to_most(own), least_to_most(bare));
    crew_free(own);
    crew_free(bare);
    crew_free(over);
}

static void measure_hand_off(void) {
    measure_hand_off_of(2);
    measure_hand_off_of(16);
    measure_hand_off_of(64);
}

/* ---- Latency of a hand-off to one who sleeps ---- */

struct relay {
    void (*prepare)(struct relay *relay); /* here; for the lock: takes it */
    void (*wait)(struct relay *relay);    /* in the other thread, until it has the lock */
    void (*after)(struct relay *relay);   /* in the other thread */
    void (*pass)(struct relay *relay);    /* here: what is timed begins */
    const char *name;                     /* that is queued for, or NULL */
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
        raw_die("latency", "somebody else has the lock");
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
    for (int i = 1; i <= LATENCIES; i++) {
        while (atomic_load(&relay->turn) < i)
            pause_us(50);
        relay->wait(relay);
        int64_t owned = compare_now_ns();
        relay->after(relay);
        atomic_store(&relay->owned_ns, owned);
    }
    return NULL;
}

static void await_sleeper(struct relay *relay) {
    while (relay->name && raw_waiters(relay->look, relay->name) == 0)
        pause_us(50);
    pause_us(500);
}

static double latency_slice(void *arg) {
    struct relay *relay = arg;
    double samples[LATENCIES];
    pthread_t thread;
    atomic_store(&relay->turn, 0);
    if (pthread_create(&thread, NULL, receive, relay))
        raw_die("thread", strerror(errno));
    for (int i = 0; i < LATENCIES; i++) {
        relay->prepare(relay);
        atomic_store(&relay->owned_ns, 0);
        atomic_store(&relay->turn, i + 1);
        await_sleeper(relay);
        int64_t began = compare_now_ns(), owned;
        relay->pass(relay);
        while (!(owned = atomic_load(&relay->owned_ns)))
            pause_us(50);
        samples[i] = (double)(owned - began) / 1000;
    }
    pthread_join(thread, NULL);
    return compare_median(samples, LATENCIES);
}

static double idle_slice(void *arg) {
    struct relay *relay = arg;
    double samples[LATENCIES];
    for (int i = 0; i < LATENCIES; i++) {
        pause_us(500);
        int64_t began = compare_now_ns();
        raw_do(relay->to[1], &relay->ask);
        samples[i] = (double)(compare_now_ns() - began) / 1000;
    }
    return compare_median(samples, LATENCIES);
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
        own.client[i] = open_client(0);
    }
    bare.from = raw_subscribe(bare.lock[1].channel);
    const struct contender contenders[] = {
        {"bare hiredis, publish and ask, no lock (limit)", latency_slice, &over, NULL},
        {"holdfast", latency_slice, &own, "<= 1.2"},
        {"bare hiredis, the same requests", latency_slice, &bare, NULL},
        {"a round trip after idling", idle_slice, &over, NULL},
    };
    static struct comparison c;
    compare("Release begun -> the next, which slept, has the lock", "us", contenders, 4, &c);
    compare_others(&c, 1, 3, "holdfast, to a round trip after idling", "<= 4");
    compare_others(&c, 1, 2, "holdfast, to bare hiredis with the same requests", NULL);
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
static void take_many(hf_client *client, int count, int64_t lease_ms, hf_hold **ret_holds) {
    enum { AT_ONCE = 500 };
    hf_call *calls[AT_ONCE];
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = lease_ms;
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

struct held {
    double bytes_each, cpu_us, server_cpu_us, renewals;
    int lost;
};

static struct held hold_many(int count, int64_t lease_ms, int seconds) {
    hf_hold **holds = calloc((size_t)count, sizeof(hf_hold *));
    redisContext *info = raw_connect();
    hf_client *client = open_client(0);
    give(take(client, "pair"));
    double bytes = used_bytes();
    take_many(client, count, lease_ms, holds);
    struct held held = {.bytes_each = (used_bytes() - bytes) / count};
    struct raw_cost before = raw_cost(info);
    double cpu = cpu_us();
    pause_us(seconds * 1000000L);
    held.cpu_us = cpu_us() - cpu;
    struct raw_cost cost = raw_cost_each(info, before, 1);
    held.server_cpu_us = cost.cpu_us;
    held.renewals = cost.renewals;
    for (int i = 0; i < count; i++) {
        held.lost += hf_check(holds[i], 0) != HF_OK;
        hf_hold_free(holds[i]);
    }
    hf_client_close(client);
    redisFree(info);
    free(holds);
    return held;
}

static void measure_held(void) {
    struct held held = hold_many(HELD, 10000, HELD_S);
    printf("\n%d locks held for %d s, lease 10 s\n", HELD, HELD_S);
    printf("  %-56s %10.3f s     (goal: 0.15)\n", "CPU of the client", held.cpu_us / 1e6);
    printf("  %-56s %10.3f s\n", "CPU of the server", held.server_cpu_us / 1e6);
    printf("  %-56s %10.0f bytes (goal: 300)\n", "allocated for each lock", held.bytes_each);
    printf("  %-56s %10.0f\n", "renewals", held.renewals);
    printf("  %-56s %10d       (goal: 0)\n", "locks that were lost", held.lost);
}

/* ---- The command ---- */

static double spawn_slice(void *arg) {
    char *const *words = arg;
    int64_t began = compare_now_ns();
    for (int i = 0; i < SPAWNS; i++) {
        pid_t child;
        int status, error = posix_spawnp(&child, words[0], NULL, NULL, words, environ);
        if (error || waitpid(child, &status, 0) < 0 || status != 0)
            raw_die(words[0], error ? strerror(error) : "it failed");
    }
    return (double)(compare_now_ns() - began) / 1e6 / SPAWNS;
}

static void measure_run(void) {
    static char path[] = "/tmp/bench-redis-XXXXXX";
    const char *command = getenv("HOLDFAST");
    int file = mkstemp(path);
    if (!command || file < 0)
        raw_die("run", command ? strerror(errno) : "HOLDFAST does not name the command");
    close(file);
    setenv("HOLDFAST_URL", raw_url(0), 1);
    const struct contender contenders[] = {
        {"flock x true (limit)", spawn_slice, (const char *[]){"flock", path, "true", NULL}, NULL},
        {"holdfast run x -- true", spawn_slice,
         (const char *[]){command, "run", "x", "--", "true", NULL}, "<= 2"},
        {"true", spawn_slice, (const char *[]){"true", NULL}, NULL},
    };
    static struct comparison c;
    compare("The command", "ms", contenders, 3, &c);
    unlink(path);
}

/* ---- Growth ---- */

struct many_names {
    hf_client *client;
    unsigned count;
    uint64_t random;
};

/* The server has seen each name once, and keeps its token. */
static void fill_names(int database, unsigned count) {
    enum { AT_ONCE = 100 };
    redisContext *to = raw_connect();
    freeReplyObject(redisCommand(to, "SELECT %d", database));
    for (unsigned begin = 0; begin < count; begin += AT_ONCE) {
        struct raw_lock locks[AT_ONCE];
        unsigned filled = 0;
        for (; filled < AT_ONCE && begin + filled < count; filled++) {
            char name[NAME_SIZE];
            snprintf(name, sizeof(name), "name-%u", begin + filled);
            locks[filled] = raw_lock(name, 1);
        }
        raw_pipelined_pairs(to, locks, filled);
        while (filled)
            raw_lock_free(&locks[--filled]);
    }
    redisFree(to);
}

static double names_slice(void *arg) {
    struct many_names *names = arg;
    int64_t began = compare_now_ns(), passed;
    int count = 0;
    do {
        char name[NAME_SIZE];
        names->random ^= names->random << 13;
        names->random ^= names->random >> 7;
        names->random ^= names->random << 17;
        snprintf(name, sizeof(name), "name-%u", (unsigned)(names->random % names->count));
        give(take(names->client, name));
        count++;
        passed = compare_now_ns() - began;
    } while (passed < SLICE_NS);
    return (double)passed / 1000 / count;
}

static void measure_names(void) {
    struct many_names names[3] = {{.count = 10}, {.count = 1000}, {.count = 100000}};
    for (int i = 0; i < 3; i++) {
        fill_names(i + 1, names[i].count);
        names[i].client = open_client(i + 1);
        names[i].random = 88172645463325252u;
    }
    const struct contender contenders[] = {{"10 names (limit)", names_slice, &names[0], NULL},
                                           {"1,000 names", names_slice, &names[1], "flat"},
                                           {"100,000 names", names_slice, &names[2], "flat"}};
    static struct comparison c;
    compare("Growth: a pair, of one of so many names by chance", "us", contenders, 3, &c);
    for (int i = 0; i < 3; i++)
        hf_client_close(names[i].client);
}

static void measure_growing_queue(void) {
    struct crew *crews[] = {own_crew(2), own_crew(16), own_crew(64), own_crew(PARTIES_MAX)};
    const struct contender contenders[] = {{"2 clients (limit)", changes_slice, crews[0], NULL},
                                           {"16 clients", changes_slice, crews[1], "flat"},
                                           {"64 clients", changes_slice, crews[2], "flat"},
                                           {"256 clients", changes_slice, crews[3], "flat"}};
    static struct comparison c;
    compare("Growth: many clients on one name", "changes/s", contenders, 4, &c);
    for (int i = 0; i < 4; i++) {
        char what[64];
        snprintf(what, sizeof(what), "  a change of %d clients", crews[i]->count);
        print_costs(what, crews[i]->each, compare_rounds, "", "");
        crew_free(crews[i]);
    }
}

static void measure_growing_holds(void) {
    static const int counts[] = {100, 1000, 10000, 100000};
    printf("\nGrowth: many locks held for 3 s, lease 3 s (each renewal)\n");
    for (int i = 0; i < 4; i++) {
        struct held held = hold_many(counts[i], 3000, 3);
        printf("  %6d locks: client %5.2f us, server %5.2f us of CPU; %.0f renewals, %d lost\n",
               counts[i], held.cpu_us / held.renewals, held.server_cpu_us / held.renewals,
               held.renewals, held.lost);
        fflush(stdout);
    }
}

static void measure_growth(void) {
    measure_names();
    measure_growing_queue();
    measure_growing_holds();
}

/* ---- Placement ---- */

static cpu_set_t own_cores, server_cores;

/* Existing threads keep their core: it is chosen before clients are opened. */
static void place(bool pinned, int server) {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE && !CPU_COUNT(&one); core++)
        if (CPU_ISSET(core, &own_cores))
            CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof(one), pinned ? &one : &own_cores) < 0 ||
        sched_setaffinity(server, sizeof(one), pinned ? &one : &server_cores) < 0)
        raw_die("sched_setaffinity", strerror(errno));
}

/* ---- */

static const struct part {
    const char *name;
    void (*measure)(void);
    bool both; /* placements matter */
} parts[] = {{"pair", measure_pair, true},       {"threads", measure_threads, true},
             {"server", measure_server, false},  {"hand-off", measure_hand_off, true},
             {"latency", measure_latency, true}, {"held", measure_held, false},
             {"run", measure_run, false},        {"growth", measure_growth, false}};

static bool is_wanted(const char *name, char **words) {
    bool any = *words;
    for (; *words; words++)
        if (strcmp(*words, name) == 0)
            return true;
    return !any;
}

static void allow_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv) {
    bool pinned = false, by_default = false;
    int option;
    while ((option = getopt(argc, argv, "r:pd")) != -1) {
        pinned |= option == 'p';
        by_default |= option == 'd';
        if (option == 'r')
            compare_rounds = atoi(optarg);
        if (option == '?')
            return 2;
    }
    if (optind >= argc || compare_rounds < 1 || compare_rounds > COMPARE_ROUNDS_MAX)
        raw_die("usage", "bench-redis [-r ROUNDS] [-p | -d] URL [PART...]");
    raw_find_server(argv[optind]);
    allow_descriptors();
    redisContext *to = raw_connect();
    int server = raw_server_pid(to);
    redisFree(to);
    if (sched_getaffinity(0, sizeof(own_cores), &own_cores) < 0 ||
        sched_getaffinity(server, sizeof(server_cores), &server_cores) < 0)
        raw_die("the server's process", "it is not on this host");
    printf("medians of %d interleaved rounds\n", compare_rounds);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        for (int pin = 1; pin >= 0; pin--) {
            bool chosen = pinned == by_default ? parts[i].both || !pin : pinned == pin;
            if (!chosen || !is_wanted(parts[i].name, argv + optind + 1))
                continue;
            place(pin, server);
            printf("\n==== %s, %s ====\n", parts[i].name, pin ? "pinned to one core" : "default");
            parts[i].measure();
            fflush(stdout);
        }
    }
    place(false, server);
    return 0;
}
