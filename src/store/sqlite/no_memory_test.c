/* An allocation that fails, at every index of what the sqlite store does, SQLite's own included: a
 * clear error, no leak (AddressSanitizer looks), and no lock that stays held. */
#define TEST_TIMEOUT_S 200
#include "store/sqlite/sqlite_test.h"
#include "support/failing.h"

static sqlite3_mem_methods sqlite_memory;

static void *sqlite_malloc(int size) {
    return fail_now(ENOMEM) ? NULL : sqlite_memory.xMalloc(size);
}

static void *sqlite_realloc(void *memory, int size) {
    return fail_now(ENOMEM) ? NULL : sqlite_memory.xRealloc(memory, size);
}

/* SQLite's allocations are counted too, and none is served from a reserve. */
static void watch_sqlite(void) {
    CHECK_EQ_INT(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_memory), SQLITE_OK);
    sqlite3_mem_methods watched = sqlite_memory;
    watched.xMalloc = sqlite_malloc;
    watched.xRealloc = sqlite_realloc;
    CHECK_EQ_INT(sqlite3_config(SQLITE_CONFIG_MALLOC, &watched), SQLITE_OK);
    CHECK_EQ_INT(sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0), SQLITE_OK);
}

/* True if it was done; otherwise the error must be clear. UNKNOWN is correct if memory ran out
 * after the log was written, but before its index was. */
static bool done(int r) {
    if (r != HF_OK && r != HF_NO_MEMORY && r != HF_UNKNOWN)
        test_fail(__FILE__, __LINE__, "%s: %s", hf_error_name(r), hf_last_error());
    return r == HF_OK;
}

/* The second client waits briefly, so that queues and watches are used too. */
static void use_two(hf_client *first, hf_client *second) {
    hf_acquire_options options = lasting(0, 30000), waiting = lasting(1, 30000);
    hf_hold *hold = NULL, *none = NULL;
    hf_locks *locks = NULL;
    if (!done(hf_acquire(first, "x", &options, &hold)))
        return;
    int r = hf_acquire(second, "x", &waiting, &none);
    if (r != HF_TIMEOUT)
        done(r);
    CHECK(!none);
    done(hf_renew(hold, 0));
    if (done(hf_inspect(first, "x", &locks)))
        CHECK_EQ_INT(hf_locks_count(locks), 1);
    hf_locks_free(locks);
    done(hf_release(hold));
    hf_hold_free(hold);
}

static void live_once(void) {
    hf_client *first = NULL, *second = NULL;
    if (done(hf_client_open(url_of(the_file()), NULL, &first)) &&
        done(hf_client_open(url_of(the_file()), NULL, &second)))
        use_two(first, second);
    hf_client_close(second);
    hf_client_close(first);
}

TEST(no_lock_stays_held_after_failed_allocations) {
    watch_sqlite();
    hf_client *later = open_client(); /* so that the log is not written back each time */
    long index = 0;
    for (; fail_next(FAIL_ONE); index++) {
        live_once();
        fail_pause();
        CHECK_IS(attempt(later, "x"), HF_OK);
        CHECK_EQ_INT(waiters(later, "x"), 0);
    }
    hf_client_close(later);
    CHECK(index > 100);
    printf("# %ld allocations\n", index);
}

static void ignore(const hf_change *change, void *arg) {
    (void)change;
    (void)arg;
}

static void watch_once(void) {
    hf_acquire_options options = lasting(0, 30000);
    hf_client *client = NULL;
    hf_call *call = NULL;
    hf_hold *hold = NULL;
    if (!done(hf_client_open(url_of(the_file()), NULL, &client)))
        return;
    if (hf_fd(client) >= 0 && done(hf_watch_start(client, NULL, ignore, NULL, &call))) {
        CHECK_IS(hf_process(client), HF_OK);
        if (done(hf_acquire(client, "x", &options, &hold)))
            done(hf_release(hold));
        CHECK_IS(hf_process(client), HF_OK);
    }
    hf_hold_free(hold);
    hf_call_free(call);
    hf_client_close(client);
}

TEST(a_watch_without_memory_does_no_harm) {
    watch_sqlite();
    hf_client *later = open_client();
    long index = 0;
    for (; fail_next(FAIL_ONE); index++) {
        watch_once();
        fail_pause();
        CHECK_IS(attempt(later, "x"), HF_OK);
    }
    hf_client_close(later);
    CHECK(index > 100);
    printf("# %ld allocations\n", index);
}

/* A question that failed for lack of memory is not reported as a finding. */
TEST(an_examination_without_memory_invents_nothing) {
    watch_sqlite();
    hf_client *client = open_client();
    long index = 0;
    for (; fail_next(FAIL_ONE); index++) {
        hf_examination *found = NULL;
        bool ok = done(hf_examine(client, &found));
        fail_pause();
        for (size_t i = 0; ok && i < found->count; i++)
            CHECK(found->findings[i]->severity <= HF_NOTE);
        hf_examination_free(found);
        CHECK_IS(attempt(client, "x"), HF_OK);
    }
    hf_client_close(client);
    CHECK(index > 20);
}

/* A commit whose outcome is unknown is repeated, and its answer is found if it was done. */
TEST(a_count_without_memory_happens_once_or_not_at_all) {
    watch_sqlite();
    hf_client *client = open_client();
    hf_count_options options = HF_COUNT_OPTIONS_INIT;
    options.op = HF_COUNT_ADD;
    options.number = 1;
    int64_t added = 0;
    long index = 0;
    for (; fail_next(FAIL_ONE); index++) {
        hf_client *adding = NULL;
        if (done(hf_client_open(url_of(the_file()), NULL, &adding))) {
            int r = hf_count(adding, "x", &options, NULL);
            CHECK(r == HF_OK || r == HF_NO_MEMORY);
            added += r == HF_OK;
        }
        hf_client_close(adding);
        fail_pause();
        hf_counter counter = HF_COUNTER_INIT;
        CHECK_IS(hf_count(client, "x", NULL, &counter), HF_OK);
        CHECK_EQ_INT(counter.value, added);
    }
    hf_client_close(client);
    CHECK(index > 100 && added > 0);
    printf("# %ld allocations, %d adds\n", index, (int)added);
}
