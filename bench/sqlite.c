/* The embedded store beside its limits, in one run: interleaved slices, medians of rounds, ratios.
 *
 *   pair       acquire and release of a free lock, beside two bare SQLite write transactions
 *              (insert and delete one row, with the same settings) and beside flock
 *   hand-off   release begun in one process until the next owns the lock, beside one SQLite
 *              transaction, a byte through a socket and another transaction
 *   kill       SIGKILL of the holder until the next owns the lock
 *
 * usage: bench-sqlite [FOLDER]   (default: a new folder in the present one) */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <holdfast/holdfast.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 15, PAIRS = 2000, HAND_OFFS = 100, KILLS = 40 };

static char folder[PATH_MAX];

static void die(const char *what) {
    fprintf(stderr, "bench-sqlite: %s: %s\n", what, hf_last_error());
    exit(1);
}

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof(*values), by_size);
    return values[count / 2];
}

static const char *path_of(const char *name) {
    static char path[PATH_MAX + 32];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

/* ---- The limits ---- */

struct bare {
    sqlite3 *db;
    sqlite3_stmt *begin, *commit, *insert, *remove;
};

static sqlite3_stmt *prepared(sqlite3 *db, const char *text) {
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v3(db, text, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL))
        die(sqlite3_errmsg(db));
    return statement;
}

static struct bare bare_open(const char *name, int page_size) {
    struct bare bare = {0};
    char text[64];
    snprintf(text, sizeof(text), "PRAGMA page_size = %d", page_size);
    if (sqlite3_open_v2(path_of(name), &bare.db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL))
        die("bare.db");
    sqlite3_busy_timeout(bare.db, 1000);
    sqlite3_exec(bare.db, text, NULL, NULL, NULL);
    sqlite3_exec(
        bare.db,
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
        "PRAGMA wal_autocheckpoint = 2000;"
        "CREATE TABLE IF NOT EXISTS held (name TEXT PRIMARY KEY, owner BLOB, token INTEGER)"
        " WITHOUT ROWID",
        NULL, NULL, NULL);
    bare.begin = prepared(bare.db, "BEGIN IMMEDIATE");
    bare.commit = prepared(bare.db, "COMMIT");
    bare.insert = prepared(bare.db, "INSERT INTO held VALUES ('bench', zeroblob(16), 17)");
    bare.remove = prepared(bare.db, "DELETE FROM held WHERE name = 'bench' AND token = 17");
    return bare;
}

static void step(sqlite3_stmt *statement) {
    if (sqlite3_step(statement) != SQLITE_DONE)
        die("a bare statement");
    sqlite3_reset(statement);
}

static void bare_transaction(struct bare *bare, sqlite3_stmt *statement) {
    step(bare->begin);
    step(statement);
    step(bare->commit);
}

static void bare_pair(struct bare *bare) {
    bare_transaction(bare, bare->insert);
    bare_transaction(bare, bare->remove);
}

/* ---- The store ---- */

static hf_client *client_open(void) {
    char url[PATH_MAX + 64];
    snprintf(url, sizeof(url), "sqlite:%s", path_of("locks.db"));
    hf_client *client = NULL;
    if (hf_client_open(url, NULL, &client) < 0)
        die("open");
    return client;
}

static hf_hold *take(hf_client *client, const char *name) {
    hf_hold *hold = NULL;
    if (hf_acquire(client, name, NULL, &hold) < 0)
        die("acquire");
    return hold;
}

static void give(hf_hold *hold) {
    if (hf_release(hold) < 0)
        die("release");
    hf_hold_free(hold);
}

/* What one pair takes, in a slice of many: by the clock, and in processor time, which a busy
 * machine affects less. */
struct slice {
    double wall_us, cpu_us;
};

static double cpu_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static struct slice slice(struct bare *bare, hf_client *client, int file) {
    double wall = now_us(), cpu = cpu_us();
    for (int i = 0; i < PAIRS; i++) {
        if (bare)
            bare_pair(bare);
        else if (client)
            give(take(client, "bench"));
        else
            flock(file, LOCK_EX), flock(file, LOCK_UN);
    }
    return (struct slice){(now_us() - wall) / PAIRS, (cpu_us() - cpu) / PAIRS};
}

static void bench_pairs(void) {
    struct bare bare = bare_open("pairs.db", 1024), plain = bare_open("plain.db", 4096);
    hf_client *client = client_open();
    int file = open(path_of("flock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    double bares[ROUNDS], plains[ROUNDS], ours[ROUNDS], flocks[ROUNDS], walls[ROUNDS], cpus[ROUNDS];
    give(take(client, "bench"));
    for (int round = 0; round < ROUNDS; round++) {
        struct slice before = slice(&bare, NULL, 0);
        struct slice own = slice(NULL, client, 0);
        struct slice after = slice(&bare, NULL, 0);
        plains[round] = slice(&plain, NULL, 0).wall_us;
        flocks[round] = slice(NULL, NULL, file).wall_us;
        ours[round] = own.wall_us;
        bares[round] = (before.wall_us + after.wall_us) / 2;
        walls[round] = own.wall_us / bares[round];
        cpus[round] = own.cpu_us / ((before.cpu_us + after.cpu_us) / 2);
    }
    printf("pair: %.1f us; two bare transactions %.1f us; ratio %.2f, of processor time %.2f "
           "(goal 1.3)\n"
           "      two bare transactions with pages of 4 KB %.1f us; flock %.2f us\n",
           median(ours, ROUNDS), median(bares, ROUNDS), median(walls, ROUNDS), median(cpus, ROUNDS),
           median(plains, ROUNDS), median(flocks, ROUNDS));
    hf_client_close(client);
    close(file);
}

/* ---- Hand-off ---- */

struct shared {
    atomic_llong began_ns, owned_ns;
    atomic_int state;
};

static long long now_ns(void) {
    return (long long)(now_us() * 1000);
}

static struct shared *share(void) {
    return mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                0);
}

static void await_state(struct shared *s, int state) {
    while (atomic_load(&s->state) != state)
        usleep(100);
}

static size_t waiters(hf_client *client, const char *name) {
    hf_locks *locks = NULL;
    if (hf_inspect(client, name, &locks) < 0)
        die("inspect");
    size_t count = hf_locks_count(locks) ? hf_locks_at(locks, 0)->waiter_count : 0;
    hf_locks_free(locks);
    return count;
}

/* The other process: waits for the lock on request, and reports when it has it. */
static void receive(struct shared *s) {
    hf_client *client = client_open();
    for (int i = 0; i < HAND_OFFS; i++) {
        await_state(s, 1);
        hf_hold *hold = take(client, "turn");
        atomic_store(&s->owned_ns, now_ns());
        give(hold);
        atomic_store(&s->state, 0);
    }
}

static pid_t start(void (*run)(struct shared *), struct shared *s) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run(s);
        _exit(0);
    }
    return child;
}

static double hand_off_us(void) {
    struct shared *s = share();
    double times[HAND_OFFS];
    pid_t child = start(receive, s);
    hf_client *client = client_open();
    for (int i = 0; i < HAND_OFFS; i++) {
        hf_hold *hold = take(client, "turn");
        atomic_store(&s->state, 1);
        while (waiters(client, "turn") == 0)
            usleep(200);
        usleep(500); /* it sleeps by now */
        long long began = now_ns();
        give(hold);
        await_state(s, 0);
        times[i] = (double)(atomic_load(&s->owned_ns) - began) / 1000;
    }
    waitpid(child, NULL, 0);
    hf_client_close(client);
    return median(times, HAND_OFFS);
}

/* The same without the store: a transaction, a byte, a transaction. */
static double bare_hand_off_us(void) {
    struct shared *s = share();
    int pair[2];
    double times[HAND_OFFS];
    char byte = 0;
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0)
        die("socketpair");
    pid_t child = fork();
    if (child == 0) {
        struct bare bare = bare_open("bare.db", 1024);
        bare_pair(&bare);
        for (int i = 0; i < HAND_OFFS; i++) {
            atomic_store(&s->state, 1);
            if (recv(pair[1], &byte, 1, 0) != 1)
                _exit(1);
            bare_transaction(&bare, bare.remove);
            atomic_store(&s->owned_ns, now_ns());
            atomic_store(&s->state, 2);
            await_state(s, 0);
        }
        _exit(0);
    }
    struct bare bare = bare_open("bare.db", 1024);
    for (int i = 0; i < HAND_OFFS; i++) {
        await_state(s, 1);
        usleep(500);
        long long began = now_ns();
        bare_transaction(&bare, bare.insert);
        if (send(pair[0], &byte, 1, 0) != 1)
            die("send");
        await_state(s, 2);
        times[i] = (double)(atomic_load(&s->owned_ns) - began) / 1000;
        atomic_store(&s->state, 0);
    }
    waitpid(child, NULL, 0);
    return median(times, HAND_OFFS);
}

static void hold_until_killed(struct shared *s) {
    take(client_open(), "killed");
    atomic_store(&s->state, 1);
    for (;;)
        pause();
}

static double kill_us(void) {
    struct shared *s = share();
    hf_client *client = client_open();
    double times[KILLS];
    for (int i = 0; i < KILLS; i++) {
        atomic_store(&s->state, 0);
        pid_t child = start(hold_until_killed, s);
        await_state(s, 1);
        hf_call *call = NULL;
        if (hf_acquire_start(client, "killed", NULL, &call) < 0)
            die("acquire");
        hf_call_wait(call, 2);
        double began = now_us();
        kill(child, SIGKILL);
        if (hf_call_wait(call, 10000) < 0)
            die("wait");
        times[i] = now_us() - began;
        give(hf_call_take_hold(call));
        hf_call_free(call);
        waitpid(child, NULL, 0);
    }
    hf_client_close(client);
    return median(times, KILLS);
}

static int remove_entry(const char *path, const struct stat *of, int type, struct FTW *at) {
    (void)of;
    (void)type;
    (void)at;
    return remove(path);
}

int main(int argc, char **argv) {
    snprintf(folder, sizeof(folder), "%s/bench-sqlite-XXXXXX", argc > 1 ? argv[1] : ".");
    if (!mkdtemp(folder))
        die("mkdtemp");
    double bares[3], ours[3];
    for (int i = 0; i < 3; i++) {
        bares[i] = bare_hand_off_us();
        ours[i] = hand_off_us();
    }
    double bare = median(bares, 3), own = median(ours, 3);
    printf("hand-off: %.0f us; transaction, byte, transaction %.0f us; ratio %.2f (goal 2)\n", own,
           bare, own / bare);
    printf("after kill -9: %.0f us (goal 1000)\n", kill_us());
    bench_pairs();
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}
