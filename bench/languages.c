/* The packages for Python and Node on one Redis server, beside redis-py's lock and npm's locks, and
 * beside the same requests sent by bare hiredis.
 *
 *    pair      a free lock, one thread or task, pinned and by default
 *    own-8     8 threads or tasks, each on its own name
 *    one-8     8 on one name: changes of holder
 *    cpu       the CPU time of a pair of a free lock
 *
 * usage: bench-languages URL PORT
 *
 * The environment names the folder of the peers (BENCH_PEERS); without NODE_PATH, npm's locks and
 * the Node package are left out. */
#include "crew.h"
#include "place.h"
#include "process.h"
#include "redis_raw.h"
#include "result.h"

#include <holdfast/holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLICE_MS = 150, ONE_NAME_SLICE_MS = 400, TASKS = 8 };

static const char *url, *port;
static int server;

/* ---- holdfast and the limit, in C ---- */

static void must(int result, const char *what) {
    if (result < 0)
        result_die(what, hf_last_error());
}

static void own_pair(struct crew *crew, int index, const char *name) {
    hf_hold *hold;
    must(hf_acquire(crew->arg, name, NULL, &hold), "acquire");
    crew_holds(crew, index);
    must(hf_release(hold), "release");
    hf_hold_free(hold);
}

struct bare {
    redisContext *to[TASKS];
    struct raw_lock lock[TASKS];
};

static void bare_pair(struct crew *crew, int index, const char *name) {
    struct bare *bare = crew->arg;
    (void)name;
    raw_pair(bare->to[index], &bare->lock[index]);
}

static void bare_open(struct bare *bare, int count) {
    for (int i = 0; i < count; i++) {
        char name[24];
        snprintf(name, sizeof(name), "bare-%d", i);
        bare->to[i] = raw_connect();
        bare->lock[i] = raw_lock(name, (unsigned)i + 1);
    }
}

static void bare_close(struct bare *bare, int count) {
    for (int i = 0; i < count; i++) {
        redisFree(bare->to[i]);
        raw_lock_free(&bare->lock[i]);
    }
}

/* ---- The packages ---- */

static struct peer *python, *node; /* node: NULL if npm's packages are not there */

static void start_peers(void) {
    const char *folder = getenv("BENCH_PEERS");
    char py[400], js[400];
    snprintf(py, sizeof(py), "%s/redis_locks.py", folder ? folder : ".");
    snprintf(js, sizeof(js), "%s/npm_locks.js", folder ? folder : ".");
    python = peer_start((const char *[]){"/usr/bin/python3", py, url, port, NULL});
    node = getenv("NODE_PATH") ? peer_start((const char *[]){"node", js, url, port, NULL}) : NULL;
}

static void end_peers(void) {
    peer_end(python);
    if (node)
        peer_end(node);
}

/* Adds the packages' contenders to those that are there. Returns how many there are then. */
static size_t add_peers(struct contender *contenders, size_t count, const char *measure, int tasks,
                        int ms) {
    static struct peer_slice slices[6];
    const struct {
        const char *what;
        struct peer *peer;
        const char *kind;
    } all[] = {
        {"holdfast for Python", python, "holdfast"},
        {"redis-py", python, "redis-py"},
        {"redis-py, sleep=0.001", python, "redis-py-1ms"},
        {"holdfast for Node", node, "holdfast"},
        {"npm redlock", node, "redlock"},
        {"npm redis-semaphore", node, "redis-semaphore"},
    };
    bool is_contended = strcmp(measure, "changes") == 0;
    for (size_t i = 0; i < 6; i++) {
        if (!all[i].peer || (i == 2 && !is_contended))
            continue;
        slices[i] = (struct peer_slice){all[i].peer, measure, all[i].kind, tasks, ms};
        contenders[count++] = (struct contender){all[i].what, peer_slice, &slices[i]};
    }
    return count;
}

static void measure_own(const char *name, const char *title, int count) {
    struct contender contenders[RESULT_CONTENDERS_MAX];
    struct bare bare;
    hf_client *client;
    must(hf_client_open(url, NULL, &client), "open");
    bare_open(&bare, count);
    start_peers();
    struct crew limit = {.count = count, .names = "bare", .pair = bare_pair, .arg = &bare};
    struct crew own = {.count = count, .names = "own", .pair = own_pair, .arg = client};
    limit.slice_ms = own.slice_ms = SLICE_MS;
    contenders[0] = (struct contender){"the same requests bare", crew_slice, &limit};
    contenders[1] = (struct contender){"holdfast", crew_slice, &own};
    size_t all = add_peers(contenders, 2, "pairs", count, SLICE_MS);
    result_compare(name, title, "pairs/s", contenders, all);
    end_peers();
    bare_close(&bare, count);
    hf_client_close(client);
}

static void measure_pair_placed(void) {
    measure_own("languages/pair", "A free lock, one thread or task", 1);
}

static void measure_pair(void) {
    place_both(server, measure_pair_placed);
}

static void measure_own_names(void) {
    measure_own("languages/own-8", "8 threads or tasks, each on its own name", TASKS);
}

static void measure_one_name(void) {
    struct contender contenders[RESULT_CONTENDERS_MAX];
    hf_client *client;
    must(hf_client_open(url, NULL, &client), "open");
    start_peers();
    struct crew own = {.count = TASKS,
                       .one_name = true,
                       .names = "one",
                       .pair = own_pair,
                       .arg = client,
                       .slice_ms = ONE_NAME_SLICE_MS};
    contenders[0] = (struct contender){"holdfast", crew_slice, &own};
    size_t all = add_peers(contenders, 1, "changes", TASKS, ONE_NAME_SLICE_MS);
    result_compare("languages/one-8", "8 threads or tasks on one name", "changes/s", contenders,
                   all);
    end_peers();
    hf_client_close(client);
}

static void measure_cpu(void) {
    struct contender contenders[RESULT_CONTENDERS_MAX];
    start_peers();
    size_t all = add_peers(contenders, 0, "cpu", 1, SLICE_MS);
    result_compare("languages/cpu", "Computing time of a pair, one thread or task", "us",
                   contenders, all);
    end_peers();
}

int main(int argc, char **argv) {
    if (argc != 3)
        result_die("usage", "bench-languages URL PORT");
    url = argv[1];
    port = argv[2];
    raw_find_server(url);
    redisContext *to = raw_connect();
    server = raw_server_pid(to);
    redisFree(to);
    result_run((const struct result_part[]){{"languages/pair", measure_pair},
                                            {"languages/own-8", measure_own_names},
                                            {"languages/one-8", measure_one_name},
                                            {"languages/cpu", measure_cpu}},
               4);
    return 0;
}
