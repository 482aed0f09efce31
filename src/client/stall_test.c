/* A store that does not return: the disk stalls, or another process keeps the database locked.
 * However long that takes, checks, forks and calls that do not block do not wait, and each loss is
 * reported by its deadline.
 *
 * The disk stalls in a shim below SQLite, for 1 to 10 seconds or until the test says so. If
 * something is late on a busy machine, it is tried again: a call that waits for the store is late
 * each time. */
#define TEST_TIMEOUT_S 240
#include "store/sqlite/sqlite_test.h"

#include <pthread.h>

enum {
    SOON_MS = 50,    /* the promise: after the deadline, or for a call that does not block */
    WAITS_MS = 1000, /* a call that waits for a locked database takes longer than this */
    LEASE_SHORT_MS = 900,
    TRIES = 6,
};

/* ---- The disk ---- */

enum stall { NOWHERE, IN_LOG, IN_DATABASE };

static atomic_int stall_in; /* enum stall: where the next write stalls */
static atomic_bool stalled; /* a write is stalled now */
static atomic_int stalls;   /* how often one was */
static atomic_int stall_for_ms;
static _Atomic int64_t stall_ended_ms;

static enum stall file_of(int fd) {
    char link[64], path[PATH_MAX] = "";
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof(path) - 1) < 0)
        return NOWHERE;
    size_t size = strlen(path);
    return size > 4 && strcmp(path + size - 4, "-wal") == 0  ? IN_LOG
           : size > 3 && strcmp(path + size - 3, ".db") == 0 ? IN_DATABASE
                                                             : NOWHERE;
}

static ssize_t write_at(int fd, const void *bytes, size_t size, off_t at) {
    int where = (int)file_of(fd);
    if (where != NOWHERE && atomic_compare_exchange_strong(&stall_in, &where, NOWHERE)) {
        int64_t until_ms = now_ms() + atomic_load(&stall_for_ms);
        atomic_fetch_add(&stalls, 1);
        atomic_store(&stalled, true);
        while (now_ms() < until_ms && atomic_load(&stalled))
            pause_ms(1);
        atomic_store(&stall_ended_ms, now_ms());
        atomic_store(&stalled, false);
    }
    return pwrite(fd, bytes, size, at);
}

static void put_shim_below_sqlite(void) {
    sqlite3_vfs *vfs = sqlite3_vfs_find("unix");
    CHECK(vfs);
    static const char *const names[] = {"pwrite", "pwrite64"};
    for (size_t i = 0; i < 2; i++)
        vfs->xSetSystemCall(vfs, names[i], (sqlite3_syscall_ptr)write_at);
}

static void stall_next_write(enum stall where, int for_ms) {
    atomic_store(&stall_for_ms, for_ms);
    atomic_store(&stall_in, (int)where);
}

/* The write goes on; false if it did already. */
static bool end_stall(void) {
    return atomic_exchange(&stalled, false);
}

/* ---- What is reported, and when ---- */

struct witness {
    _Atomic int64_t on_lost_ms, event_ms;
};

static void note_lost(hf_hold *hold, void *arg) {
    (void)hold;
    atomic_store(&((struct witness *)arg)->on_lost_ms, now_ms());
}

static void note_event(const hf_event *event, void *arg) {
    if (event->type == HF_EVENT_LOST && strcmp(event->name, "watched") == 0)
        atomic_store(&((struct witness *)arg)->event_ms, now_ms());
}

static hf_client *open_watched(struct witness *witness) {
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    options.on_event = note_event;
    options.on_event_arg = witness;
    hf_client *client = NULL;
    CHECK_IS(hf_client_open(url_of(the_file()), &options, &client), HF_OK);
    return client;
}

static hf_hold *get_watched(hf_client *client, struct witness *witness) {
    hf_acquire_options options = lasting(PATIENCE_MS, LEASE_SHORT_MS);
    options.on_lost = note_lost;
    options.on_lost_arg = witness;
    hf_hold *hold = NULL;
    int status = HF_SHORT; /* its lease is over when a busy machine looks at the answer */
    for (int i = 0; i < TRIES && status == HF_SHORT; i++)
        status = hf_acquire(client, "watched", &options, &hold);
    CHECK_IS(status, HF_OK);
    return hold;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static bool is_readable_in(int fd, int wait_ms) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, wait_ms) == 1;
}

static int64_t fork_ms(void) {
    int64_t before = now_ms();
    pid_t child = fork();
    int64_t took = now_ms() - before;
    CHECK(child >= 0);
    if (child == 0)
        _exit(0);
    CHECK(waitpid(child, NULL, 0) == child);
    return took;
}

/* A busy machine may stop the program in any fork, but not in all of them. A fork that waits for
 * the store takes so long that the next one may find the store idle, so it is not tried again. */
static int64_t shortest_fork_ms(void) {
    int64_t shortest = fork_ms();
    for (int i = 0; i < 20 && shortest > SOON_MS && shortest < WAITS_MS; i++) {
        int64_t took = fork_ms();
        shortest = took < shortest ? took : shortest;
    }
    return shortest;
}

/* What a program that polls a hold sees while the store is stalled: how long the calls took, and
 * how long after the deadline each means reported the loss. A busy machine may stop the program
 * itself for a while: `away_ms` is the longest time between two looks. Whatever that is, all of it
 * must be seen before the store goes on. */
struct seen {
    int64_t check_ms, left_ms, fork_ms, check_late_ms, fd_late_ms, on_lost_late_ms, event_late_ms;
    int64_t away_ms;
    bool store_went_on;
};

static struct seen watch_until_lost(hf_hold *hold, struct witness *witness, int fd) {
    struct seen seen = {.fork_ms = INT64_MAX};
    int64_t deadline_ms = 0, checked_ms = 0, readable_ms = 0;
    bool told = false;
    int64_t give_up_ms = now_ms() + PATIENCE_MS, after = now_ms();
    do {
        CHECK(now_ms() < give_up_ms);
        int64_t before = now_ms();
        seen.away_ms = larger(seen.away_ms, before - after);
        int64_t left = hf_hold_left_ms(hold);
        int64_t between = now_ms();
        int status = hf_check(hold, 0);
        after = now_ms();
        seen.left_ms = larger(seen.left_ms, between - before);
        seen.check_ms = larger(seen.check_ms, after - between);
        if (left > 0)
            deadline_ms = between + left;
        if (status == HF_LOST && !checked_ms)
            checked_ms = after;
        if (!readable_ms && is_readable_in(fd, 0))
            readable_ms = now_ms();
        if (atomic_load(&stalled)) {
            int64_t took = fork_ms();
            seen.fork_ms = took < seen.fork_ms ? took : seen.fork_ms;
        }
        pause_ms(1);
        told = checked_ms && readable_ms && atomic_load(&witness->on_lost_ms) &&
               atomic_load(&witness->event_ms);
    } while (!told);
    seen.check_late_ms = checked_ms - deadline_ms;
    seen.fd_late_ms = readable_ms - deadline_ms;
    seen.on_lost_late_ms = atomic_load(&witness->on_lost_ms) - deadline_ms;
    seen.event_late_ms = atomic_load(&witness->event_ms) - deadline_ms;
    return seen;
}

static bool is_as_promised(const struct seen *seen) {
    int64_t late_ms = SOON_MS + seen->away_ms;
    return seen->check_ms <= late_ms && seen->left_ms <= late_ms && seen->fork_ms <= SOON_MS &&
           seen->check_late_ms <= late_ms && seen->fd_late_ms <= late_ms &&
           seen->on_lost_late_ms <= late_ms && seen->event_late_ms <= late_ms &&
           !seen->store_went_on;
}

/* True if it must be tried again. */
static bool is_late(const struct seen *seen, int tries) {
    if (is_as_promised(seen))
        return false;
    if (tries + 1 == TRIES)
        test_fail(
            __FILE__, __LINE__,
            "hf_check took %d ms, hf_hold_left_ms %d, fork %d; after the deadline hf_check told "
            "in %d ms, the descriptor in %d, on_lost in %d, the event in %d; away for %d ms%s",
            (int)seen->check_ms, (int)seen->left_ms, (int)seen->fork_ms, (int)seen->check_late_ms,
            (int)seen->fd_late_ms, (int)seen->on_lost_late_ms, (int)seen->event_late_ms,
            (int)seen->away_ms, seen->store_went_on ? "; the store went on before" : "");
    return true;
}

/* ---- Another thread, in the stalled call ---- */

struct worker {
    hf_client *client;
    void (*run)(struct worker *worker);
    hf_hold *hold;
    int result;
    pthread_t thread;
};

static void *work(void *arg) {
    struct worker *worker = arg;
    worker->run(worker);
    return NULL;
}

static void start_worker(struct worker *worker) {
    CHECK(pthread_create(&worker->thread, NULL, work, worker) == 0);
}

static void start_and_stall(struct worker *worker) {
    start_worker(worker);
    AWAIT(atomic_load(&stalled));
}

static void acquire_other(struct worker *worker) {
    hf_acquire_options options = lasting(HF_FOREVER, LONG_MS);
    worker->result = hf_acquire(worker->client, "other", &options, &worker->hold);
}

static void release_other(struct worker *worker) {
    worker->result = hf_release(worker->hold);
}

static void wait_for_renewal(struct worker *worker) {
    worker->result = HF_OK; /* it is the library's own thread that stalls */
}

/* The log is written back when it has grown. */
static void acquire_until_stalled(struct worker *worker) {
    while (!worker->result && atomic_load(&stall_in) != NOWHERE)
        worker->result = attempt(worker->client, "other");
}

static void check_stall(void (*run)(struct worker *), enum stall where, int for_ms) {
    put_shim_below_sqlite();
    struct seen seen;
    int tries = 0;
    do {
        struct witness witness = {0};
        struct worker worker = {.client = open_watched(&witness), .run = run};
        if (run == release_other)
            worker.hold = get_now(worker.client, "other");
        hf_hold *hold = get_watched(worker.client, &witness);
        int fd = hf_hold_fd(hold);
        CHECK(fd >= 0);
        stall_next_write(where, for_ms);
        start_worker(&worker);
        AWAIT(atomic_load(&stalled) || hf_check(hold, 0) == HF_LOST); /* before any write */
        stall_next_write(NOWHERE, 0);
        seen = watch_until_lost(hold, &witness, fd);
        seen.store_went_on = !atomic_load(&stalled);
        pthread_join(worker.thread, NULL);
        CHECK_IS(worker.result, HF_OK);
        CHECK_IS(hf_release(hold), HF_LOST);
        hf_hold_free(hold);
        hf_hold_free(worker.hold);
        hf_client_close(worker.client);
    } while (is_late(&seen, tries++));
}

TEST(a_disk_that_stalls_in_an_acquire_delays_no_report_of_a_loss) {
    check_stall(acquire_other, IN_LOG, 3000);
}

TEST(a_disk_that_stalls_in_a_renewal_delays_no_report_of_a_loss) {
    check_stall(wait_for_renewal, IN_LOG, 2000);
}

TEST(a_disk_that_stalls_in_a_release_delays_no_report_of_a_loss) {
    check_stall(release_other, IN_LOG, 10000);
}

TEST(a_disk_that_stalls_in_a_checkpoint_delays_no_report_of_a_loss) {
    check_stall(acquire_until_stalled, IN_DATABASE, 6000);
}

/* ---- A hold that is renewed again in time is not lost ---- */

TEST(a_short_stall_of_the_disk_loses_no_lock) {
    put_shim_below_sqlite();
    struct witness witness = {0};
    hf_client *client = open_watched(&witness);
    hf_acquire_options options = lasting(0, 8000);
    options.on_lost = note_lost;
    options.on_lost_arg = &witness;
    hf_hold *hold = get(client, "watched", options);
    stall_next_write(IN_LOG, 1000);
    AWAIT(atomic_load(&stalls) == 1 && !atomic_load(&stalled));
    AWAIT(hf_hold_left_ms(hold) > 4000);
    let_go(hold);
    hf_client_close(client);
    CHECK_EQ_INT(atomic_load(&witness.on_lost_ms), 0);
}

static void close_client(struct worker *worker) {
    hf_client_close(worker->client);
}

/* A client that closes writes a long log back. */
TEST(a_disk_that_stalls_in_a_close_stops_no_other_client) {
    put_shim_below_sqlite();
    struct worker worker = {.client = open_client(), .run = close_client};
    hf_client *other = open_client();
    for (int i = 0; i < 200; i++)
        CHECK_IS(attempt(worker.client, "x"), HF_OK);
    stall_next_write(IN_DATABASE, PATIENCE_MS);
    start_and_stall(&worker);
    CHECK_IS(attempt(other, "y"), HF_OK);
    CHECK(end_stall());
    pthread_join(worker.thread, NULL);
    hf_client_close(other);
}

/* ---- A foreign process that keeps a write transaction open ---- */

struct foreign {
    atomic_bool has_it, ends;
};

static void keep_locked(void *arg) {
    struct foreign *foreign = arg;
    sqlite3 *db = NULL;
    CHECK_EQ_INT(sqlite3_open_v2(the_file(), &db, SQLITE_OPEN_READWRITE, NULL), 0);
    sqlite3_busy_timeout(db, PATIENCE_MS);
    CHECK_EQ_INT(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), 0);
    atomic_store(&foreign->has_it, true);
    while (!atomic_load(&foreign->ends))
        pause_ms(1);
    CHECK_EQ_INT(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), 0);
    sqlite3_close(db);
}

static struct foreign *start_foreign(pid_t *ret_pid) {
    struct foreign *foreign = shared(sizeof(*foreign));
    *ret_pid = spawn(keep_locked, foreign);
    AWAIT(atomic_load(&foreign->has_it));
    return foreign;
}

static void end_foreign(struct foreign *foreign, pid_t pid) {
    atomic_store(&foreign->ends, true);
    check_ends_well(pid);
}

TEST(a_foreign_transaction_delays_no_report_of_a_loss) {
    struct seen seen;
    int tries = 0;
    do {
        struct witness witness = {0};
        hf_client *client = open_watched(&witness);
        hf_hold *hold = get_watched(client, &witness);
        int fd = hf_hold_fd(hold);
        pid_t pid;
        struct foreign *foreign = start_foreign(&pid);
        seen = watch_until_lost(hold, &witness, fd);
        seen.fork_ms = shortest_fork_ms();
        end_foreign(foreign, pid);
        hf_hold_free(hold);
        hf_client_close(client);
    } while (is_late(&seen, tries++));
}

#define TIMED(statement)                                          \
    do {                                                          \
        int64_t timed_before = now_ms();                          \
        statement;                                                \
        int64_t timed_took = now_ms() - timed_before;             \
        if (timed_took > SOON_MS) {                               \
            printf("# %s: %d ms\n", #statement, (int)timed_took); \
            slow |= 1U << call;                                   \
        }                                                         \
        call++;                                                   \
    } while (0)

/* A call that waits for the database is slow each time; on a busy machine, different calls are. */
TEST(calls_that_do_not_block_do_not_wait_for_a_locked_database) {
    unsigned always_slow = ~0U;
    for (int tries = 0; tries < TRIES && always_slow; tries++) {
        unsigned slow = 0, call = 0;
        hf_client *client = open_client();
        hf_hold *kept = get_now(client, "kept"), *freed = get_now(client, "freed");
        pid_t pid;
        struct foreign *foreign = start_foreign(&pid);
        hf_acquire_options options = lasting(HF_FOREVER, LONG_MS);
        hf_call *acquire = NULL, *release = NULL, *renew = NULL, *look = NULL, *dropped = NULL;
        TIMED(CHECK_IS(hf_acquire_start(client, "new", &options, &acquire), HF_OK));
        TIMED(CHECK_IS(hf_acquire_start(client, "dropped", &options, &dropped), HF_OK));
        TIMED(CHECK_IS(hf_renew_start(kept, 0, &renew), HF_OK));
        TIMED(CHECK_IS(hf_inspect_start(client, "kept", &look), HF_OK));
        TIMED(CHECK_IS(hf_release_start(kept, &release), HF_OK));
        TIMED(CHECK_IS(hf_call_status(acquire), HF_PENDING));
        TIMED(CHECK_IS(hf_call_cancel(dropped), HF_OK));
        TIMED(hf_call_free(dropped));
        TIMED(hf_hold_free(freed));
        TIMED(CHECK(hf_hold_token(kept) > 0));
        TIMED(CHECK(hf_fd(client) >= 0));
        TIMED(CHECK_IS(hf_process(client), HF_OK));
        TIMED(CHECK_IS(hf_call_wait(release, 1), HF_PENDING));
        end_foreign(foreign, pid);
        CHECK_IS(hf_call_wait(acquire, HF_FOREVER), HF_OK);
        CHECK_IS(hf_call_wait(release, HF_FOREVER), HF_OK);
        CHECK_IS(hf_call_wait(look, PATIENCE_MS), HF_OK);
        hf_call_free(acquire);
        hf_call_free(release);
        hf_call_free(renew);
        hf_call_free(look);
        hf_hold_free(kept);
        hf_client_close(client);
        always_slow &= slow;
    }
    CHECK(!always_slow);
}

/* ---- Others of the same client ---- */

TEST(a_wait_ends_in_time_while_another_thread_is_in_a_stalled_store) {
    put_shim_below_sqlite();
    struct worker worker = {.client = open_client(), .run = acquire_other};
    stall_next_write(IN_LOG, PATIENCE_MS);
    start_and_stall(&worker);
    hf_acquire_options options = lasting(300, LONG_MS);
    hf_hold *hold = NULL;
    CHECK_IS(hf_acquire(worker.client, "mine", &options, &hold), HF_UNKNOWN);
    CHECK(end_stall());
    pthread_join(worker.thread, NULL);
    CHECK_IS(worker.result, HF_OK);
    AWAIT(holders(worker.client, "mine") == 0); /* what was granted was released */
    let_go(worker.hold);
    hf_client_close(worker.client);
}

TEST(an_acquire_behind_a_stalled_call_gets_its_whole_lease) {
    put_shim_below_sqlite();
    struct worker worker = {.client = open_client(), .run = acquire_other};
    stall_next_write(IN_LOG, 4000);
    start_and_stall(&worker);
    hf_hold *hold = get(worker.client, "mine", lasting(HF_FOREVER, LONG_MS));
    int64_t left_ms = hf_hold_left_ms(hold), deadline_ms = now_ms() + left_ms; /* or a bit later */
    CHECK(deadline_ms > atomic_load(&stall_ended_ms) + LONG_MS - 1000);
    pthread_join(worker.thread, NULL);
    let_go(hold);
    let_go(worker.hold);
    hf_client_close(worker.client);
}

/* Looks all the time, so also just when the thread inside has been notified of the break. */
TEST(who_sees_that_a_group_is_lost_sees_which_name_was) {
    hf_client *client = open_client(), *other = open_client();
    hf_want wants[2] = {HF_WANT_INIT, HF_WANT_INIT};
    const hf_want *const pointers[] = {&wants[0], &wants[1]};
    wants[0].name = "first";
    wants[1].name = "second";
    hf_acquire_options options = lasting(PATIENCE_MS, LONG_MS);
    for (int i = 0; i < 100; i++) {
        hf_hold *group = NULL;
        CHECK_IS(hf_acquire_all(client, pointers, 2, &options, &group), HF_OK);
        CHECK_IS(hf_break(other, "second", hf_hold_token_at(group, 1), NULL), HF_OK);
        for (int64_t give_up_ms = now_ms() + PATIENCE_MS; hf_check(group, 0) != HF_LOST;)
            CHECK(now_ms() < give_up_ms);
        CHECK_EQ_STR(hf_hold_name(group), "second");
        CHECK_IS(hf_release(group), HF_LOST);
        hf_hold_free(group);
    }
    hf_client_close(other);
    hf_client_close(client);
}

TEST(hf_process_reports_a_loss_while_the_disk_stalls) {
    put_shim_below_sqlite();
    int64_t late_ms = 0, away_ms;
    int tries = 0;
    do {
        struct witness witness = {0};
        hf_client *client = open_watched(&witness);
        int fd = hf_fd(client);
        hf_hold *hold = get_watched(client, &witness);
        stall_next_write(IN_LOG, 4000);
        AWAIT(atomic_load(&stalled) || hf_check(hold, 0) == HF_LOST); /* before its renewal */
        int64_t left_ms = hf_hold_left_ms(hold), before = now_ms();
        bool is_late = !atomic_load(&stalled) || left_ms == 0;
        stall_next_write(NOWHERE, 0);
        int64_t deadline_ms = before + left_ms, give_up_ms = before + PATIENCE_MS;
        int wakes = 0;
        away_ms = 0; /* the longest that a poll of a millisecond took */
        while (!atomic_load(&witness.on_lost_ms)) {
            CHECK(now_ms() < give_up_ms);
            before = now_ms();
            bool is_woken = is_readable_in(fd, 1);
            away_ms = larger(away_ms, now_ms() - before);
            if (!is_woken)
                continue;
            CHECK_IS(hf_process(client), HF_OK);
            CHECK(wakes++ < 100); /* it does not spin */
        }
        is_late = is_late || !atomic_load(&stalled);
        late_ms = is_late ? INT64_MAX : now_ms() - deadline_ms;
        CHECK_EQ_INT(atomic_load(&witness.event_ms) > 0, true);
        hf_hold_free(hold);
        hf_client_close(client);
    } while (late_ms > SOON_MS + away_ms && ++tries < TRIES);
    CHECK(tries < TRIES);
}

/* ---- The child of a fork that did not wait ---- */

TEST(a_child_forked_during_a_stall_learns_that_it_cannot_use_the_store) {
    put_shim_below_sqlite();
    struct worker worker = {.client = open_client(), .run = acquire_other};
    stall_next_write(IN_LOG, PATIENCE_MS);
    start_and_stall(&worker);
    pid_t child = fork_while_asleep();
    if (child == 0) {
        hf_client_close(worker.client);
        CHECK_IS(try_open(the_file()), HF_SYSTEM);
        _exit(0);
    }
    check_ends_well(child);
    CHECK(end_stall());
    pthread_join(worker.thread, NULL);
    let_go(worker.hold);
    child = fork_safely(); /* and one that is forked now can */
    if (child == 0) {
        CHECK_IS(try_open(the_file()), HF_OK);
        _exit(0);
    }
    check_ends_well(child);
    hf_client_close(worker.client);
}
