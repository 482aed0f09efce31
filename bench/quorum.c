/* The quorum store on five servers: what a server that hangs or is dead costs, and what the set
 * costs compared with one server. It is measured against its limit: the same requests sent by bare
 * hiredis (redis_raw.h) to all servers at once and awaited from three. The locks of npm's redlock
 * and redis-semaphore (quorum_peers.js) are measured as well. All in one run, each slice between
 * two slices of the first, medians of rounds. What counts are the ratios.
 *
 *   pair      acquire and release of a free lock by one thread: healthy, one server hung
 *             (SIGSTOP), one dead
 *   peers     the same by npm's locks
 *   contend   2 and 16 clients on one name
 *   hang      a server that hangs for a while under load: what is done each second, and the
 *             client's memory
 *   requests  what each server is asked for a pair, and for a hold that is renewed
 *
 * usage: bench-quorum [-r ROUNDS] [-s SECONDS of hang] URL PEERS [PART...]
 *
 * URL names five servers of this host, which are this program's alone; PEERS is quorum_peers.js,
 * for which NODE_PATH must be set: else npm's locks are left out. */
#include "compare.h"
#include "redis_raw.h"

#include <errno.h>
#include <fcntl.h>
#include <holdfast/holdfast.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    NODES = 5,
    QUORUM = 3,
    HUNG = 4, /* which one hangs */
    SLICE_MS = 60,
    CONTENTION_MS = 500,
    CONTENTION_ROUNDS = 5,
    SETTLE_US = 30000, /* in which a server that hung catches up */
    CONTENDERS_MAX = 16,
    HANG_THREADS = 8,
};

extern char **environ;

static int hang_s = 6;

/* ---- The servers ---- */

static struct {
    int port, pid;
    redisContext *info;
} nodes[NODES];

static void pause_us(long us) {
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

static void find_nodes(const char *url) {
    const char *at = strstr(url, "://");
    for (int i = 0; i < NODES; i++) {
        at = at ? strpbrk(at + 1, "/,") : NULL;
        at = at ? strchr(at + 1, ':') : NULL;
        nodes[i].port = at ? atoi(at + 1) : 0;
        if (!nodes[i].port)
            raw_die(url, "it must be quorum+redis:// and five times 127.0.0.1:PORT");
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
        raw_die(path, strerror(errno));
    fclose(file);
    const char *name_end = strrchr(text, ')');
    return name_end ? name_end[2] : '?';
}

static void hang(void) {
    if (kill(nodes[HUNG].pid, SIGSTOP) < 0)
        raw_die("SIGSTOP", strerror(errno));
    while (state_of(nodes[HUNG].pid) != 'T')
        pause_us(100);
}

static void resume(void) {
    kill(nodes[HUNG].pid, SIGCONT);
    freeReplyObject(redisCommand(nodes[HUNG].info, "PING"));
    pause_us(SETTLE_US);
}

/* A port that is taken, and where nobody listens. */
static int dead_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) < 0)
        raw_die("a port", strerror(errno));
    return ntohs(address.sin_port);
}

/* ---- The store ---- */

static void must(int result, const char *what) {
    if (result < 0)
        raw_die(what, hf_last_error());
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
        raw_die("read", from->errstr);
    while (redisGetReplyFromReader(from, (void **)&reply) == REDIS_OK && reply) {
        bool is_vote = bare->answered[i]++ % 2 == 0;
        if (is_vote
                ? reply->type != REDIS_REPLY_ARRAY || strcmp(reply->element[0]->str, "done") != 0
                : reply->type != REDIS_REPLY_INTEGER || reply->integer != 1)
            raw_die("a server answers", reply->str ? reply->str : "something else");
        freeReplyObject(reply);
    }
}

/* Asks all, and returns when three have answered. */
static void bare_round(struct bare *bare, const struct raw_bytes *request) {
    bare->asked++;
    for (int i = 0, done; i < NODES; i++) {
        redisAppendFormattedCommand(bare->to[i], request->bytes, request->size);
        if (redisBufferWrite(bare->to[i], &done) != REDIS_OK)
            raw_die("write", bare->to[i]->errstr);
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

static struct {
    pid_t pid;
    int fd;
    FILE *from;
} peers;

static bool start_peers(char *script) {
    char ports[NODES][16], *words[NODES + 3] = {(char *)"node", script};
    int ends[2];
    posix_spawn_file_actions_t actions;
    if (!getenv("NODE_PATH"))
        return false;
    for (int i = 0; i < NODES; i++) {
        snprintf(ports[i], sizeof(ports[i]), "%d", nodes[i].port);
        words[i + 2] = ports[i];
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        raw_die("socketpair", strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    int error = posix_spawnp(&peers.pid, "node", &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        raw_die("node", strerror(error));
    close(ends[1]);
    peers.fd = ends[0];
    peers.from = fdopen(ends[0], "r");
    return true;
}

static void end_peers(void) {
    shutdown(peers.fd, SHUT_WR); /* it ends when nothing more comes */
    waitpid(peers.pid, NULL, 0);
    fclose(peers.from);
}

/* ---- Samples ---- */

struct samples {
    double *us;
    size_t count, room;
};

static void add_sample(struct samples *samples, double us) {
    if (samples->count == samples->room) {
        samples->room = samples->room ? 2 * samples->room : 1024;
        samples->us = realloc(samples->us, samples->room * sizeof(double));
        if (!samples->us)
            raw_die("samples", strerror(errno));
    }
    samples->us[samples->count++] = us;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of those from `begin` on, which it sorts. */
static double quantile(struct samples *samples, size_t begin, double share) {
    size_t count = samples->count - begin;
    if (!count)
        return 0;
    qsort(samples->us + begin, count, sizeof(double), by_size);
    size_t at = begin + (size_t)(share * (double)count);
    return samples->us[at < samples->count ? at : samples->count - 1];
}

/* Lets npm's locks contend, and returns how often the holder changed. */
static long ask_peers(const char *package, int count, int ms, struct samples *samples) {
    dprintf(peers.fd, "%s %d %d\n", package, count, ms);
    char *line = NULL, *at, *end;
    size_t room = 0;
    if (getline(&line, &room, peers.from) < 0)
        raw_die(package, "it has ended");
    long changes = strtol(line, &at, 10);
    for (double us; us = strtod(at, &end), end != at; at = end)
        add_sample(samples, us);
    free(line);
    return changes;
}

/* ---- One after the other ---- */

/* What acquires and releases a free lock: one of these. */
struct side {
    hf_client *client;
    struct bare *bare;
    const char *package;
    bool hung; /* while it does, a server hangs */
    struct samples samples;
};

static void do_pairs(struct side *side) {
    int64_t began = compare_now_ns(), until = began + SLICE_MS * INT64_C(1000000), now = began;
    while (now < until) {
        if (side->client) {
            give(take(side->client, "pair"));
        } else {
            bare_round(side->bare, &side->bare->lock.acquire);
            bare_round(side->bare, &side->bare->lock.release);
        }
        int64_t before = now;
        now = compare_now_ns();
        add_sample(&side->samples, (double)(now - before) / 1000);
    }
}

/* The median of a slice, in us. */
static double pair_slice(void *arg) {
    struct side *side = arg;
    size_t begin = side->samples.count;
    if (side->hung)
        hang();
    if (side->package)
        ask_peers(side->package, 1, SLICE_MS, &side->samples);
    else
        do_pairs(side);
    if (side->hung)
        resume();
    return quantile(&side->samples, begin, 0.5);
}

static void print_tails(const struct contender *contenders, size_t count) {
    double first = 0;
    for (size_t i = 0; i < count; i++) {
        struct side *side = contenders[i].arg;
        double tail = quantile(&side->samples, 0, 0.99);
        first = i ? first : tail;
        printf("  99th percentile: %-39s %10.1f   %6.2f\n", contenders[i].what, tail, tail / first);
        free(side->samples.us);
    }
}

static void measure_pair(void) {
    struct side healthy = {.client = open_set(nodes[HUNG].port)};
    struct side hung = {.client = open_set(nodes[HUNG].port), .hung = true};
    struct side dead = {.client = open_set(dead_port())};
    struct side one = {.client = open_one()};
    struct side bare = {.bare = bare_open("bare", 1)};
    struct side bare_hung = {.bare = bare_open("bare-hung", 2), .hung = true};
    const struct contender contenders[] = {
        {"holdfast, a set of five (to this)", pair_slice, &healthy, NULL},
        {"holdfast, one of the five hangs", pair_slice, &hung, "<= 1.3"},
        {"holdfast, one of the five is dead", pair_slice, &dead, "<= 1.2"},
        {"holdfast, one server (redis:)", pair_slice, &one, ">= 0.83"},
        {"bare hiredis, the same requests, three answers", pair_slice, &bare, ">= 0.9"},
        {"bare hiredis, one of the five hangs", pair_slice, &bare_hung, NULL},
    };
    static struct comparison c;
    compare("One thread, a free lock", "us/pair", contenders, 6, &c);
    compare_others(&c, 0, 4, "holdfast, to bare hiredis", "<= 1.1");
    compare_others(&c, 1, 5, "holdfast with one that hangs, to bare hiredis", NULL);
    compare_others(&c, 0, 3, "a set of five, to one server", "<= 1.2, with a core for each");
    compare_others(&c, 4, 3, "bare hiredis on five, to holdfast on one", NULL);
    print_tails(contenders, 6);
    hf_client_close(healthy.client);
    hf_client_close(hung.client);
    hf_client_close(dead.client);
    hf_client_close(one.client);
    bare_close(bare.bare);
    bare_close(bare_hung.bare);
}

static void measure_peers(void) {
    if (!peers.pid)
        return;
    struct side healthy = {.client = open_set(nodes[HUNG].port)};
    struct side hung = {.client = open_set(nodes[HUNG].port), .hung = true};
    struct side redlock = {.package = "redlock"};
    struct side redlock_hung = {.package = "redlock", .hung = true};
    struct side semaphore = {.package = "redis-semaphore"};
    struct side semaphore_hung = {.package = "redis-semaphore", .hung = true};
    const struct contender contenders[] = {
        {"holdfast (to this)", pair_slice, &healthy, NULL},
        {"holdfast, one of the five hangs", pair_slice, &hung, NULL},
        {"npm redlock", pair_slice, &redlock, ">= 2"},
        {"npm redlock, one of the five hangs", pair_slice, &redlock_hung, ">= 2"},
        {"npm redis-semaphore", pair_slice, &semaphore, ">= 2"},
        {"npm redis-semaphore, one of the five hangs", pair_slice, &semaphore_hung, ">= 2"},
    };
    static struct comparison c;
    compare("The same by npm's locks", "us/pair", contenders, 6, &c);
    compare_others(&c, 3, 2, "npm redlock: one that hangs, to healthy", NULL);
    compare_others(&c, 5, 4, "npm redis-semaphore: one that hangs, to healthy", NULL);
    print_tails(contenders, 6);
    hf_client_close(healthy.client);
    hf_client_close(hung.client);
}

/* ---- Many on one name ---- */

struct crowd {
    int count;
    const char *package; /* NULL: these clients, each with a thread */
    hf_client *clients[CONTENDERS_MAX];
    atomic_bool stop;
    atomic_int last; /* who had the lock */
    long changes;
    struct samples samples; /* of the one who has the lock */
    double reads;           /* of each server, for all that was got, */
    double seconds;         /* in so long */
};

struct member {
    struct crowd *crowd;
    int index;
    pthread_t thread;
};

static void *contend(void *arg) {
    struct member *member = arg;
    struct crowd *crowd = member->crowd;
    while (!atomic_load(&crowd->stop)) {
        int64_t asked = compare_now_ns();
        hf_hold *hold = take(crowd->clients[member->index], "contended");
        add_sample(&crowd->samples, (double)(compare_now_ns() - asked) / 1000);
        crowd->changes += atomic_exchange(&crowd->last, member->index) != member->index;
        give(hold);
    }
    return NULL;
}

static void run_crowd(struct crowd *crowd) {
    static struct member members[CONTENDERS_MAX];
    atomic_store(&crowd->stop, false);
    int count = crowd->count;
    for (int i = 0; i < count; i++) {
        members[i] = (struct member){.crowd = crowd, .index = i};
        if (pthread_create(&members[i].thread, NULL, contend, &members[i]))
            raw_die("thread", strerror(errno));
    }
    pause_us(CONTENTION_MS * 1000);
    atomic_store(&crowd->stop, true);
    for (int i = 0; i < count; i++)
        pthread_join(members[i].thread, NULL);
}

static double reads_of_all(void) {
    double reads = 0;
    for (int i = 0; i < NODES; i++)
        reads += raw_cost(nodes[i].info).reads;
    return reads;
}

/* Changes of holder each second. */
static double contention_slice(void *arg) {
    struct crowd *crowd = arg;
    double reads = reads_of_all();
    int64_t began = compare_now_ns();
    crowd->changes = 0;
    atomic_store(&crowd->last, -1);
    if (crowd->package)
        crowd->changes = ask_peers(crowd->package, crowd->count, CONTENTION_MS, &crowd->samples);
    else
        run_crowd(crowd);
    double seconds = (double)(compare_now_ns() - began) / 1e9;
    crowd->seconds += seconds;
    crowd->reads += (reads_of_all() - reads) / NODES - 3; /* but these */
    return (double)crowd->changes / seconds;
}

static void print_crowd(const char *what, struct crowd *crowd) {
    double count = (double)crowd->samples.count;
    printf("    %-16s %.0f acquires/s, also by the same again; time to get it: median %.2f ms, "
           "99th percentile %.1f ms, the longest %.1f ms; %.1f reads at each server for each\n",
           what, count / crowd->seconds, quantile(&crowd->samples, 0, 0.5) / 1000,
           quantile(&crowd->samples, 0, 0.99) / 1000, quantile(&crowd->samples, 0, 1) / 1000,
           crowd->reads / count);
    free(crowd->samples.us);
}

static void measure_contention_of(int count) {
    struct crowd own = {.count = count};
    struct crowd redlock = {.count = count, .package = "redlock"};
    struct crowd semaphore = {.count = count, .package = "redis-semaphore"};
    for (int i = 0; i < count; i++)
        own.clients[i] = open_set(nodes[HUNG].port);
    const struct contender contenders[] = {
        {"holdfast (to this)", contention_slice, &own, NULL},
        {"npm redlock, as it comes", contention_slice, &redlock, NULL},
        {"npm redis-semaphore, as it comes", contention_slice, &semaphore, NULL},
    };
    static struct comparison c;
    char title[64];
    snprintf(title, sizeof(title), "%d clients on one name", count);
    compare(title, "changes/s", contenders, peers.pid ? 3 : 1, &c);
    print_crowd("holdfast", &own);
    if (peers.pid) {
        print_crowd("redlock", &redlock);
        print_crowd("redis-semaphore", &semaphore);
    }
    for (int i = 0; i < count; i++)
        hf_client_close(own.clients[i]);
}

static void measure_contention(void) {
    int rounds = compare_rounds;
    compare_rounds = rounds < CONTENTION_ROUNDS ? rounds : CONTENTION_ROUNDS;
    measure_contention_of(2);
    measure_contention_of(16);
    compare_rounds = rounds;
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
        raw_die("/proc/self/statm", "it cannot be read");
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1e6;
}

static double pairs_in_a_second(struct load *load) {
    int64_t began = compare_now_ns();
    long before = atomic_load(&load->pairs);
    pause_us(1000000);
    return (double)(atomic_load(&load->pairs) - before) * 1e9 / (double)(compare_now_ns() - began);
}

static void measure_hang(void) {
    struct load load = {.client = open_set(nodes[HUNG].port)};
    pthread_t threads[HANG_THREADS];
    for (int i = 0; i < HANG_THREADS; i++) {
        if (pthread_create(&threads[i], NULL, load_names, &load))
            raw_die("thread", strerror(errno));
    }
    printf("\n%d threads on as many names, one client; a server hangs for %d s\n", HANG_THREADS,
           hang_s);
    pairs_in_a_second(&load);
    double healthy = pairs_in_a_second(&load);
    printf("  before       %8.0f pairs/s          %6.1f MB resident\n", healthy, resident_mb());
    hang();
    for (int i = 1; i <= hang_s; i++) {
        double pairs = pairs_in_a_second(&load);
        printf("  hangs %3d s  %8.0f pairs/s  %5.2f   %6.1f MB\n", i, pairs, pairs / healthy,
               resident_mb());
        fflush(stdout);
    }
    resume();
    double after = pairs_in_a_second(&load);
    printf("  after        %8.0f pairs/s  %5.2f   %6.1f MB\n", after, after / healthy,
           resident_mb());
    atomic_store(&load.stop, true);
    for (int i = 0; i < HANG_THREADS; i++)
        pthread_join(threads[i], NULL);
    hf_client_close(load.client);
}

/* ---- What the servers are asked ---- */

static void print_requests(const char *what, const struct raw_cost *before, double count) {
    printf("  %-44s", what);
    for (int i = 0; i < NODES; i++) {
        struct raw_cost cost = raw_cost_each(nodes[i].info, before[i], count);
        printf("  %5.2f/%5.2f", cost.reads, cost.scripts);
    }
    printf("\n");
}

static void note_costs(struct raw_cost *ret) {
    for (int i = 0; i < NODES; i++)
        ret[i] = raw_cost(nodes[i].info);
}

static void measure_requests(void) {
    enum { PAIRS = 1000, HOLD_S = 3, LEASE_MS = 900 };
    struct raw_cost before[NODES];
    hf_client *client = open_set(nodes[HUNG].port);
    printf("\nWhat each server is asked: reads of its socket/scripts\n");
    give(take(client, "pair"));
    note_costs(before);
    for (int i = 0; i < PAIRS; i++)
        give(take(client, "pair"));
    pause_us(SETTLE_US);
    print_requests("for an acquire and its release", before, PAIRS);
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = LEASE_MS;
    hf_hold *hold;
    must(hf_acquire(client, "held", &options, &hold), "acquire");
    pause_us(LEASE_MS * 500); /* the first renewal subscribes */
    note_costs(before);
    pause_us(HOLD_S * 1000000);
    print_requests("for a hold of 3 s, renewed each 0.3 s", before, 1);
    give(hold);
    hf_client_close(client);
}

/* ---- */

static const struct part {
    const char *name;
    void (*measure)(void);
} parts[] = {{"pair", measure_pair},
             {"peers", measure_peers},
             {"contend", measure_contention},
             {"hang", measure_hang},
             {"requests", measure_requests}};

static bool is_wanted(const char *name, char **words) {
    bool any = *words;
    for (; *words; words++) {
        if (strcmp(*words, name) == 0)
            return true;
    }
    return !any;
}

int main(int argc, char **argv) {
    int option;
    while ((option = getopt(argc, argv, "r:s:")) != -1) {
        if (option == 'r')
            compare_rounds = atoi(optarg);
        else if (option == 's')
            hang_s = atoi(optarg);
        else
            return 2;
    }
    if (optind + 2 > argc || compare_rounds < 1 || compare_rounds > COMPARE_ROUNDS_MAX)
        raw_die("usage", "bench-quorum [-r ROUNDS] [-s SECONDS] URL PEERS [PART...]");
    find_nodes(argv[optind]);
    if (!start_peers(argv[optind + 1]))
        printf("without npm's locks: NODE_PATH is not set\n");
    printf("medians of %d interleaved rounds, the ratio is to the first line of a table\n",
           compare_rounds);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (is_wanted(parts[i].name, argv + optind + 2))
            parts[i].measure();
        fflush(stdout);
    }
    if (unconfirmed)
        printf("\n%d releases were not confirmed by three servers within their time\n",
               unconfirmed);
    if (peers.pid)
        end_peers();
    for (int i = 0; i < NODES; i++)
        redisFree(nodes[i].info);
    return 0;
}
