/* The embedded store beside its limits.
 *
 *   pair       acquire and release of a free lock, beside two bare SQLite write transactions
 *              (insert and delete one row, with the same settings) and beside flock
 *   hand-off   from the start of a release in one process until the next owns the lock, beside one
 *              SQLite transaction, a byte through a socket and another transaction, and beside
 *              flock
 *   kill       from SIGKILL of the holder until the next owns the lock
 *   run        `holdfast run x -- true` beside `flock x true`
 *
 * usage: bench-sqlite [FOLDER]   (default: a new folder in the present one) */
#include "process.h"
#include "result.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <holdfast/holdfast.h>
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

enum { PAIRS = 2000, HAND_OFFS = 50, KILLS = 40 };

static char folder[PATH_MAX];

static void die(const char *what) {
    result_die(what, hf_last_error());
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
    sqlite3_busy_timeout(bare.db, 60000);
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

static void bare_close(struct bare *bare) {
    sqlite3_finalize(bare->begin);
    sqlite3_finalize(bare->commit);
    sqlite3_finalize(bare->insert);
    sqlite3_finalize(bare->remove);
    sqlite3_close(bare->db);
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

static int open_flock(void) {
    int file = open(path_of("flock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        result_die("flock", strerror(errno));
    return file;
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

/* ---- Pairs: what one takes, in us ---- */

/* What makes the pairs: one of these. */
struct side {
    struct bare *bare;
    hf_client *client;
    int file;
};

static void pair(struct side *side) {
    if (side->bare)
        bare_pair(side->bare);
    else if (side->client)
        give(take(side->client, "bench"));
    else
        flock(side->file, LOCK_EX), flock(side->file, LOCK_UN);
}

static double pairs_slice(void *arg) {
    int count = result_scale(PAIRS, 20);
    int64_t began = result_now_ns(), now = began;
    for (int i = 0; i < count; i++) {
        int64_t before = now;
        pair(arg);
        now = result_now_ns();
        result_time(now - before);
    }
    return (double)(now - began) / 1000 / count;
}

/* The same in processor time, which a busy machine affects less. */
static double cpu_slice(void *arg) {
    int count = result_scale(PAIRS, 20);
    struct timespec began, ended;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
    for (int i = 0; i < count; i++)
        pair(arg);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
    return ((double)(ended.tv_sec - began.tv_sec) * 1e6 +
            (double)(ended.tv_nsec - began.tv_nsec) / 1e3) /
           count;
}

static void measure_pair(void) {
    struct bare bare = bare_open("pairs.db", 1024), plain = bare_open("plain.db", 4096);
    struct side limit = {.bare = &bare}, pages = {.bare = &plain}, own = {.client = client_open()};
    struct side file = {.file = open_flock()};
    const struct contender by_clock[] = {
        {"two bare transactions", pairs_slice, &limit},
        {"holdfast", pairs_slice, &own},
        {"two bare transactions, pages of 4 KB", pairs_slice, &pages},
        {"flock", pairs_slice, &file},
    };
    const struct contender by_cpu[] = {
        {"two bare transactions", cpu_slice, &limit},
        {"holdfast", cpu_slice, &own},
    };
    result_compare("sqlite/pair", "A free lock, one thread", "us", by_clock, 4);
    result_compare("sqlite/pair-cpu", "A free lock, one thread: processor time", "us", by_cpu, 2);
    hf_client_close(own.client);
    close(file.file);
    bare_close(&bare);
    bare_close(&plain);
}

/* ---- Hand-off ---- */

struct shared {
    atomic_llong began_ns, owned_ns;
    atomic_int state;
};

static struct shared *share(void) {
    return mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                0);
}

static void await_state(struct shared *s, int state) {
    while (atomic_load(&s->state) != state)
        result_sleep_us(100);
}

static size_t waiters(hf_client *client, const char *name) {
    hf_locks *locks = NULL;
    if (hf_inspect(client, name, &locks) < 0)
        die("inspect");
    size_t count = hf_locks_count(locks) ? hf_locks_at(locks, 0)->waiter_count : 0;
    hf_locks_free(locks);
    return count;
}

static int hand_offs(void) {
    return result_scale(HAND_OFFS, 2);
}

/* The other process: waits for the lock on request, and reports when it has it. */
static void receive(struct shared *s) {
    hf_client *client = client_open();
    for (int i = 0; i < hand_offs(); i++) {
        await_state(s, 1);
        hf_hold *hold = take(client, "turn");
        atomic_store(&s->owned_ns, result_now_ns());
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

static double hand_off_slice(void *unused) {
    (void)unused;
    struct shared *s = share();
    pid_t child = start(receive, s);
    hf_client *client = client_open();
    for (int i = 0; i < hand_offs(); i++) {
        hf_hold *hold = take(client, "turn");
        atomic_store(&s->state, 1);
        while (waiters(client, "turn") == 0)
            result_sleep_us(200);
        result_sleep_us(500); /* it sleeps by now */
        int64_t began = result_now_ns();
        give(hold);
        await_state(s, 0);
        result_time(atomic_load(&s->owned_ns) - began);
    }
    waitpid(child, NULL, 0);
    hf_client_close(client);
    munmap(s, sizeof(*s));
    return result_median_us();
}

/* The same without the store: a transaction, a byte, a transaction. */
static double bare_hand_off_slice(void *unused) {
    (void)unused;
    struct shared *s = share();
    int ends[2];
    char byte = 0;
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) < 0)
        die("socketpair");
    struct bare first = bare_open("bare.db", 1024); /* so that both find it set up */
    bare_close(&first);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct bare bare = bare_open("bare.db", 1024);
        bare_pair(&bare);
        for (int i = 0; i < hand_offs(); i++) {
            atomic_store(&s->state, 1);
            if (recv(ends[1], &byte, 1, 0) != 1)
                _exit(1);
            bare_transaction(&bare, bare.remove);
            atomic_store(&s->owned_ns, result_now_ns());
            atomic_store(&s->state, 2);
            await_state(s, 0);
        }
        _exit(0);
    }
    struct bare bare = bare_open("bare.db", 1024);
    for (int i = 0; i < hand_offs(); i++) {
        await_state(s, 1);
        result_sleep_us(500);
        int64_t began = result_now_ns();
        bare_transaction(&bare, bare.insert);
        if (send(ends[0], &byte, 1, 0) != 1)
            die("send");
        await_state(s, 2);
        result_time(atomic_load(&s->owned_ns) - began);
        atomic_store(&s->state, 0);
    }
    waitpid(child, NULL, 0);
    bare_close(&bare);
    close(ends[0]);
    close(ends[1]);
    munmap(s, sizeof(*s));
    return result_median_us();
}

static void receive_flock(struct shared *s) {
    int file = open_flock();
    for (int i = 0; i < hand_offs(); i++) {
        await_state(s, 1);
        flock(file, LOCK_EX);
        atomic_store(&s->owned_ns, result_now_ns());
        flock(file, LOCK_UN);
        atomic_store(&s->state, 0);
    }
}

/* Nobody can see who waits in the kernel, so the other process is given time to get there. */
static double flock_hand_off_slice(void *unused) {
    (void)unused;
    struct shared *s = share();
    int file = open_flock();
    pid_t child = start(receive_flock, s);
    for (int i = 0; i < hand_offs(); i++) {
        flock(file, LOCK_EX);
        atomic_store(&s->state, 1);
        result_sleep_us(1000);
        int64_t began = result_now_ns();
        flock(file, LOCK_UN);
        await_state(s, 0);
        result_time(atomic_load(&s->owned_ns) - began);
    }
    waitpid(child, NULL, 0);
    close(file);
    munmap(s, sizeof(*s));
    return result_median_us();
}

static void measure_hand_off(void) {
    const struct contender contenders[] = {
        {"a bare transaction, a byte, a transaction", bare_hand_off_slice, NULL},
        {"holdfast", hand_off_slice, NULL},
        {"flock", flock_hand_off_slice, NULL},
    };
    result_compare("sqlite/hand-off", "Release begun until the next process has the lock", "us",
                   contenders, 3);
}

/* ---- After kill -9 ---- */

static void hold_until_killed(struct shared *s) {
    take(client_open(), "killed");
    atomic_store(&s->state, 1);
    for (;;)
        pause();
}

static void measure_kill(void) {
    struct shared *s = share();
    hf_client *client = client_open();
    double times[KILLS];
    int count = result_scale(KILLS, 2);
    for (int i = 0; i < count; i++) {
        atomic_store(&s->state, 0);
        pid_t child = start(hold_until_killed, s);
        await_state(s, 1);
        hf_call *call = NULL;
        if (hf_acquire_start(client, "killed", NULL, &call) < 0)
            die("acquire");
        hf_call_wait(call, 2);
        int64_t began = result_now_ns();
        kill(child, SIGKILL);
        if (hf_call_wait(call, 10000) < 0)
            die("wait");
        times[i] = (double)(result_now_ns() - began) / 1000;
        give(hf_call_take_hold(call));
        hf_call_free(call);
        waitpid(child, NULL, 0);
    }
    hf_client_close(client);
    munmap(s, sizeof(*s));
    result_figure("sqlite/kill", "SIGKILL of the holder until the next has the lock", "holdfast",
                  "us", times, count);
}

/* ---- The command ---- */

static void measure_run(void) {
    const char *command = getenv("HOLDFAST");
    char url[PATH_MAX + 64], file[PATH_MAX + 32];
    if (!command)
        result_die("run", "HOLDFAST does not name the command");
    snprintf(url, sizeof(url), "sqlite:%s", path_of("run.db"));
    snprintf(file, sizeof(file), "%s", path_of("flock"));
    setenv("HOLDFAST_URL", url, 1);
    const struct contender contenders[] = {
        {"flock x true", process_command_slice, (const char *[]){"flock", file, "true", NULL}},
        {"holdfast run x -- true", process_command_slice,
         (const char *[]){command, "run", "x", "--", "true", NULL}},
        {"true", process_command_slice, (const char *[]){"true", NULL}},
    };
    result_compare("sqlite/run", "A command under a lock", "ms", contenders, 3);
}

/* ---- */

static int remove_entry(const char *path, const struct stat *of, int type, struct FTW *at) {
    (void)of;
    (void)type;
    (void)at;
    return remove(path);
}

int main(int argc, char **argv) {
    snprintf(folder, sizeof(folder), "%s/bench-sqlite-XXXXXX", argc > 1 ? argv[1] : ".");
    if (!mkdtemp(folder))
        result_die("mkdtemp", strerror(errno));
    result_run((const struct result_part[]){{"sqlite/pair", measure_pair},
                                            {"sqlite/hand-off", measure_hand_off},
                                            {"sqlite/kill", measure_kill},
                                            {"sqlite/run", measure_run}},
               4);
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}
