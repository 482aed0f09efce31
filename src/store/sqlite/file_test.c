/* The file of the sqlite store: where it may be, whose it may be, and what happens to one that is
 * damaged, foreign, full, gone or old. */
#define TEST_TIMEOUT_S 300 /* for tens of thousands of commits on a busy machine */
#include "store/sqlite/sqlite_test.h"

#include <sys/mount.h>
#include <sys/resource.h>

/* In a child, as a user who is not root, in a folder of that user. */
static void become_nobody(void) {
    if (geteuid() == 0) {
        CHECK(chown(folder_path, 65534, 65534) == 0);
        CHECK(setresgid(65534, 65534, 65534) == 0);
        CHECK(setresuid(65534, 65534, 65534) == 0);
    }
}

static mode_t mode_of(const char *path) {
    struct stat of;
    CHECK(lstat(path, &of) == 0);
    return of.st_mode & 07777;
}

TEST(the_default_file_is_accessible_to_this_user_only) {
    in_folder("");
    become_nobody();
    umask(0);
    CHECK(setenv("XDG_STATE_HOME", in_folder("some/state"), 1) == 0);
    hf_client *client = NULL;
    CHECK_IS(hf_client_open("sqlite:", NULL, &client), HF_OK);
    hf_hold *hold = get_now(client, "x");
    hf_call_free(queue_up(client, "x", LONG_MS));
    let_go(hold);
    CHECK_EQ_INT(mode_of(in_folder("some/state/holdfast")), 0700);
    CHECK_EQ_INT(mode_of(in_folder("some/state/holdfast/locks.db")), 0600);
    CHECK_EQ_INT(mode_of(in_folder("some/state/holdfast/locks.db-wal")), 0600);
    CHECK_EQ_INT(mode_of(in_folder("some/state/holdfast/locks.db-shm")), 0600);
    CHECK_EQ_INT(mode_of(in_folder("some/state/holdfast/locks.db-wake")), 0700);
    hf_client_close(client);
    CHECK(unsetenv("XDG_STATE_HOME") == 0);
    CHECK(setenv("HOME", in_folder("home"), 1) == 0);
    CHECK_IS(try_open(""), HF_OK);
    CHECK_EQ_INT(mode_of(in_folder("home/.local/state/holdfast/locks.db")), 0600);
}

TEST(the_default_folder_must_be_private) {
    in_folder("");
    become_nobody();
    CHECK(setenv("XDG_STATE_HOME", in_folder(""), 1) == 0);
    CHECK(mkdir(in_folder("holdfast"), 0700) == 0 && chmod(in_folder("holdfast"), 0770) == 0);
    CHECK_IS(try_open(""), HF_DENIED);
    CHECK(strstr(hf_last_error(), "chmod g-w"));
    CHECK(rename(in_folder("holdfast"), in_folder("real")) == 0);
    CHECK(chmod(in_folder("real"), 0700) == 0);
    CHECK(symlink(in_folder("real"), in_folder("holdfast")) == 0);
    CHECK_IS(try_open(""), HF_DENIED);
    CHECK(strstr(hf_last_error(), "symbolic link"));
}

TEST(a_file_that_everybody_could_change_is_refused) {
    CHECK_IS(try_open(the_file()), HF_OK);
    CHECK(chmod(the_file(), 0602) == 0);
    CHECK_IS(try_open(the_file()), HF_DENIED);
    CHECK(strstr(hf_last_error(), "chmod o-w"));
    CHECK(chmod(the_file(), 0660) == 0); /* not the default file, so a group may share it */
    CHECK_IS(try_open(the_file()), HF_OK);
    CHECK(chmod(folder_path, 0777) == 0);
    CHECK_IS(try_open(the_file()), HF_DENIED);
    CHECK(chmod(folder_path, 01777) == 0);
    CHECK_IS(try_open(the_file()), HF_DENIED);
    CHECK(strstr(hf_last_error(), "folder of your own"));
    CHECK(!strstr(hf_last_error(), "chmod")); /* /tmp may be such a folder */
}

TEST(a_file_of_another_user_is_refused) {
    if (geteuid() != 0)
        SKIP("only root can give a file to another user");
    CHECK_IS(try_open(the_file()), HF_OK);
    CHECK(chown(the_file(), 1234, 1234) == 0);
    CHECK_IS(try_open(the_file()), HF_DENIED);
    CHECK(strstr(hf_last_error(), "user 1234"));
    CHECK(chown(the_file(), 0, 0) == 0);
    CHECK(chown(folder_path, 1234, 1234) == 0);
    CHECK_IS(try_open(the_file()), HF_DENIED);
}

TEST(links_and_other_things_that_are_no_files_are_refused) {
    CHECK_IS(try_open(in_folder("real.db")), HF_OK);
    CHECK(symlink("real.db", in_folder("soft.db")) == 0);
    CHECK_IS(try_open(in_folder("soft.db")), HF_DENIED);
    CHECK(strstr(hf_last_error(), "symbolic link"));
    CHECK(symlink("nowhere.db", in_folder("dangling.db")) == 0);
    CHECK_IS(try_open(in_folder("dangling.db")), HF_DENIED);
    CHECK(access(in_folder("nowhere.db"), F_OK) < 0);
    CHECK(link(in_folder("real.db"), in_folder("hard.db")) == 0);
    CHECK_IS(try_open(in_folder("real.db")), HF_DENIED);
    CHECK(mkdir(in_folder("folder.db"), 0700) == 0);
    CHECK_IS(try_open(in_folder("folder.db")), HF_DENIED);
    CHECK_IS(try_open(in_folder("folder.db/")), HF_BAD_URL);
    CHECK_IS(try_open(in_folder("missing/locks.db")), HF_UNREACHABLE);
    CHECK(mkfifo(in_folder("pipe.db"), 0600) == 0);
    CHECK_IS(try_open(in_folder("pipe.db")), HF_DENIED);
}

TEST(folders_on_the_way_may_be_links) {
    CHECK(mkdir(in_folder("a"), 0700) == 0 && symlink("a", in_folder("b")) == 0);
    CHECK(chdir(folder_path) == 0);
    hf_client *one = NULL, *two = NULL;
    CHECK_IS(hf_client_open("sqlite:a/locks.db", NULL, &one), HF_OK);
    CHECK_IS(hf_client_open(url_of(in_folder("b/locks.db")), NULL, &two), HF_OK);
    hf_hold *hold = get_now(one, "x");
    CHECK_IS(attempt(two, "x"), HF_BUSY);
    let_go(hold);
    hf_client_close(one);
    hf_client_close(two);
}

TEST(a_url_with_options_or_hosts_is_refused) {
    hf_client *client = NULL;
    CHECK_IS(hf_client_open("sqlite:x.db?mode=memory", NULL, &client), HF_BAD_URL);
    CHECK_IS(hf_client_open("sqlite://host/x.db", NULL, &client), HF_BAD_URL);
}

static void check_kept(const char *path, const char *text) {
    char found[256] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && read(fd, found, sizeof(found) - 1) > 0);
    close(fd);
    CHECK_EQ_STR(found, text);
}

TEST(a_file_that_is_no_database_is_kept_as_it_is) {
    static const char text[] = "dear diary, today I did not write a database, and nobody minded";
    write_file(the_file(), text);
    CHECK_IS(try_open(the_file()), HF_BAD_STORE);
    CHECK(strstr(hf_last_error(), "move it away"));
    check_kept(the_file(), text);
}

TEST(the_database_of_another_program_is_kept_as_it_is) {
    query(the_file(), "CREATE TABLE songs (title); INSERT INTO songs VALUES ('x')");
    CHECK_IS(try_open(the_file()), HF_BAD_STORE);
    CHECK(strstr(hf_last_error(), "another program"));
    CHECK_EQ_INT(query(the_file(), "SELECT count(*) FROM sqlite_schema"), 1);
    query(in_folder("other.db"), "PRAGMA application_id = 17");
    CHECK_IS(try_open(in_folder("other.db")), HF_BAD_STORE);
}

TEST(the_database_of_a_later_version_is_kept_as_it_is) {
    CHECK_IS(try_open(the_file()), HF_OK);
    query(the_file(), "PRAGMA user_version = 99");
    CHECK_IS(try_open(the_file()), HF_BAD_STORE);
    CHECK(strstr(hf_last_error(), "schema 99"));
    CHECK_EQ_INT(query(the_file(), "PRAGMA user_version"), 99);
}

/* The tables that schema 2 did not have. */
#define DROP_SINCE_2                                                      \
    "DROP TABLE watchers; DROP TABLE changes; DROP TABLE counters; DROP " \
    "TABLE answers; "

/* The file is rewritten to how schema 1 stored a mutex that somebody holds. */
TEST(a_database_of_schema_1_is_brought_up_to_date) {
    hf_client *client = open_client();
    hf_hold *hold = get(client, "x", lasting(0, LONG_MS));
    uint64_t token = hf_hold_token(hold);
    query(the_file(),
          "ALTER TABLE meta ADD COLUMN boot_id TEXT NOT NULL DEFAULT 'b';"
          "ALTER TABLE claims DROP COLUMN written_us;"
          "UPDATE locks SET kind = 1, capacity = 1; UPDATE claims SET weight = 1;" DROP_SINCE_2
          "PRAGMA user_version = 1");
    hf_client *other = open_client();
    CHECK_IS(attempt(other, "x"), HF_BUSY);
    CHECK_IS(hf_release(hold), HF_OK);
    hf_hold *next = get(other, "x", lasting(0, LONG_MS));
    CHECK(hf_hold_token(next) > token);
    CHECK_EQ_INT(query(the_file(), "PRAGMA user_version"), 4);
    hf_hold_free(next);
    hf_hold_free(hold);
    hf_client_close(other);
    hf_client_close(client);
}

static void open_together(void *arg) {
    atomic_int *left = arg;
    atomic_fetch_sub(left, 1);
    while (atomic_load(left))
        sched_yield();
    CHECK_IS(try_open(the_file()), HF_OK);
}

TEST(several_at_once_bring_a_database_of_schema_2_up_to_date) {
    enum { COUNT = 4 };
    hf_client *client = open_client();
    hf_hold *hold = get_now(client, "x");
    query(the_file(), DROP_SINCE_2 "PRAGMA user_version = 2");
    atomic_int *left = shared(sizeof(*left));
    pid_t children[COUNT];
    *left = COUNT;
    for (int i = 0; i < COUNT; i++)
        children[i] = spawn(open_together, left);
    for (int i = 0; i < COUNT; i++)
        check_ends_well(children[i]);
    CHECK_EQ_INT(query(the_file(), "PRAGMA user_version"), 4);
    let_go(hold); /* clients that have the file open do not notice */
    CHECK_EQ_INT(query(the_file(), "SELECT count(*) FROM watchers"), 0);
    hf_client_close(client);
}

TEST(a_damaged_database_is_reported) {
    hf_client *client = open_client();
    for (int i = 0; i < 50; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%d", i);
        let_go(get_now(client, name));
    }
    hf_client_close(client);
    query(the_file(), "PRAGMA wal_checkpoint(TRUNCATE)"); /* else the log would repair it */
    int fd = open(the_file(), O_WRONLY | O_CLOEXEC);
    char garbage[4096];
    memset(garbage, 0x5a, sizeof(garbage));
    CHECK(fd >= 0 && pwrite(fd, garbage, sizeof(garbage), 1024) == sizeof(garbage));
    close(fd);
    int r = hf_client_open(url_of(the_file()), NULL, &client);
    if (!r)
        r = attempt(client, "n7");
    CHECK_IS(r, HF_BAD_STORE);
}

static void open_as_nobody(void *arg) {
    CHECK(setresuid(65534, 65534, 65534) == 0);
    CHECK_IS(try_open(arg), HF_DENIED);
}

TEST(what_cannot_be_written_to_is_denied) {
    if (geteuid() != 0)
        SKIP("only root can become another user");
    const char *path = in_folder("locks.db"), *missing = in_folder("missing.db");
    CHECK_IS(try_open(path), HF_OK);
    CHECK(chmod(folder_path, 0755) == 0 && chmod(path, 0644) == 0);
    check_ends_well(spawn(open_as_nobody, (void *)path));
    check_ends_well(spawn(open_as_nobody, (void *)missing));
    CHECK(chmod(path, 0600) == 0);
    check_ends_well(spawn(open_as_nobody, (void *)path));
}

/* A file system for this test only. */
static void mount_small(const char *path, const char *options) {
    CHECK(mkdir(path, 0700) == 0);
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", path, "tmpfs", 0, options) < 0)
        SKIP("a tmpfs cannot be mounted here: %s", strerror(errno));
}

TEST(a_file_system_that_is_mounted_for_reading_is_denied) {
    const char *small = in_folder("small");
    mount_small(small, "size=1m,mode=0700");
    CHECK_IS(try_open(in_folder("small/locks.db")), HF_OK);
    CHECK(mount("tmpfs", small, NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0);
    CHECK_IS(try_open(in_folder("small/locks.db")), HF_DENIED);
    CHECK_IS(try_open(in_folder("small/other.db")), HF_DENIED);
    umount2(small, MNT_DETACH);
}

/* Takes more and more locks until the store refuses; returns its error. */
static int fill_with_locks(hf_client *client, int most) {
    for (int i = 0; i < most; i++) {
        char name[200];
        hf_acquire_options options = lasting(0, 60000);
        options.flags = HF_NO_RENEW;
        hf_hold *hold = NULL;
        snprintf(name, sizeof(name), "%0190d", i);
        int r = hf_acquire(client, name, &options, &hold);
        if (r < 0)
            return r;
    }
    return HF_OK;
}

/* FAILURES.md 9: with a full disk nothing is granted, and no hold is lost. */
TEST(a_full_disk_is_reported_and_loses_nothing) {
    const char *small = in_folder("small"), *file = in_folder("small/locks.db");
    mount_small(small, "size=512k,mode=0700");
    hf_client *client = NULL, *other = NULL;
    CHECK_IS(hf_client_open(url_of(file), NULL, &client), HF_OK);
    CHECK_IS(hf_client_open(url_of(file), NULL, &other), HF_OK);
    hf_hold *before = get(client, "before", lasting(0, 60000));
    write_file(in_folder("small/filler"), "");
    CHECK(truncate(in_folder("small/filler"), 0) == 0);
    CHECK_IS(fill_with_locks(client, 100000), HF_STORE_FULL);
    CHECK(strlen(hf_last_error()) > 0);
    CHECK_IS(hf_check(before, 0), HF_OK);
    CHECK_IS(attempt(other, "before"), HF_BUSY);
    CHECK(mount("tmpfs", small, NULL, MS_REMOUNT, "size=8m") == 0);
    CHECK_IS(attempt(other, "after"), HF_OK);
    CHECK_IS(attempt(other, "before"), HF_BUSY);
    CHECK_IS(hf_renew(before, 0), HF_OK);
    let_go(before);
    CHECK_IS(attempt(other, "before"), HF_OK);
    CHECK_EQ_INT(query(file, "SELECT count(*) FROM pragma_integrity_check WHERE"
                             " integrity_check = 'ok'"),
                 1);
    umount2(small, MNT_DETACH);
    remove_folder();
    _exit(0); /* the clients have thousands of holds; closing them is another test's */
}

TEST(a_limit_on_the_size_of_files_is_reported) {
    hf_client *client = open_client(), *other = open_client();
    hf_hold *before = get(client, "before", lasting(0, 60000));
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {.rlim_cur = 200000, .rlim_max = RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK_IS(fill_with_locks(client, 100000), HF_STORE_FULL);
    limit.rlim_cur = RLIM_INFINITY;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK_IS(attempt(other, "before"), HF_BUSY);
    CHECK_IS(attempt(other, "after"), HF_OK);
    let_go(before);
    remove_folder();
    _exit(0);
}

/* FAILURES.md 13: a hold that was deleted with the file is lost; a renewal does not restore it. */
TEST(a_deleted_file_loses_its_locks_and_is_created_again) {
    hf_client *client = open_client();
    hf_hold *hold = get_now(client, "x");
    CHECK(unlink(the_file()) == 0);
    CHECK_IS(hf_renew(hold, 0), HF_LOST);
    CHECK_IS(hf_check(hold, 0), HF_LOST);
    hf_hold_free(hold);
    hf_hold *again = get_now(client, "x");
    hf_client *other = open_client();
    CHECK_IS(attempt(other, "x"), HF_BUSY);
    let_go(again);
    hf_client_close(other);
    hf_client_close(client);
}

/* ---- Times ---- */

/* Each reading of a clock is slowness_us later than it would be, as in a process that hardly gets
 * to run; lost_us is the sum. */
static _Atomic int64_t slowness_us, lost_us;

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret) {
    int r = __real_clock_gettime(id, ret);
    int64_t ns = ret->tv_nsec + (atomic_fetch_add(&lost_us, slowness_us) + slowness_us) * 1000;
    ret->tv_sec += ns / 1000000000;
    ret->tv_nsec = ns % 1000000000;
    return r;
}

/* How much later `since` is than the beginning of the lease. */
static int64_t since_after_lease_us(void) {
    struct timespec wall, boot;
    clock_gettime(CLOCK_REALTIME, &wall);
    clock_gettime(CLOCK_BOOTTIME, &boot);
    int64_t offset_us =
        (wall.tv_sec - boot.tv_sec) * INT64_C(1000000) + (wall.tv_nsec - boot.tv_nsec) / 1000;
    return query(the_file(), "SELECT since_us - written_us FROM claims") - offset_us;
}

/* If they differed, the limiter would seem to let through more than its rate. */
TEST(since_and_the_lease_begin_together_in_a_process_that_hardly_runs) {
    hf_client *client = open_client();
    hf_hold *hold = get_now(client, "x");
    hf_call *waits = queue_up(client, "x", LONG_MS);
    slowness_us = 100000;
    let_go(hold);
    hold = granted(waits);
    slowness_us = 0;
    CHECK(llabs(since_after_lease_us()) <= 150000);
    let_go(hold);
    slowness_us = 100000;
    hold = get_now(client, "x");
    slowness_us = 0;
    CHECK(llabs(since_after_lease_us()) <= 150000);
    let_go(hold);
    hf_client_close(client);
}

/* ---- Boots ---- */

/* Changes all claims as if they had been written `hours` later after the boot. */
static void write_later(int hours) {
    char text[200];
    int64_t us = hours * INT64_C(3600000000);
    snprintf(text, sizeof(text),
             "UPDATE claims SET written_us = written_us + %" PRId64
             ", until_us = until_us + %" PRId64,
             us, us);
    query(the_file(), text);
}

/* The earlier boot had lasted longer than this one has so far. */
TEST(claims_of_an_earlier_boot_are_void_and_counters_stay) {
    hf_client *client = open_client();
    hf_hold *before = get(client, "x", lasting(0, 60000));
    uint64_t token = hf_hold_token(before);
    hf_call *waits = queue_up(client, "x", LONG_MS);
    query(the_file(), "UPDATE locks SET token = token + 1000000");
    write_later(1);
    hf_client *later = open_client();
    CHECK_EQ_INT(waiters(later, "x"), 0);
    CHECK_EQ_INT(holders(later, "x"), 0);
    hf_hold *hold = get_now(later, "x");
    CHECK(hf_hold_token(hold) > token + 1000000);
    CHECK_IS(hf_renew(before, 0), HF_LOST);
    let_go(hold);
    hf_call_free(waits);
    hf_hold_free(before);
    hf_client_close(later);
    hf_client_close(client);
}

TEST(the_next_place_after_an_earlier_boot_is_that_of_the_first_who_waits_now) {
    hf_client *client = open_client(), *next = open_client();
    hf_hold *before = get_now(client, "x");
    hf_call *first = queue_up(client, "x", LONG_MS), *second = queue_up(client, "x", LONG_MS);
    write_later(1);
    hf_hold *hold = get_now(next, "x");
    hf_call *waits = queue_up(next, "x", LONG_MS);
    let_go(hold);
    let_go(granted(waits));
    hf_call_free(second);
    hf_call_free(first);
    hf_hold_free(before);
    hf_client_close(next);
    hf_client_close(client);
}

/* A reader reads the clock a moment before the file. */
TEST(a_claim_that_was_just_written_is_not_of_an_earlier_boot) {
    hf_client *client = open_client();
    hf_hold *hold = get_now(client, "x");
    query(the_file(), "UPDATE claims SET written_us = written_us + 900000");
    CHECK_EQ_INT(holders(client, "x"), 1);
    CHECK_IS(attempt(client, "x"), HF_BUSY);
    let_go(hold);
    hf_client_close(client);
}

/* FAILURES.md 16. */
TEST(a_token_floor_outlasts_a_restored_backup) {
    hf_client *client = open_client();
    let_go(get_now(client, "x"));
    hf_client_close(client);
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    options.token_floor = UINT64_C(1) << 52;
    CHECK_IS(hf_client_open(url_of(the_file()), &options, &client), HF_OK);
    hf_hold *hold = get_now(client, "x");
    CHECK(hf_hold_token(hold) >= options.token_floor);
    let_go(hold);
    hf_client_close(client);
    client = open_client(); /* the file keeps the floor, so other clients need not set it */
    hold = get_now(client, "y");
    CHECK(hf_hold_token(hold) >= options.token_floor);
    let_go(hold);
    hf_client_close(client);
}

/* ---- Growth ---- */

static int64_t size_of(const char *path) {
    struct stat status;
    CHECK(stat(path, &status) == 0);
    return status.st_size;
}

static int64_t size_of_log(void) {
    return size_of(in_folder("locks.db-wal"));
}

static int64_t size_of_store(void) {
    return size_of(the_file()) + size_of_log();
}

static void use_names(hf_client *client, int from, int to) {
    for (int i = from; i < to; i++) {
        char name[32];
        snprintf(name, sizeof(name), "order-%08d", i);
        let_go(get_now(client, name));
    }
}

TEST(names_that_nobody_used_for_a_week_make_room) {
    enum { MANY = 20000 };
    hf_client *client = open_client();
    use_names(client, 0, MANY);
    int64_t size = size_of_store();
    CHECK_EQ_INT(query(the_file(), "SELECT count(*) FROM locks"), MANY);
    query(the_file(), "UPDATE locks SET used_day = used_day - 7");
    use_names(client, MANY, MANY + 1);
    CHECK_EQ_INT(query(the_file(), "SELECT count(*) FROM locks"), MANY + 1); /* a week to the day */
    for (int round = 1; round < 4; round++) {
        query(the_file(), "UPDATE locks SET used_day = used_day - 8");
        use_names(client, round * MANY + 1, (round + 1) * MANY + 1);
        CHECK_EQ_INT(query(the_file(), "SELECT count(*) FROM locks"), MANY);
        CHECK(size_of_store() < size + size / 5 + (4 << 20));
    }
    hf_client_close(client);
}

/* A client that opens the file while nobody else has it open must read the whole log. */
TEST(the_log_stays_short_when_clients_follow_one_another) {
    for (int i = 0; i < 300; i++) {
        hf_client *client = open_client();
        let_go(get_now(client, "x"));
        hf_client_close(client);
        CHECK(size_of_log() < 256 << 10);
    }
}

TEST(a_counter_that_is_held_or_ahead_of_the_clock_is_not_forgotten) {
    hf_client *client = open_client();
    hf_hold *hold = get_now(client, "held");
    let_go(get_now(client, "ahead"));
    let_go(get_now(client, "old"));
    query(the_file(), "UPDATE locks SET used_day = used_day - 8;"
                      "UPDATE locks SET token = token + 100000000 WHERE name = 'ahead';"
                      "UPDATE locks SET token = token - 100000000 WHERE name = 'old'");
    let_go(get_now(client, "new"));
    CHECK_EQ_INT(query(the_file(), "SELECT count(*) FROM locks"), 3);
    CHECK_EQ_INT(query(the_file(), "SELECT count(*) FROM locks WHERE name = 'old'"), 0);
    CHECK_IS(hf_renew(hold, 0), HF_OK);
    let_go(hold);
    hf_client_close(client);
}

/* If nobody asks for a name again, what a crashed process left on it is removed with the name. */
TEST(claims_that_nobody_comes_back_to_are_forgotten_too) {
    hf_client *client = open_client();
    hf_acquire_options options = lasting(0, LEASE_MS);
    options.flags = HF_NO_RENEW;
    hf_hold *hold = get(client, "abandoned", options);
    AWAIT(hf_check(hold, 0) == HF_LOST);
    CHECK_EQ_INT(query(the_file(), "SELECT count(*) FROM claims"), 1);
    query(the_file(), "UPDATE locks SET used_day = used_day - 8");
    AWAIT(holders(client, "abandoned") == 0);
    let_go(get_now(client, "new"));
    CHECK_EQ_INT(query(the_file(), "SELECT count(*) FROM claims"), 0);
    CHECK_EQ_INT(query(the_file(), "SELECT count(*) FROM locks"), 1);
    hf_hold_free(hold);
    hf_client_close(client);
}

TEST(a_page_of_a_hundred_thousand_locks_comes_at_once) {
    CHECK_IS(try_open(the_file()), HF_OK);
    query(the_file(),
          "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999)"
          " INSERT INTO locks (name, kind, capacity, token, used_day)"
          " SELECT printf('lock-%06d', i), 1, 1, 1, 20000 FROM n;"
          "INSERT INTO claims SELECT name, 1, 1, 1, 9000000000000000, zeroblob(16), 1, 1, 1, 1, 1,"
          " 1, 1, 0, 0, 'host', 'command', '', 0 FROM locks WHERE name < 'lock-090000'");
    hf_client *client = open_client();
    hf_locks *locks = NULL;
    clock_t start = clock(); /* processor time, so a busy machine does not matter */
    CHECK_IS(hf_list(client, "lock-05", "lock-054321", 1000, &locks), HF_OK);
    CHECK_EQ_INT(hf_locks_count(locks), 1000);
    CHECK_EQ_STR(hf_locks_at(locks, 0)->name, "lock-054322");
    hf_locks_free(locks);
    CHECK_IS(hf_list(client, "lock-089", "lock-089998", 1000, &locks), HF_OK);
    CHECK_EQ_INT(hf_locks_count(locks), 1);
    hf_locks_free(locks);
    CHECK_IS(hf_list(client, "lock-09", NULL, 1000, &locks), HF_OK);
    CHECK_EQ_INT(hf_locks_count(locks), 0);
    hf_locks_free(locks);
    CHECK(clock() - start < CLOCKS_PER_SEC);
    hf_client_close(client);
}
