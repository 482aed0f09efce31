/* What the tests of the sqlite store share: a folder of their own, clients on a file in it,
 * processes, and a way to query the database directly. */
#ifndef STORE_SQLITE_SQLITE_TEST_H
#define STORE_SQLITE_SQLITE_TEST_H

#ifndef TEST_TIMEOUT_S
#define TEST_TIMEOUT_S 150
#endif
#include "support/fork_safely.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <holdfast/holdfast.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#define UNUSED __attribute__((unused))

enum {
    PATIENCE_MS = 30000, /* for a busy machine under a sanitizer */
    LONG_MS = 60000,     /* a lease: what happens within PATIENCE_MS happens for another reason */
    WAIT_LEASE_MS = 6 * PATIENCE_MS, /* no waiter asks again on its own within PATIENCE_MS */
    LEASE_MS = 3000                  /* the shortest that renewals can keep on a busy machine */
};

UNUSED static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

UNUSED static int64_t now_ms(void) {
    return now_us() / 1000;
}

UNUSED static void pause_ms(int64_t ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

#define AWAIT(condition)                                                                       \
    do {                                                                                       \
        for (int64_t await_until = now_ms() + PATIENCE_MS; !(condition); pause_ms(1))          \
            if (now_ms() > await_until)                                                        \
                test_fail(__FILE__, __LINE__, "%s: not after %d ms", #condition, PATIENCE_MS); \
    } while (0)

#define CHECK_IS(actual, expected)                                                        \
    do {                                                                                  \
        int check_status = (actual);                                                      \
        if (check_status != (expected))                                                   \
            test_fail(__FILE__, __LINE__, "%s is %s, not %s (last failure: %s)", #actual, \
                      hf_error_name(check_status), #expected, hf_last_error());           \
    } while (0)

/* ---- The folder ---- */

static char folder_path[64];
static pid_t folder_owner;

static int remove_entry(const char *path, const struct stat *of, int type, struct FTW *at) {
    (void)of;
    (void)type;
    (void)at;
    return remove(path);
}

static void remove_folder(void) {
    if (getpid() == folder_owner)
        nftw(folder_path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* A path in a folder of this test, which is removed at its end. */
UNUSED static const char *in_folder(const char *name) {
    static char paths[16][PATH_MAX];
    static int used;
    if (!folder_owner) {
        strcpy(folder_path, "/tmp/holdfast-sqlite-XXXXXX");
        CHECK(mkdtemp(folder_path));
        folder_owner = getpid();
        atexit(remove_folder);
    }
    char *path = paths[used++ % 16];
    snprintf(path, PATH_MAX, "%s/%s", folder_path, name);
    return path;
}

UNUSED static const char *url_of(const char *path) {
    static char urls[16][PATH_MAX + 8];
    static int used;
    char *url = urls[used++ % 16];
    snprintf(url, PATH_MAX + 8, "sqlite:%s", path);
    return url;
}

UNUSED static const char *the_file(void) {
    return in_folder("locks.db");
}

UNUSED static void write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

/* ---- Clients ---- */

UNUSED static hf_client *open_guarded(int64_t guard_pid) {
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    options.wait_lease_ms = WAIT_LEASE_MS;
    options.guard_pid = guard_pid;
    hf_client *client = NULL;
    CHECK_IS(hf_client_open(url_of(the_file()), &options, &client), HF_OK);
    return client;
}

UNUSED static hf_client *open_client(void) {
    return open_guarded(0);
}

/* The result of opening the file; the client is closed again. */
UNUSED static int try_open(const char *path) {
    hf_client *client = NULL;
    int r = hf_client_open(url_of(path), NULL, &client);
    if (!r)
        hf_client_close(client);
    return r;
}

UNUSED static hf_acquire_options lasting(int64_t wait_ms, int64_t lease_ms) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = wait_ms;
    options.lease_ms = lease_ms;
    return options;
}

UNUSED static hf_hold *get(hf_client *client, const char *name, hf_acquire_options options) {
    hf_hold *hold = NULL;
    CHECK_IS(hf_acquire(client, name, &options, &hold), HF_OK);
    return hold;
}

UNUSED static hf_hold *get_now(hf_client *client, const char *name) {
    return get(client, name, lasting(0, LONG_MS));
}

UNUSED static void let_go(hf_hold *hold) {
    CHECK_IS(hf_release(hold), HF_OK);
    hf_hold_free(hold);
}

/* The result of a try; the hold is released again. */
UNUSED static int attempt(hf_client *client, const char *name) {
    hf_acquire_options options = lasting(0, LONG_MS);
    hf_hold *hold = NULL;
    int r = hf_acquire(client, name, &options, &hold);
    if (!r)
        let_go(hold);
    return r;
}

UNUSED static size_t count_of(hf_client *client, const char *name, bool of_waiters) {
    hf_locks *locks = NULL;
    CHECK_IS(hf_inspect(client, name, &locks), HF_OK);
    const hf_lock_info *lock = hf_locks_at(locks, 0);
    size_t count = !lock ? 0 : of_waiters ? lock->waiter_count : lock->holder_count;
    hf_locks_free(locks);
    return count;
}

UNUSED static size_t waiters(hf_client *client, const char *name) {
    return count_of(client, name, true);
}

UNUSED static size_t holders(hf_client *client, const char *name) {
    return count_of(client, name, false);
}

/* Starts to wait for the lock, and returns when it is queued. */
UNUSED static hf_call *queue_up(hf_client *client, const char *name, int64_t lease_ms) {
    hf_acquire_options options = lasting(HF_FOREVER, lease_ms);
    size_t before = waiters(client, name);
    hf_call *call = NULL;
    CHECK_IS(hf_acquire_start(client, name, &options, &call), HF_OK);
    CHECK_EQ_INT(waiters(client, name), before + 1);
    return call;
}

UNUSED static hf_hold *granted(hf_call *call) {
    CHECK_IS(hf_call_wait(call, PATIENCE_MS), HF_OK);
    hf_hold *hold = hf_call_take_hold(call);
    hf_call_free(call);
    return hold;
}

/* ---- The database ---- */

static int keep_first(void *ret, int count, char **values, char **names) {
    (void)count;
    (void)names;
    *(int64_t *)ret = values[0] ? atoll(values[0]) : -1;
    return 0;
}

/* Runs SQL on the file directly, without the store. Returns the last row's first column, as a
 * number. */
UNUSED static int64_t query(const char *path, const char *text) {
    sqlite3 *db = NULL;
    int64_t value = -1;
    CHECK_EQ_INT(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL), 0);
    sqlite3_busy_timeout(db, PATIENCE_MS);
    char *error = NULL;
    int r = sqlite3_exec(db, text, keep_first, &value, &error);
    if (r)
        test_fail(__FILE__, __LINE__, "%s: %s", text, error);
    sqlite3_close(db);
    return value;
}

/* False if somebody was stopped inside a transaction. */
UNUSED static bool is_unlocked(void) {
    sqlite3 *db = NULL;
    CHECK_EQ_INT(sqlite3_open_v2(the_file(), &db, SQLITE_OPEN_READWRITE, NULL), 0);
    sqlite3_busy_timeout(db, 1000);
    int r = sqlite3_exec(db, "BEGIN IMMEDIATE; ROLLBACK", NULL, NULL, NULL);
    CHECK(r == SQLITE_OK || r == SQLITE_BUSY);
    sqlite3_close(db);
    return r == SQLITE_OK;
}

/* ---- Processes ---- */

UNUSED static void *shared(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

UNUSED static pid_t spawn(void (*run)(void *arg), void *arg) {
    in_folder(""); /* so that parent and child use the same folder */
    pid_t child = fork_safely();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(TEST_TIMEOUT_S);
        run(arg);
        _exit(0);
    }
    return child;
}

/* Stops a child, but not inside a transaction: nobody else could write to the file then. */
UNUSED static void stop_child(pid_t child) {
    int status;
    do {
        kill(child, SIGCONT);
        CHECK(kill(child, SIGSTOP) == 0 && waitpid(child, &status, WUNTRACED) == child);
        CHECK(WIFSTOPPED(status));
    } while (!is_unlocked());
}

UNUSED static int status_of(pid_t child) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

UNUSED static void check_ends_well(pid_t child) {
    CHECK_EQ_INT(status_of(child), 0);
}

UNUSED static void kill_hard(pid_t child) {
    CHECK(kill(child, SIGKILL) == 0);
    CHECK_EQ_INT(status_of(child), SIGKILL);
}

/* Another process that holds, or waits, until it is killed. */
struct other {
    const char *name;
    int64_t lease_ms, wait_ms, guard_pid;
    unsigned flags;
    atomic_int state; /* 1: it holds */
    atomic_ullong token;
};

UNUSED static void hold_on(void *arg) {
    struct other *other = arg;
    hf_client *client = open_guarded(other->guard_pid);
    hf_acquire_options options = lasting(other->wait_ms, other->lease_ms);
    options.flags |= other->flags;
    hf_hold *hold = get(client, other->name, options);
    atomic_store(&other->token, hf_hold_token(hold));
    atomic_store(&other->state, 1);
    for (;;)
        pause();
}

/* Starts a process that holds the lock; returns when it does. */
UNUSED static pid_t start_holder(struct other **ret_other, const char *name, int64_t lease_ms) {
    struct other *other = shared(sizeof(*other));
    *other = (struct other){.name = name, .lease_ms = lease_ms};
    pid_t child = spawn(hold_on, other);
    AWAIT(atomic_load(&other->state) == 1);
    *ret_other = other;
    return child;
}

/* Starts a process that waits for the lock; returns when it is queued. */
UNUSED static pid_t start_waiter(hf_client *client, const char *name) {
    struct other *other = shared(sizeof(*other));
    *other = (struct other){.name = name, .lease_ms = LONG_MS, .wait_ms = HF_FOREVER};
    size_t before = waiters(client, name);
    pid_t child = spawn(hold_on, other);
    AWAIT(waiters(client, name) == before + 1);
    return child;
}

#endif
