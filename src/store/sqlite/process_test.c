/* The sqlite store among processes: who opens first, who dies, who is stopped, who is next. */
#include "store/sqlite/sqlite_test.h"

#include <dirent.h>
#include <grp.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { GROUP = 1234 };

/* ---- Opening ---- */

struct crowd {
    atomic_int ready, inside, most, done;
};

static void come_all_at_once(void *arg) {
    struct crowd *crowd = arg;
    atomic_fetch_add(&crowd->ready, 1);
    while (atomic_load(&crowd->ready) < 30)
        sched_yield();
    hf_client *client = open_client();
    hf_hold *hold = get(client, "x", lasting(HF_FOREVER, LONG_MS));
    if (atomic_fetch_add(&crowd->inside, 1) != 0)
        _exit(1);
    atomic_fetch_add(&crowd->done, 1);
    atomic_fetch_sub(&crowd->inside, 1);
    let_go(hold);
    hf_client_close(client);
}

TEST(thirty_processes_may_create_the_file_at_once) {
    for (int round = 0; round < 3; round++) {
        struct crowd *crowd = shared(sizeof(*crowd));
        pid_t children[30];
        for (int i = 0; i < 30; i++)
            children[i] = spawn(come_all_at_once, crowd);
        for (int i = 0; i < 30; i++)
            check_ends_well(children[i]);
        CHECK_EQ_INT(atomic_load(&crowd->done), 30);
        CHECK(unlink(the_file()) == 0);
    }
}

/* ---- Who dies ---- */

TEST(a_killed_holder_is_succeeded_at_once) {
    struct other *other;
    pid_t child = start_holder(&other, "x", LONG_MS);
    hf_client *client = open_client();
    hf_call *call = queue_up(client, "x", LONG_MS);
    CHECK(kill(child, SIGKILL) == 0); /* it stays a zombie: that counts as dead */
    hf_hold *hold = granted(call);
    CHECK(hf_hold_token(hold) > atomic_load(&other->token));
    let_go(hold);
    status_of(child);
    hf_client_close(client);
}

TEST(whoever_comes_after_a_killed_holder_need_not_wait) {
    struct other *other;
    kill_hard(start_holder(&other, "x", LONG_MS));
    hf_client *client = open_client();
    CHECK_IS(attempt(client, "x"), HF_OK);
    kill_hard(start_holder(&other, "y", LONG_MS));
    hf_acquire_options permits = lasting(0, LONG_MS);
    permits.kind = HF_PERMITS; /* a different kind than the dead holder's */
    let_go(get(client, "y", permits));
    hf_client_close(client);
}

TEST(killed_waiters_do_not_stand_in_the_way) {
    hf_client *client = open_client(), *last = open_client();
    hf_hold *hold = get_now(client, "x");
    pid_t first = start_waiter(client, "x"), second = start_waiter(client, "x");
    hf_call *call = queue_up(last, "x", LONG_MS);
    CHECK(kill(first, SIGKILL) == 0 && kill(second, SIGKILL) == 0);
    status_of(first);
    status_of(second);
    let_go(hold);
    let_go(granted(call));
    hf_client_close(last);
    hf_client_close(client);
}

TEST(the_queue_moves_on_when_the_holder_and_the_next_are_killed_together) {
    struct other *other;
    pid_t holder = start_holder(&other, "x", LONG_MS);
    hf_client *client = open_client();
    pid_t next = start_waiter(client, "x");
    hf_call *call = queue_up(client, "x", LONG_MS);
    CHECK(kill(next, SIGKILL) == 0 && kill(holder, SIGKILL) == 0);
    let_go(granted(call));
    hf_client_close(client);
}

TEST(a_writer_gets_the_lock_when_one_reader_is_killed_and_the_other_releases) {
    hf_client *client = open_client();
    hf_acquire_options reading = lasting(0, LONG_MS), writing = lasting(HF_FOREVER, LONG_MS);
    reading.kind = HF_SHARED;
    writing.kind = HF_EXCLUSIVE;
    hf_hold *own = get(client, "x", reading);
    pid_t child = fork_safely();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        hf_client *reader = open_client();
        get(reader, "x", reading);
        for (;;)
            pause();
    }
    AWAIT(holders(client, "x") == 2);
    hf_call *call = NULL;
    CHECK_IS(hf_acquire_start(client, "x", &writing, &call), HF_OK);
    let_go(own);
    kill_hard(child);
    let_go(granted(call));
    hf_client_close(client);
}

/* ---- Evidence: FAILURES.md 43 ---- */

TEST(a_claim_whose_pid_was_reused_counts_as_dead) {
    struct other *other;
    pid_t child = start_holder(&other, "x", LONG_MS);
    hf_client *client = open_client();
    CHECK_IS(attempt(client, "x"), HF_BUSY);
    query(the_file(), "UPDATE claims SET started = started - 1");
    CHECK_IS(attempt(client, "x"), HF_OK);
    kill_hard(child);
    hf_client_close(client);
}

TEST(pids_of_other_namespaces_prove_nothing) {
    struct other *other;
    kill_hard(start_holder(&other, "x", LONG_MS));
    hf_client *client = open_client();
    query(the_file(), "UPDATE claims SET pid_space = pid_space + 1");
    CHECK_IS(attempt(client, "x"), HF_BUSY);
    query(the_file(), "UPDATE claims SET pid_space = pid_space - 1, time_space = time_space + 1");
    CHECK_IS(attempt(client, "x"), HF_BUSY);
    query(the_file(), "UPDATE claims SET time_space = time_space - 1");
    CHECK_IS(attempt(client, "x"), HF_OK);
    hf_client_close(client);
}

/* ---- Guards ---- */

static pid_t start_guarded(int64_t guard_pid, int64_t lease_ms, int64_t wait_ms) {
    struct other *other = shared(sizeof(*other));
    *other = (struct other){
        .name = "x", .lease_ms = lease_ms, .wait_ms = wait_ms, .guard_pid = guard_pid};
    pid_t child = spawn(hold_on, other);
    if (!wait_ms)
        AWAIT(atomic_load(&other->state) == 1);
    return child;
}

static void sleep_on(void *arg) {
    (void)arg;
    for (;;)
        pause();
}

TEST(a_killed_holder_is_succeeded_when_its_guard_is_dead_too) {
    pid_t guard = spawn(sleep_on, NULL), holder = start_guarded(guard, LONG_MS, 0);
    hf_client *client = open_client();
    hf_call *call = queue_up(client, "x", LONG_MS);
    kill_hard(holder);
    CHECK_IS(hf_call_wait(call, 100), HF_PENDING);
    kill_hard(guard);
    let_go(granted(call));
    hf_client_close(client);
}

TEST(a_killed_holder_that_asked_for_its_lease_keeps_the_lock_for_it) {
    int64_t before_ms = now_ms();
    pid_t holder = start_guarded(HF_LEASE_ONLY, 2 * LEASE_MS, 0);
    hf_client *client = open_client();
    hf_call *call = queue_up(client, "x", LONG_MS);
    kill_hard(holder);
    let_go(granted(call));
    CHECK(now_ms() >= before_ms + 2 * LEASE_MS);
    hf_client_close(client);
}

TEST(a_killed_holder_that_keeps_its_lock_has_it_until_its_lease_ends) {
    int64_t before_ms = now_ms();
    struct other *other = shared(sizeof(*other));
    *other = (struct other){.name = "x", .lease_ms = 2 * LEASE_MS, .flags = HF_KEEP};
    pid_t holder = spawn(hold_on, other);
    AWAIT(atomic_load(&other->state) == 1);
    hf_client *client = open_client();
    hf_call *call = queue_up(client, "x", LONG_MS);
    kill_hard(holder);
    let_go(granted(call));
    CHECK(now_ms() >= before_ms + 2 * LEASE_MS);
    hf_client_close(client);
}

TEST(a_killed_waiter_is_passed_over_whatever_it_asked_for) {
    hf_client *client = open_client();
    hf_hold *hold = get_now(client, "x");
    pid_t waiter = start_guarded(HF_LEASE_ONLY, LONG_MS, HF_FOREVER);
    AWAIT(waiters(client, "x") == 1);
    hf_call *call = queue_up(client, "x", LONG_MS);
    kill_hard(waiter);
    let_go(hold);
    let_go(granted(call));
    hf_client_close(client);
}

/* ---- Namespaces ---- */

/* Skips the test if such namespaces cannot be created. A child tries it, so that this process stays
 * in its own. */
static void need_namespaces(int kinds) {
    pid_t child = fork_safely();
    if (child == 0)
        _exit(unshare(kinds) < 0 || ((kinds & CLONE_NEWNS) &&
                                     mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                  ? errno
                  : 0);
    int status = status_of(child);
    if (status)
        SKIP("a namespace of its own cannot be made here: %s", strerror(WEXITSTATUS(status)));
}

struct inner {
    struct other other;
    atomic_int pid; /* as seen from outside */
    bool mounts_proc;
};

static void hold_in_namespace(void *arg) {
    struct inner *inner = arg;
    CHECK(unshare(CLONE_NEWPID | CLONE_NEWNS) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (inner->mounts_proc)
            CHECK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                  mount("proc", "/proc", "proc", 0, NULL) == 0);
        hold_on(&inner->other);
    }
    atomic_store(&inner->pid, child);
    status_of(child);
}

/* Whether the holder keeps its lock by renewals. On a busy machine its lease may end before one of
 * them, but not soon: a holder that is succeeded soon was taken for dead. */
static bool is_renewed_in_namespace(bool mounts_proc) {
    struct inner *inner = shared(sizeof(*inner));
    inner->mounts_proc = mounts_proc;
    inner->other.name = "x";
    inner->other.lease_ms = LEASE_MS;
    pid_t child = spawn(hold_in_namespace, inner);
    AWAIT(atomic_load(&inner->other.state) == 1 && atomic_load(&inner->pid) > 0);
    hf_client *client = open_client();
    hf_acquire_options options = lasting(3 * LEASE_MS / 2, LONG_MS);
    hf_hold *hold = NULL;
    int64_t before_ms = now_ms();
    int r = hf_acquire(client, "x", &options, &hold);
    CHECK(now_ms() > before_ms + LEASE_MS / 2);
    if (r == HF_OK)
        let_go(hold);
    else
        CHECK_IS(r, HF_TIMEOUT);
    hf_call *call = r ? queue_up(client, "x", LONG_MS) : NULL;
    CHECK(kill(atomic_load(&inner->pid), SIGKILL) == 0);
    if (call)
        let_go(granted(call)); /* by the lease alone */
    check_ends_well(child);
    hf_client_close(client);
    return r == HF_TIMEOUT;
}

static void check_namespace(bool mounts_proc) {
    enum { TRIES = 5 };
    need_namespaces(CLONE_NEWPID | CLONE_NEWNS);
    bool is_renewed = false;
    for (int i = 0; i < TRIES && !is_renewed; i++)
        is_renewed = is_renewed_in_namespace(mounts_proc);
    CHECK(is_renewed);
}

TEST(a_holder_in_another_pid_namespace_is_not_taken_for_dead) {
    check_namespace(true);
}

TEST(a_holder_that_sees_another_proc_is_not_taken_for_dead) {
    check_namespace(false);
}

/* A contender in the file's group, whose /proc hides the processes of other users. */
static void contend_unseeing(void *arg) {
    struct other *other = arg;
    CHECK(unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
          mount("proc", "/proc", "proc", 0, "hidepid=2") == 0);
    CHECK(setgroups(0, NULL) == 0 && setgid(GROUP) == 0 && setuid(GROUP) == 0);
    CHECK(access("/proc/1/stat", R_OK) < 0);
    hf_client *client = open_client();
    CHECK_IS(attempt(client, "x"), HF_BUSY);
    hf_call *call = queue_up(client, "x", LONG_MS);
    atomic_store(&other->state, 1);
    let_go(granted(call));
    hf_client_close(client);
}

TEST(a_holder_that_proc_does_not_show_is_not_taken_for_dead) {
    need_namespaces(CLONE_NEWNS);
    struct other *other, *contender = shared(sizeof(*contender));
    pid_t holder = start_holder(&other, "x", LONG_MS);
    static const char *const files[] = {"", "locks.db", "locks.db-wal", "locks.db-shm",
                                        "locks.db-wake"};
    AWAIT(access(in_folder("locks.db-wake"), F_OK) == 0);
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        bool is_folder = i == 0 || i == 4;
        CHECK(chown(in_folder(files[i]), 0, GROUP) == 0);
        CHECK(chmod(in_folder(files[i]), is_folder ? 02770 : 0660) == 0);
    }
    pid_t child = spawn(contend_unseeing, contender);
    AWAIT(atomic_load(&contender->state) == 1);
    kill_hard(holder);
    check_ends_well(child); /* it still sees that the holder is dead */
}

/* Forks a process in a time namespace whose clock is a day ahead; returns 0 there, as fork does. */
static pid_t fork_a_day_ahead(void) {
    CHECK(unshare(CLONE_NEWTIME) == 0);
    write_file("/proc/self/timens_offsets", "boottime 86400 0\n");
    pid_t child = fork();
    CHECK(child >= 0);
    return child;
}

static void try_a_day_ahead(void *arg) {
    struct other *other = arg;
    pid_t child = fork_a_day_ahead();
    if (child == 0) {
        int64_t ahead_ms = now_ms();
        hf_client *client = open_client();
        CHECK(ahead_ms - other->lease_ms > 80000000);
        CHECK_IS(attempt(client, "x"), HF_BUSY);
        hf_client_close(client);
        CHECK_IS(attempt(open_client(), "y"), HF_OK);
        _exit(0);
    }
    _exit(status_of(child) ? 1 : 0);
}

TEST(leases_count_the_same_in_another_time_namespace) {
    need_namespaces(CLONE_NEWTIME);
    struct other *other;
    pid_t holder = start_holder(&other, "x", LONG_MS);
    other->lease_ms = now_ms();
    check_ends_well(spawn(try_a_day_ahead, other));
    kill_hard(holder);
}

static void hold_a_day_ahead(void *arg) {
    pid_t child = fork_a_day_ahead();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        hold_on(arg);
    }
    status_of(child);
}

TEST(a_hold_of_a_time_namespace_that_is_ahead_is_not_of_an_earlier_boot) {
    need_namespaces(CLONE_NEWTIME);
    struct other *other = shared(sizeof(*other));
    *other = (struct other){.name = "x", .lease_ms = LONG_MS};
    pid_t child = spawn(hold_a_day_ahead, other);
    AWAIT(atomic_load(&other->state) == 1);
    hf_client *client = open_client();
    CHECK_EQ_INT(holders(client, "x"), 1);
    CHECK_IS(attempt(client, "x"), HF_BUSY);
    hf_client_close(client);
    kill_hard(child);
}

/* ---- Who is stopped: FAILURES.md 1 ---- */

struct stopped {
    atomic_int state;
    atomic_ullong token;
};

static void hold_until_lost(void *arg) {
    struct stopped *stopped = arg;
    hf_client *client = open_client();
    hf_hold *hold = get(client, "x", lasting(0, LEASE_MS));
    atomic_store(&stopped->token, hf_hold_token(hold));
    atomic_store(&stopped->state, 1);
    AWAIT(hf_check(hold, 0) == HF_LOST);
    CHECK_IS(hf_release(hold), HF_LOST);
    hf_hold_free(hold);
    CHECK_IS(attempt(client, "x"), HF_BUSY);
    hf_client_close(client);
}

TEST(who_is_stopped_past_the_lease_loses_and_learns_it) {
    struct stopped *stopped = shared(sizeof(*stopped));
    pid_t child = spawn(hold_until_lost, stopped);
    AWAIT(atomic_load(&stopped->state) == 1);
    stop_child(child);
    hf_client *client = open_client();
    hf_hold *hold = get(client, "x", lasting(HF_FOREVER, LONG_MS));
    CHECK(hf_hold_token(hold) > atomic_load(&stopped->token));
    CHECK(kill(child, SIGCONT) == 0);
    check_ends_well(child);
    let_go(hold);
    hf_client_close(client);
}

/* ---- Who is next ---- */

enum { MANY = 200 };

struct line {
    atomic_int inside, entered;
    int order[MANY];
    int next; /* the number of the process that is being started */
};

static void stand_in_line(void *arg) {
    struct line *line = arg;
    int number = line->next;
    hf_client *client = open_client();
    hf_hold *hold = get(client, "x", lasting(HF_FOREVER, LONG_MS));
    if (atomic_fetch_add(&line->inside, 1) != 0)
        _exit(1);
    line->order[atomic_fetch_add(&line->entered, 1)] = number;
    atomic_fetch_sub(&line->inside, 1);
    let_go(hold);
    hf_client_close(client);
}

TEST(two_hundred_processes_enter_once_each_in_order) {
    struct line *line = shared(sizeof(*line));
    hf_client *client = open_client();
    hf_hold *hold = get_now(client, "x");
    static pid_t children[MANY];
    for (int i = 0; i < MANY; i++) {
        line->next = i;
        children[i] = spawn(stand_in_line, line);
        AWAIT(waiters(client, "x") == (size_t)i + 1);
    }
    let_go(hold);
    for (int i = 0; i < MANY; i++)
        check_ends_well(children[i]);
    CHECK_EQ_INT(atomic_load(&line->entered), MANY);
    for (int i = 0; i < MANY; i++)
        CHECK_EQ_INT(line->order[i], i);
    hf_client_close(client);
}

TEST(a_release_wakes_the_next_process) {
    struct other *other;
    pid_t child = start_holder(&other, "turn", LONG_MS);
    hf_client *client = open_client();
    hf_call *call = queue_up(client, "turn", LONG_MS);
    kill_hard(child);
    hf_hold *hold = granted(call);
    for (int i = 0; i < 20; i++) {
        pid_t next = start_waiter(client, "turn");
        let_go(hold);
        AWAIT(holders(client, "turn") == 1 && waiters(client, "turn") == 0);
        kill_hard(next);
        hold = get_now(client, "turn");
    }
    let_go(hold);
    hf_client_close(client);
}

/* ---- Messages ---- */

static void hold_until_told(void *arg) {
    struct other *other = arg;
    hf_client *client = open_client();
    hf_acquire_options options = lasting(0, LONG_MS);
    options.flags = HF_NO_RENEW; /* a renewal would also find out */
    hf_hold *hold = get(client, other->name, options);
    struct pollfd lost = {.fd = hf_hold_fd(hold), .events = POLLIN};
    atomic_store(&other->token, hf_hold_token(hold));
    atomic_store(&other->state, 1);
    CHECK(poll(&lost, 1, PATIENCE_MS) == 1);
    CHECK_IS(hf_check(hold, 0), HF_LOST);
    hf_hold_free(hold);
    hf_client_close(client);
}

TEST(a_holder_in_another_process_is_notified_that_its_lock_was_broken) {
    struct other *other = shared(sizeof(*other));
    other->name = "x";
    pid_t child = spawn(hold_until_told, other);
    AWAIT(atomic_load(&other->state) == 1);
    hf_client *client = open_client();
    CHECK_IS(hf_break(client, "x", atomic_load(&other->token), NULL), HF_OK);
    check_ends_well(child);
    hf_client_close(client);
}

TEST(a_hold_that_was_broken_before_its_client_could_be_notified_is_reported) {
    hf_client *client = open_client(), *other = open_client();
    hf_acquire_options options = lasting(0, LONG_MS);
    options.flags = HF_NO_RENEW;
    hf_hold *hold = get(client, "x", options);
    struct pollfd lost = {.fd = hf_hold_fd(hold), .events = POLLIN};
    CHECK_IS(hf_break(other, "x", hf_hold_token(hold), NULL), HF_OK);
    CHECK(poll(&lost, 1, PATIENCE_MS) == 1);
    CHECK_IS(hf_check(hold, 0), HF_LOST);
    hf_hold_free(hold);
    hf_client_close(other);
    hf_client_close(client);
}

enum { CALLS = 40 };

static const char *numbered(int number) {
    static char name[16];
    snprintf(name, sizeof(name), "x%d", number);
    return name;
}

static void wait_for_many(void *arg) {
    (void)arg;
    hf_client *client = open_client();
    hf_call *calls[CALLS];
    for (int i = 0; i < CALLS; i++)
        calls[i] = queue_up(client, numbered(i), LONG_MS);
    for (int i = 0; i < CALLS; i++)
        let_go(granted(calls[i]));
    hf_client_close(client);
}

/* The kernel keeps about ten messages for a client that does not read them. */
TEST(a_stopped_process_gets_every_notification_when_it_goes_on) {
    hf_client *client = open_client();
    hf_hold *holds[CALLS];
    for (int i = 0; i < CALLS; i++)
        holds[i] = get_now(client, numbered(i));
    pid_t child = spawn(wait_for_many, NULL);
    AWAIT(waiters(client, numbered(CALLS - 1)) == 1);
    stop_child(child);
    for (int i = 0; i < CALLS; i++)
        let_go(holds[i]);
    CHECK(kill(child, SIGCONT) == 0);
    check_ends_well(child);
    hf_client_close(client);
}

/* The sockets in the folder beside the file; the last one's path. */
static int sockets(char ret_path[PATH_MAX]) {
    const char *path = in_folder("locks.db-wake");
    DIR *folder = opendir(path);
    int count = 0;
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(ret_path, PATH_MAX, "%s/%s", path, entry->d_name);
        count++;
    }
    if (folder)
        closedir(folder);
    return count;
}

static void send_to(const char *path, const void *bytes, size_t size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CHECK(strlen(path) < sizeof(address.sun_path));
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    CHECK(sendto(fd, bytes, size, 0, (struct sockaddr *)&address, sizeof(address)) ==
          (ssize_t)size);
    close(fd);
}

TEST(only_a_client_that_waits_or_holds_for_some_time_has_a_socket) {
    enum { SHORT_MS = 90 };
    char path[PATH_MAX];
    int64_t since_ms;
    do { /* until a run is fast enough to tell */
        hf_client *client = open_client();
        since_ms = now_ms();
        let_go(get_now(client, "x"));
        int count = sockets(path);
        CHECK(count == 0 || now_ms() - since_ms > SHORT_MS);
        hf_client_close(client);
    } while (now_ms() - since_ms > SHORT_MS);
    hf_client *client = open_client();
    hf_hold *hold = get_now(client, "x");
    AWAIT(sockets(path) == 1);
    hf_client *other = open_client();
    hf_call *call = queue_up(other, "x", LONG_MS);
    CHECK_EQ_INT(sockets(path), 2);
    hf_call_free(call);
    let_go(hold);
    hf_client_close(other);
    hf_client_close(client);
    CHECK_EQ_INT(sockets(path), 0);
}

TEST(a_client_with_two_holds_has_a_socket_at_once) {
    char path[PATH_MAX];
    hf_client *client = open_client();
    hf_hold *hold = get_now(client, "x"), *second = get_now(client, "y");
    CHECK_EQ_INT(sockets(path), 1);
    let_go(hold);
    let_go(second);
    hf_client_close(client);
}

TEST(a_forged_message_takes_no_lock_away) {
    hf_client *client = open_client();
    hf_hold *hold = get_now(client, "x");
    hf_call *call = queue_up(client, "x", LONG_MS);
    char path[PATH_MAX], bytes[8 + 16 * 100] = "hfwake1";
    CHECK_EQ_INT(sockets(path), 1);
    for (uint64_t seq = 0; seq < 60; seq++) {
        uint64_t note[2] = {seq % 3, seq / 3};
        memcpy(bytes + 8 + seq * sizeof(note), note, sizeof(note));
    }
    for (size_t size = 0; size < sizeof(bytes); size += 7)
        send_to(path, bytes, size), hf_call_wait(call, 0);
    send_to(path, bytes, 8 + 60 * 16);
    CHECK_IS(hf_call_wait(call, 50), HF_PENDING);
    CHECK_IS(hf_check(hold, 0), HF_OK);
    CHECK_IS(hf_renew(hold, 0), HF_OK);
    let_go(hold);
    let_go(granted(call));
    hf_client_close(client);
}

TEST(sockets_of_the_dead_are_removed) {
    hf_client *client = open_client();
    hf_hold *hold = get_now(client, "x");
    pid_t children[5];
    for (int i = 0; i < 5; i++)
        children[i] = start_waiter(client, "x");
    for (int i = 0; i < 5; i++)
        kill_hard(children[i]);
    let_go(hold);
    hf_client *another = open_client();
    hf_hold *first = get_now(another, "y"), *second = get_now(another, "z");
    char path[PATH_MAX];
    AWAIT(sockets(path) == 2);
    let_go(first);
    let_go(second);
    hf_client_close(another);
    hf_client_close(client);
    CHECK_EQ_INT(sockets(path), 0);
}

/* ---- Descriptors: FAILURES.md 38 to 40 ---- */

TEST(an_executed_program_inherits_no_descriptors) {
    bool before[1024];
    for (int fd = 0; fd < 1024; fd++)
        before[fd] = fcntl(fd, F_GETFD) >= 0;
    struct other *other;
    pid_t child = start_holder(&other, "x", LONG_MS);
    hf_client *client = open_client();
    hf_call *call = queue_up(client, "x", LONG_MS); /* with a socket, and a watch on the holder */
    int opened = 0;
    for (int fd = 0; fd < 1024; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (flags < 0 || before[fd])
            continue;
        opened++;
        CHECK(flags & FD_CLOEXEC);
    }
    CHECK(opened > 6);
    hf_call_free(call);
    hf_client_close(client);
    kill_hard(child);
    for (int fd = 0; fd < 1024; fd++)
        CHECK(before[fd] || fcntl(fd, F_GETFD) < 0);
}

TEST(clients_of_one_process_do_not_drop_each_others_locks_on_the_file) {
    hf_client *client = open_client();
    hf_hold *hold = get_now(client, "x");
    for (int i = 0; i < 10; i++) {
        hf_client *passing = open_client();
        CHECK_IS(attempt(passing, "x"), HF_BUSY);
        hf_client_close(passing);
    }
    struct other *other;
    pid_t child = start_holder(&other, "y", LONG_MS); /* a process that comes and goes */
    kill_hard(child);
    CHECK_IS(attempt(client, "y"), HF_OK);
    CHECK_IS(hf_renew(hold, 0), HF_OK);
    let_go(hold);
    hf_client_close(client);
}

static void try_and_close(void *arg) {
    hf_client *client = open_client();
    int r = attempt(client, arg);
    hf_client_close(client);
    _exit(r == HF_BUSY ? 0 : 1);
}

/* The child's connection must be as real as the parent's: when the parent closes its own, and
 * others come and go, SQLite must not treat the child's log as one left behind. */
TEST(a_forked_child_has_a_connection_of_its_own) {
    struct crowd *steps = shared(sizeof(*steps));
    hf_client *client = open_client();
    hf_hold *hold = get_now(client, "parents");
    pid_t child = fork_safely();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        hf_client *own = open_client();
        hf_hold *second = get_now(own, "childs");
        CHECK_IS(attempt(own, "parents"), HF_BUSY);
        atomic_store(&steps->ready, 1);
        AWAIT(atomic_load(&steps->done) == 1);
        CHECK_IS(attempt(own, "another"), HF_OK);
        CHECK_IS(hf_renew(second, 0), HF_OK);
        CHECK_IS(hf_check(hold, 0), HF_FORKED);
        hf_hold_free(hold);
        hf_client_close(client);
        let_go(second);
        hf_client_close(own);
        _exit(0);
    }
    AWAIT(atomic_load(&steps->ready) == 1);
    let_go(hold);
    hf_client_close(client);
    for (int i = 0; i < 5; i++)
        check_ends_well(spawn(try_and_close, (void *)"childs"));
    atomic_store(&steps->done, 1);
    check_ends_well(child);
}
