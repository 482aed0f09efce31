/* The quorum store on five servers: what a server that hangs or is dead costs, and what the set
 * costs compared with one server. The limit is the same requests sent by bare hiredis (redis_raw.h)
 * to all servers at once and awaited from three. The locks of npm's redlock and redis-semaphore are
 * measured as well.
 *
 *   pair      acquire and release of a free lock by one thread: healthy, one server hung
 *             (SIGSTOP), one dead
 *   peers     the same by npm's locks
 *   one-name  2 and 16 clients on one name
 *   hang      a server that hangs for a while under load: what is done each second, and the
 *             client's memory
 *   requests  what each server is asked for a pair, and for a hold that is renewed
 *
 * usage: bench-quorum URL
 *
 * URL names five servers of this host, which nobody else uses. Without NODE_PATH, npm's locks are
 * left out; BENCH_PEERS names their folder. */
#include "crew.h"
#include "process.h"
#include "redis_raw.h"
#include "result.h"

#include <errno.h>
#include <fcntl.h>
#include <holdfast/holdfast.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    NODES = 5,
    QUORUM = 3,
    HUNG = 4, /* which one hangs */
    SLICE_MS = 60,
    CONTENTION_MS = 500,
    SETTLE_US = 30000, /* in which a server that hung catches up */
    CONTENDERS_MAX = 16,
    HANG_THREADS = 8,
    HANG_S = 6,
};

/* ---- The servers ---- */

static struct {
    int port, pid;
    redisContext *info;
} nodes[NODES];

static void find_nodes(const char *url) {
    const char *at = strstr(url, "://");
    for (int i = 0; i < NODES; i++) {
        at = at ? strpbrk(at + 1, "/,") : NULL;
        at = at ? strchr(at + 1, ':') : NULL;
        nodes[i].port = at ? atoi(at + 1) : 0;
        if (!nodes[i].port)
            result_die(url, "it must be quorum+redis:// and five times 127.0.0.1:PORT");
        nodes[i].info = raw_connect_to("127.0.0.1", nodes[i].port);
        nodes[i].pid = raw_server_pid(nodes[i].info);
        raw_load(nodes[i].info);
    }
}

static char state_of(int pid) {
    char path[64], text[512] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file || !fgets(text, sizeof(text), file))
        result_die(path, strerror(errno));
    fclose(file);
    const char *name_end = strrchr(text, ')');
    return name_end ? name_end[2] : '?';
}

static void hang(void) {
    if (kill(nodes[HUNG].pid, SIGSTOP) < 0)
        result_die("SIGSTOP", strerror(errno));
    while (state_of(nodes[HUNG].pid) != 'T')
        result_sleep_us(100);
}

static void resume(void) {
    kill(nodes[HUNG].pid, SIGCONT);
    freeReplyObject(redisCommand(nodes[HUNG].info, "PING"));
    result_sleep_us(SETTLE_US);
}

/* A port that is taken, and where nobody listens. */
static int dead_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) < 0)
        result_die("a port", strerror(errno));
    return ntohs(address.sin_port);
}

/* ---- The store ---- */

static void must(int result, const char *what) {
    if (result < 0)
        result_die(what, hf_last_error());
}

static hf_client *open_url(const char *url) {
    hf_client *client;
    must(hf_client_open(url, NULL, &client), "open");
    return client;
}

static hf_client *open_set(int last_port) {
    char url[256];
    snprintf(url, sizeof(url),
             "quorum+redis://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d"
             "?init=yes&id=bench",
             nodes[0].port, nodes[1].port, nodes[2].port, nodes[3].port, last_port);
    return open_url(url);
}

static hf_client *open_one(void) {
    char url[64];
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", nodes[0].port);
    return open_url(url);
}

static hf_hold *take(hf_client *client, const char *name) {
    hf_hold *hold;
    must(hf_acquire(client, name, NULL, &hold), "acquire");
    return hold;
}

/* On a busy host, servers may take longer than a set waits for them: the end of the report says
 * so. */
static atomic_int unconfirmed;

static void give(hf_hold *hold) {
    int result = hf_release(hold);
    if (result == HF_UNKNOWN)
        atomic_fetch_add(&unconfirmed, 1);
    else
        must(result, "release");
    hf_hold_free(hold);
}

/* ---- The limit: bare connections ---- */

struct bare {
    redisContext *to[NODES];
    struct raw_lock lock;
    long asked, answered[NODES];
};

static struct bare *bare_open(const char *name, unsigned owner) {
    struct bare *bare = calloc(1, sizeof(*bare));
    bare->lock = raw_vote(name, owner, "bench/5/3/60000"); /* as in src/store/quorum/open.c */
    for (int i = 0; i < NODES; i++) {
        bare->to[i] = raw_connect_to("127.0.0.1", nodes[i].port);
        bare->to[i]->flags &= ~REDIS_BLOCK;
        fcntl(bare->to[i]->fd, F_SETFL, O_NONBLOCK);
    }
    return bare;
}

static void bare_close(struct bare *bare) {
    for (int i = 0; i < NODES; i++)
        redisFree(bare->to[i]);
    raw_lock_free(&bare->lock);
    free(bare);
}

static void bare_read(struct bare *bare, int i) {
    redisContext *from = bare->to[i];
    redisReply *reply = NULL;
    if (redisBufferRead(from) != REDIS_OK)
        result_die("read", from->errstr);
    while (redisGetReplyFromReader(from, (void **)&reply) == REDIS_OK && reply) {
        bool is_vote = bare->answered[i]++ % 2 == 0;
        if (is_vote
                ? reply->type != REDIS_REPLY_ARRAY || strcmp(reply->element[0]->str, "done") != 0
                : reply->type != REDIS_REPLY_INTEGER || reply->integer != 1)
            result_die("a server answers", reply->str ? reply->str : "something else");
        freeReplyObject(reply);
    }
}

/* Asks all, and returns when three have answered. */
static void bare_round(struct bare *bare, const struct raw_bytes *request) {
    bare->asked++;
    for (int i = 0, done; i < NODES; i++) {
        redisAppendFormattedCommand(bare->to[i], request->bytes, request->size);
        if (redisBufferWrite(bare->to[i], &done) != REDIS_OK)
            result_die("write", bare->to[i]->errstr);
    }
    for (int have = 0; have < QUORUM;) {
        struct pollfd polled[NODES];
        for (int i = 0; i < NODES; i++)
            polled[i] = (struct pollfd){.fd = bare->to[i]->fd, .events = POLLIN};
        poll(polled, NODES, -1);
        have = 0;
        for (int i = 0; i < NODES; i++) {
            if (polled[i].revents)
                bare_read(bare, i);
            have += bare->answered[i] == bare->asked;
        }
    }
}

/* ---- npm's locks ---- */

static struct peer *npm; /* NULL: the packages are not there */

static void start_npm(void) {
    const char *folder = getenv("BENCH_PEERS");
    char script[400], ports[NODES][16];
    const char *words[NODES + 4] = {"node", script, "-"};
    if (!getenv("NODE_PATH"))
        return;
    snprintf(script, sizeof(script), "%s/npm_locks.js", folder ? folder : ".");
    for (int i = 0; i < NODES; i++) {
        snprintf(ports[i], sizeof(ports[i]), "%d", nodes[i].port);
        words[i + 3] = ports[i];
    }
    npm = peer_start(words);
}

/* ---- One after the other ---- */

/* What acquires and releases a free lock: one of these. */
struct side {
    hf_client *client;
    struct bare *bare;
    struct peer_slice npm;
    bool hung; /* a server hangs meanwhile */
};

static void do_pairs(struct side *side) {
    int64_t now = result_now_ns(), until = now + result_slice_ns(SLICE_MS);
    while (now < until) {
        if (side->client) {
            give(take(side->client, "pair"));
        } else {
            raw_raise_floor(&side->bare->lock);
            bare_round(side->bare, &side->bare->lock.acquire);
            bare_round(side->bare, &side->bare->lock.release);
        }
        int64_t before = now;
        now = result_now_ns();
        result_time(now - before);
    }
}

/* The median of a slice, in us. */
static double pair_slice(void *arg) {
    struct side *side = arg;
    if (side->hung)
        hang();
    if (side->npm.what)
        peer_slice(&side->npm);
    else
        do_pairs(side);
    if (side->hung)
        resume();
    return result_median_us();
}

static void measure_pair(void) {
    struct side healthy = {.client = open_set(nodes[HUNG].port)};
    struct side hung = {.client = open_set(nodes[HUNG].port), .hung = true};
    struct side dead = {.client = open_set(dead_port())};
    struct side one = {.client = open_one()};
    struct side bare = {.bare = bare_open("bare", 1)};
    struct side bare_hung = {.bare = bare_open("bare-hung", 2), .hung = true};
    const struct contender contenders[] = {
        {"holdfast", pair_slice, &healthy},
        {"holdfast, one of five hangs", pair_slice, &hung},
        {"holdfast, one of five is dead", pair_slice, &dead},
        {"holdfast on one server", pair_slice, &one},
        {"the same requests bare", pair_slice, &bare},
        {"the same requests bare, one of five hangs", pair_slice, &bare_hung},
    };
    result_compare("quorum/pair", "A free lock on five servers, one thread", "us", contenders, 6);
    hf_client_close(healthy.client);
    hf_client_close(hung.client);
    hf_client_close(dead.client);
    hf_client_close(one.client);
    bare_close(bare.bare);
    bare_close(bare_hung.bare);
}

static struct side npm_side(const char *package, bool hung) {
    return (struct side){.npm = {npm, "pairs", package, 1, SLICE_MS}, .hung = hung};
}

static void measure_peers(void) {
    if (!npm)
        return;
    struct side healthy = {.client = open_set(nodes[HUNG].port)};
    struct side hung = {.client = open_set(nodes[HUNG].port), .hung = true};
    struct side redlock = npm_side("redlock", false), redlock_hung = npm_side("redlock", true);
    struct side semaphore = npm_side("redis-semaphore", false),
                semaphore_hung = npm_side("redis-semaphore", true);
    const struct contender contenders[] = {
        {"holdfast", pair_slice, &healthy},
        {"holdfast, one of five hangs", pair_slice, &hung},
        {"npm redlock", pair_slice, &redlock},
        {"npm redlock, one of five hangs", pair_slice, &redlock_hung},
        {"npm redis-semaphore", pair_slice, &semaphore},
        {"npm redis-semaphore, one of five hangs", pair_slice, &semaphore_hung},
    };
    result_compare("quorum/peers", "The same beside npm's locks", "us", contenders, 6);
    hf_client_close(healthy.client);
    hf_client_close(hung.client);
}

/* ---- Many on one name ---- */

static void own_pair(struct crew *crew, int index, const char *name) {
    hf_client **clients = crew->arg;
    hf_hold *hold = take(clients[index], name);
    crew_holds(crew, index);
    give(hold);
}

static void measure_one_name_of(int count) {
    hf_client *clients[CONTENDERS_MAX];
    struct crew own = {.count = count,
                       .one_name = true,
                       .names = "contended",
                       .pair = own_pair,
                       .arg = clients,
                       .slice_ms = CONTENTION_MS};
    struct peer_slice redlock = {npm, "changes", "redlock", count, CONTENTION_MS};
    struct peer_slice semaphore = {npm, "changes", "redis-semaphore", count, CONTENTION_MS};
    for (int i = 0; i < count; i++)
        clients[i] = open_set(nodes[HUNG].port);
    const struct contender contenders[] = {
        {"holdfast", crew_slice, &own},
        {"npm redlock", peer_slice, &redlock},
        {"npm redis-semaphore", peer_slice, &semaphore},
    };
    char name[64], title[64];
    snprintf(name, sizeof(name), "quorum/one-name-%d", count);
    snprintf(title, sizeof(title), "%d clients on one name, on five servers", count);
    result_compare(name, title, "changes/s", contenders, npm ? 3 : 1);
    for (int i = 0; i < count; i++)
        hf_client_close(clients[i]);
}

static void measure_one_name(void) {
    measure_one_name_of(2);
    measure_one_name_of(16);
}

/* ---- A server that hangs for a while ---- */

struct load {
    hf_client *client;
    atomic_bool stop;
    atomic_long pairs;
    atomic_int names;
};

static void *load_names(void *arg) {
    struct load *load = arg;
    char name[16];
    snprintf(name, sizeof(name), "load-%d", atomic_fetch_add(&load->names, 1));
    while (!atomic_load(&load->stop)) {
        give(take(load->client, name));
        atomic_fetch_add(&load->pairs, 1);
    }
    return NULL;
}

static double resident_mb(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file || fscanf(file, "%*s %ld", &pages) != 1)
        result_die("/proc/self/statm", "it cannot be read");
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1e6;
}

static double pairs_in_a_second(struct load *load) {
    int64_t began = result_now_ns();
    long before = atomic_load(&load->pairs);
    result_sleep_us(1000000);
    return (double)(atomic_load(&load->pairs) - before) * 1e9 / (double)(result_now_ns() - began);
}

static void measure_hang(void) {
    static const char *const title = "8 threads on as many names while a server hangs for 6 s";
    struct load load = {.client = open_set(nodes[HUNG].port)};
    pthread_t threads[HANG_THREADS];
    double ratios[HANG_S];
    int seconds = result_scale(HANG_S, 1);
    for (int i = 0; i < HANG_THREADS; i++) {
        if (pthread_create(&threads[i], NULL, load_names, &load))
            result_die("thread", strerror(errno));
    }
    pairs_in_a_second(&load);
    double healthy = pairs_in_a_second(&load), megabytes = resident_mb();
    hang();
    for (int i = 0; i < seconds; i++)
        ratios[i] = pairs_in_a_second(&load) / healthy;
    megabytes = resident_mb() - megabytes;
    resume();
    double after = pairs_in_a_second(&load);
    atomic_store(&load.stop, true);
    for (int i = 0; i < HANG_THREADS; i++)
        pthread_join(threads[i], NULL);
    result_figure("quorum/hang", title, "before", "pairs/s", &healthy, 1);
    result_figure("quorum/hang", title, "while it hangs, each second", "of before", ratios,
                  seconds);
    result_figure("quorum/hang", title, "after", "of before", (double[]){after / healthy}, 1);
    result_figure("quorum/hang", title, "memory that was added meanwhile", "MB", &megabytes, 1);
    hf_client_close(load.client);
}

/* ---- What the servers are asked ---- */

/* A value for each server. */
static void report_requests(const char *what, const struct raw_cost *before, double count) {
    double reads[NODES];
    for (int i = 0; i < NODES; i++)
        reads[i] = raw_cost_each(nodes[i].info, before[i], count).reads;
    result_figure("quorum/requests", "What a server is asked", what, "requests", reads, NODES);
}

static void note_costs(struct raw_cost *ret) {
    for (int i = 0; i < NODES; i++)
        ret[i] = raw_cost(nodes[i].info);
}

static void measure_requests(void) {
    enum { HOLD_S = 3, LEASE_MS = 900 };
    int pairs = result_scale(1000, 10);
    struct raw_cost before[NODES];
    hf_client *client = open_set(nodes[HUNG].port);
    give(take(client, "pair"));
    note_costs(before);
    for (int i = 0; i < pairs; i++)
        give(take(client, "pair"));
    result_sleep_us(SETTLE_US);
    report_requests("for an acquire and its release", before, pairs);
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = LEASE_MS;
    hf_hold *hold;
    must(hf_acquire(client, "held", &options, &hold), "acquire");
    result_sleep_us(LEASE_MS * 500); /* it has been renewed once */
    note_costs(before);
    result_sleep_us(result_scale(HOLD_S, 1) * INT64_C(1000000));
    report_requests("for a hold of 3 s, renewed each 0.3 s", before, 1);
    give(hold);
    hf_client_close(client);
}

/* ---- */

int main(int argc, char **argv) {
    if (argc != 2)
        result_die("usage", "bench-quorum URL");
    find_nodes(argv[1]);
    start_npm();
    result_run((const struct result_part[]){{"quorum/pair", measure_pair},
                                            {"quorum/peers", measure_peers},
                                            {"quorum/one-name", measure_one_name},
                                            {"quorum/hang", measure_hang},
                                            {"quorum/requests", measure_requests}},
               5);
    if (unconfirmed)
        fprintf(stderr, "bench: %d releases were not confirmed by three servers in time\n",
                unconfirmed);
    if (npm)
        peer_end(npm);
    for (int i = 0; i < NODES; i++)
        redisFree(nodes[i].info);
    return 0;
}
