/* Watchers of the sqlite store: what they leave behind, and when changes are missed. (The
 * conformance tests check what is reported.) */
#include "store/sqlite/sqlite_test.h"

/* What a watch has reported; in shared memory. */
struct seen {
    atomic_int watching, missed, changes;
};

static void see(const hf_change *change, void *arg) {
    struct seen *seen = arg;
    atomic_int *count = change->type == HF_CHANGE_WATCHING ? &seen->watching
                        : change->type == HF_CHANGE_MISSED ? &seen->missed
                                                           : &seen->changes;
    atomic_fetch_add(count, 1);
}

static hf_call *watch(hf_client *client, struct seen *seen) {
    hf_call *call = NULL;
    CHECK_IS(hf_watch_start(client, NULL, see, seen, &call), HF_OK);
    AWAIT(seen->watching == 1);
    return call;
}

static void watch_on(void *arg) {
    watch(open_client(), arg);
    for (;;)
        pause();
}

static pid_t start_watcher(void) {
    struct seen *seen = shared(sizeof(*seen));
    pid_t child = spawn(watch_on, seen);
    AWAIT(seen->watching == 1);
    return child;
}

static int64_t watchers(void) {
    return query(the_file(), "SELECT count(*) FROM watchers");
}

static int64_t logged(void) {
    return query(the_file(), "SELECT count(*) FROM changes");
}

/* The only watcher is killed, and the statement then makes its lease one that has ended. */
static void check_nothing_stays(const char *end_lease) {
    pid_t watcher = start_watcher();
    hf_client *client = open_client();
    hf_hold *hold = get_now(client, "x");
    CHECK_IS(attempt(client, "y"), HF_OK);
    CHECK_EQ_INT(logged(), 3);
    kill_hard(watcher);
    query(the_file(), end_lease);
    let_go(hold);
    CHECK_EQ_INT(watchers(), 0);
    CHECK_EQ_INT(logged(), 0);
    CHECK_IS(attempt(client, "x"), HF_OK);
    CHECK_EQ_INT(logged(), 0);
    hf_client_close(client);
}

TEST(a_watcher_that_was_killed_leaves_nothing_behind) {
    check_nothing_stays("UPDATE watchers SET until_us = 1");
}

TEST(a_watcher_of_an_earlier_boot_leaves_nothing_behind) {
    check_nothing_stays("UPDATE watchers SET until_us = until_us + 3600000000");
}

TEST(a_watcher_removes_those_that_were_killed) {
    struct seen seen = {0};
    kill_hard(start_watcher());
    query(the_file(), "UPDATE watchers SET until_us = 1");
    hf_client *client = open_client();
    hf_call *call = watch(client, &seen);
    CHECK_EQ_INT(watchers(), 1);
    CHECK_IS(attempt(client, "x"), HF_OK);
    AWAIT(seen.changes == 2);
    hf_call_free(call);
    hf_client_close(client);
}

TEST(a_watch_that_ends_leaves_nothing_behind) {
    struct seen first = {0}, second = {0};
    hf_client *client = open_client(), *other = open_client();
    hf_call *call = watch(client, &first), *stays = watch(other, &second);
    CHECK_IS(attempt(client, "x"), HF_OK);
    AWAIT(first.changes == 2 && second.changes == 2);
    hf_call_free(call);
    AWAIT(watchers() == 1);
    CHECK_EQ_INT(logged(), 2);
    hf_client_close(other);
    CHECK_EQ_INT(watchers(), 0);
    CHECK_EQ_INT(logged(), 0);
    hf_call_free(stays);
    hf_client_close(client);
}

/* The log is made to look as if 20,000 changes had come before the watcher could read one. */
TEST(the_log_is_bounded_and_who_is_behind_is_notified) {
    struct seen seen = {0};
    hf_client *client = open_client();
    hf_call *call = watch(client, &seen);
    CHECK_IS(attempt(client, "x"), HF_OK);
    AWAIT(seen.changes == 2);
    query(the_file(), "UPDATE sqlite_sequence SET seq = seq + 20000 WHERE name = 'changes'");
    CHECK_IS(attempt(client, "x"), HF_OK);
    CHECK_EQ_INT(logged(), 2);
    AWAIT(seen.changes == 4);
    CHECK_EQ_INT(seen.missed, 1);
    CHECK_EQ_INT(seen.watching, 2);
    hf_call_free(call);
    hf_client_close(client);
}

/* As after a process was stopped for longer than its lease. */
TEST(a_watch_whose_lease_has_ended_says_so_and_begins_again) {
    struct seen seen = {0};
    hf_client *client = open_client();
    hf_call *call = watch(client, &seen);
    query(the_file(), "UPDATE watchers SET until_us = 1");
    CHECK_IS(attempt(client, "x"), HF_OK);
    AWAIT(seen.watching == 2);
    CHECK_EQ_INT(seen.missed, 1);
    CHECK_EQ_INT(seen.changes, 0);
    CHECK_IS(attempt(client, "x"), HF_OK);
    AWAIT(seen.changes == 2);
    hf_call_free(call);
    hf_client_close(client);
}

TEST(a_watch_goes_on_in_the_file_that_replaced_its_own) {
    struct seen seen = {0};
    hf_client *client = open_client();
    hf_call *call = watch(client, &seen);
    CHECK(unlink(the_file()) == 0);
    AWAIT(seen.watching == 2);
    CHECK_EQ_INT(seen.missed, 1);
    hf_client *other = open_client();
    CHECK_IS(attempt(other, "x"), HF_OK);
    AWAIT(seen.changes == 2);
    hf_client_close(other);
    hf_call_free(call);
    hf_client_close(client);
}

TEST(no_change_is_missed_without_datagrams) {
    struct seen seen = {0};
    hf_client *client = open_client(), *other = open_client();
    hf_call *call = watch(client, &seen);
    CHECK(nftw(in_folder("locks.db-wake"), remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0);
    CHECK_IS(attempt(other, "x"), HF_OK);
    AWAIT(seen.changes == 2);
    CHECK_EQ_INT(seen.missed, 0);
    hf_call_free(call);
    hf_client_close(other);
    hf_client_close(client);
}
