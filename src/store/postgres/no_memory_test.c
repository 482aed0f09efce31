/* Fails each allocation in turn that the PostgreSQL store makes, with a real server: see
 * sql_no_memory.h. libpq's own allocations fail where it is asked for something new. */
#define TEST_TIMEOUT_S 300
#define TEST_JOBS_MOST 1
#include "support/sql_no_memory.h"

#include <errno.h>
#include <libpq-fe.h>

FAILING_CALL(PGconn *, PQconnectStartParams, ENOMEM, NULL,
             (const char *const *keys, const char *const *values, int expand),
             (keys, values, expand))
FAILING_CALL(PQconninfoOption *, PQconninfo, ENOMEM, NULL, (PGconn * conn), (conn))

TEST(leases_survive_failed_allocations) {
    fail_everywhere(story, "");
}

TEST(row_locks_survive_failed_allocations) {
    fail_everywhere(story, "&scheme=for-update");
}

/* Whatever failed, the watch is complete once there is memory again. */
static void watch_story(void) {
    struct asker *asker = open_store(url_of_test());
    if (!asker)
        return;
    struct store_op op = {.type = STORE_WATCH, .name = ""};
    if (try(asker, &op) == STORE_DONE) {
        listen_for_us(asker, 5 * MS);
        fail_pause();
        int64_t until_us = world_now_us(asker->host.world) + PATIENCE_US;
        while (!asker->watching) {
            CHECK(world_now_us(asker->host.world) < until_us);
            listen_for_us(asker, SECOND);
        }
        fail_resume();
    }
    close_store(asker);
}

TEST(watching_survives_failed_allocations) {
    fail_everywhere(watch_story, "");
}

/* A waiter is woken, although there was no memory to listen at first. */
static void listen_story(void) {
    struct asker *asker = open_store(url_of_test());
    if (!asker)
        return;
    fail_pause();
    struct store_op theirs = make(STORE_ACQUIRE, 3, 0);
    CHECK_EQ_INT(ask(observer, &theirs), STORE_DONE);
    fail_resume();
    struct store_op op = make(STORE_ACQUIRE, 3, STORE_WAIT);
    if (try(asker, &op) == STORE_QUEUED) {
        for (int i = 0; i < 8; i++)
            listen_for_us(asker, 5 * MS);
        fail_pause();
        asker->wakes = 0;
        theirs.type = STORE_RELEASE;
        CHECK_EQ_INT(ask(observer, &theirs), STORE_DONE);
        int64_t until_us = world_now_us(asker->host.world) + PATIENCE_US;
        while (!asker->wakes) {
            CHECK(world_now_us(asker->host.world) < until_us);
            listen_for_us(asker, SECOND);
        }
        fail_resume();
    } else {
        fail_pause();
        theirs.type = STORE_RELEASE;
        CHECK_EQ_INT(ask(observer, &theirs), STORE_DONE);
        fail_resume();
    }
    let_go_of(asker, &op);
    close_store(asker);
}

TEST(a_waiter_is_woken_despite_failed_allocations) {
    fail_everywhere(listen_story, "");
}
