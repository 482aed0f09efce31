/* An allocation that fails, at every index of what the Redis store does, hiredis' included: each
 * operation completes once, with a clear outcome, nothing leaks (AddressSanitizer looks), nothing
 * spins.
 *
 * The streams lead to a server that says yes to everything. Each story runs with one server, with a
 * master that sentinels name, and with a Cluster. */
#define TEST_TIMEOUT_S 200
#include "check.h"
#include "support/failing.h"
#include "support/fake_redis.h"

#include <errno.h>
#include <hiredis/hiredis.h>

enum { S = 1000000 };

FAILING_CALL(redisReader *, redisReaderCreateWithFunctions, ENOMEM, NULL,
             (redisReplyObjectFunctions * functions), (functions))
FAILING_CALL(int, redisReaderFeed, ENOMEM, REDIS_ERR,
             (redisReader * reader, const char *bytes, size_t size), (reader, bytes, size))

static const char *const urls[] = {
    "redis://localhost",
    "redis+sentinel://s1,s2,s3/orders?plaintext=yes",
    "redis+cluster://seed?plaintext=yes",
};
static const char *url; /* of the story */

static void fail_on_every_url(void (*story)(void)) {
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        url = urls[i];
        fail_at_every_index(story);
    }
}

/* ---- Words of the tests ---- */

static struct rig rig;
static struct asked asked[8], held, shared;

/* Opens a store and connects it. Allocations do not fail until that is done. */
static void open_unfailing(bool knows_scripts) {
    fail_pause();
    rig_open(&rig, url);
    rig.knows_scripts = knows_scripts;
    fake_serve(rig.world, rig_serve, &rig);
    ask_acquire(&rig, &asked[0], "busy", STORE_WAIT); /* and subscribed */
    CHECK_EQ_INT(asked[0].op.outcome, STORE_QUEUED);
    asked_clear(&asked[0]);
    make_acquire(&held, "held", 0);
    make_acquire(&shared, "shared", 0);
    make_share(&shared);
    fail_resume();
}

/* Each operation has completed, at the latest when the time to find the server and the time to
 * answer are both over. */
static void check_completed(size_t count) {
    fake_pass_us(rig.world, 5 * S);
    for (size_t i = 0; i < count; i++) {
        const struct store_op *op = &asked[i].op;
        CHECK_EQ_INT(asked[i].completions, 1);
        CHECK(op->outcome != STORE_NOT_YOURS);
        CHECK(op->outcome != STORE_REFUSED || op->reason == HF_NO_MEMORY ||
              op->reason == HF_UNREACHABLE);
        CHECK(fail_happened() || op->outcome == STORE_DONE || op->outcome == STORE_QUEUED);
        asked_clear(&asked[i]);
    }
}

static void over(void) {
    fail_pause();
    rig_close(&rig);
}

/* ---- Stories ---- */

static void open_one(const char *text) {
    char *why;
    setenv("HOLDFAST_TEST_PASSWORD", "hunter2", 1);
    int r = rig_open_url(&rig, text, &why);
    CHECK(r == HF_OK || r == HF_NO_MEMORY);
    CHECK(!rig.store == (r != HF_OK));
    free(why);
    rig_close(&rig);
}

static void open_and_close(void) {
    open_one("redis://jo@localhost:7000/3?password_env=HOLDFAST_TEST_PASSWORD&prefix=app:");
    open_one("redis+sentinel://jo:x@localhost,[::1]/orders/3?sentinel_user=jo&"
             "sentinel_password_env=HOLDFAST_TEST_PASSWORD&wait_replicas=1");
    open_one("redis+cluster://jo:x@localhost,[::1]:7000/0?wait_replicas=1&wait_timeout=5");
}

TEST(opening_a_store_survives_failed_allocations) {
    fail_at_every_index(open_and_close);
}

static void open_wrongly(void) {
    static const char *const wrong[] = {
        "redis://localhost?x=y",       "redis://localhost/x",
        "redis://jo@localhost",        "redis://a,b",
        "redis://localhost?timeout=x", "redis+unix:x",
        "redis+sentinel://localhost",  "redis+sentinel://localhost/orders/x",
        "redis+cluster://203.0.113.5", "redis+cluster:///0"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char *text;
        int r = rig_open_url(&rig, wrong[i], &text);
        CHECK(r == HF_BAD_URL || r == HF_NO_MEMORY);
        free(text);
        rig_close(&rig);
    }
}

TEST(a_bad_url_is_refused_despite_failed_allocations) {
    fail_at_every_index(open_wrongly);
}

static void first_use(void) {
    char *text;
    const char *with_login = strcmp(url, urls[0]) == 0 ? "redis://jo:secret@localhost/3" : url;
    if (rig_open_url(&rig, with_login, &text) == HF_OK) {
        fake_serve(rig.world, rig_serve, &rig);
        ask_acquire(&rig, &asked[0], "busy", STORE_WAIT);
        ask_acquire(&rig, &asked[1], "x", 0);
        check_completed(2);
    }
    free(text);
    over();
}

TEST(connecting_greeting_and_subscribing_survive_failed_allocations) {
    fail_on_every_url(first_use);
}

static void acquire_and_release(void) {
    open_unfailing(true);
    ask_acquire(&rig, &asked[0], "x", 0);
    ask_acquire(&rig, &asked[1], "busy", STORE_WAIT);
    ask_release(&rig, &asked[2], "x");
    ask_break(&rig, &asked[3], "x", 5);
    check_completed(4);
    over();
}

TEST(acquiring_releasing_and_breaking_survive_failed_allocations) {
    fail_on_every_url(acquire_and_release);
}

static void count(void) {
    open_unfailing(true);
    ask_count(&rig, &asked[0], "x", STORE_COUNT_ADD, 1);
    ask_count(&rig, &asked[1], "x", STORE_COUNT_GET, 0);
    check_completed(2);
    over();
}

TEST(counting_survives_failed_allocations) {
    static const char *const waiting[] = {
        "redis+sentinel://s1,s2,s3/orders?plaintext=yes&wait_replicas=1",
        "redis+cluster://seed?plaintext=yes&wait_replicas=1"};
    fail_on_every_url(count);
    for (size_t i = 0; i < sizeof(waiting) / sizeof(waiting[0]); i++) {
        url = waiting[i];
        fail_at_every_index(count);
    }
}

static void use_unknown_scripts(void) {
    open_unfailing(false);
    ask_acquire(&rig, &asked[0], "x", 0);
    ask_release(&rig, &asked[1], "x");
    ask_inspect(&rig, &asked[2], "x");
    check_completed(3);
    over();
}

TEST(sending_whole_scripts_survives_failed_allocations) {
    fail_on_every_url(use_unknown_scripts);
}

static void renew(void) {
    open_unfailing(true);
    ask_renew(&rig, &asked[0], (struct asked *[]){&held, &shared, NULL, &held, &shared}, 5);
    fake_pass_us(rig.world, 3 * S);
    CHECK_EQ_INT(asked[0].completions, 1);
    for (int i = 0; i < 5; i++) {
        enum store_outcome outcome = asked[0].renewals[i].outcome;
        CHECK(i == 2
                  ? outcome == 0
                  : outcome == STORE_DONE || outcome == STORE_REFUSED || outcome == STORE_UNKNOWN ||
                        (outcome == 0 && asked[0].op.outcome == STORE_REFUSED));
    }
    asked_clear(&asked[0]);
    over();
}

TEST(renewing_holds_of_each_kind_survives_failed_allocations) {
    fail_on_every_url(renew);
}

static void inspect(void) {
    open_unfailing(true);
    ask_inspect(&rig, &asked[0], "x");
    check_completed(1);
    over();
}

TEST(inspecting_survives_failed_allocations) {
    fail_on_every_url(inspect);
}

static void list(void) {
    open_unfailing(true);
    ask_list(&rig, &asked[0], "", 10);
    ask_list(&rig, &asked[1], "", 1);
    check_completed(2);
    over();
}

TEST(listing_survives_failed_allocations) {
    fail_on_every_url(list);
}

static void hang_up_all(void) {
    for (size_t i = fake_stream_count(rig.world); i-- > 0;) {
        if (fake_stream(rig.world, i)->owner)
            fake_hang_up(fake_stream(rig.world, i), "reset");
    }
}

static void lose_connections(void) {
    open_unfailing(true);
    fake_serve(rig.world, NULL, NULL);
    ask_acquire(&rig, &asked[0], "x", 0);
    ask_release(&rig, &asked[1], "y");
    hang_up_all();
    fake_serve(rig.world, rig_serve, &rig);
    ask_inspect(&rig, &asked[2], "x");
    check_completed(3);
    over();
}

TEST(lost_connections_survive_failed_allocations) {
    fail_on_every_url(lose_connections);
}

static void fail_over(void) {
    open_unfailing(true);
    rig.failed_over = true;
    hang_up_all();
    ask_acquire(&rig, &asked[0], "x", 0);
    ask_acquire(&rig, &asked[1], "z", STORE_WAIT);
    ask_renew(&rig, &asked[2], (struct asked *[]){&held, &shared}, 2);
    check_completed(3);
    over();
}

TEST(failing_over_survives_failed_allocations) {
    fail_on_every_url(fail_over);
}

static const char *error;

static void be_turned_away(void) {
    open_unfailing(true);
    rig.error = error;
    ask_acquire(&rig, &asked[0], "x", 0);
    rig.error = error;
    ask_release(&rig, &asked[1], "x");
    check_completed(2);
    over();
}

/* Errors by which a server says that it is the wrong one, or that the client should try later. */
TEST(redirections_survive_failed_allocations) {
    static const char *const errors[] = {"-READONLY You can't write against a replica.\r\n",
                                         "-MOVED 1 nc:7003\r\n", "-ASK 1 nc:7003\r\n",
                                         "-TRYAGAIN Multiple keys request\r\n",
                                         "-CLUSTERDOWN The cluster is down\r\n"};
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        url = i ? urls[2] : urls[1];
        error = errors[i];
        fail_at_every_index(be_turned_away);
    }
}

static void examine(void) {
    open_unfailing(true);
    ask_examine(&rig, &asked[0]);
    check_completed(1);
    over();
}

TEST(examining_survives_failed_allocations) {
    fail_on_every_url(examine);
}

/* Long enough for pings, which must not be retried without a pause. */
static void be_silent(void) {
    open_unfailing(true);
    fake_pass_us(rig.world, 30 * S);
    ask_release(&rig, &asked[0], "x");
    check_completed(1);
    over();
}

TEST(pings_survive_failed_allocations) {
    fail_on_every_url(be_silent);
}

static void watch(void) {
    open_unfailing(true);
    asked[0] = (struct asked){.op = {.type = STORE_WATCH, .name = ""}};
    rig_submit(&rig, &asked[0]);
    fake_pass_us(rig.world, 5 * S);
    hang_up_all();
    check_completed(1);
    fail_pause();
    fake_pass_us(rig.world, 10 * S);
    /* However much failed, it is complete when there is memory again. */
    CHECK_EQ_INT(rig.changes[rig.change_count - 1], HF_CHANGE_WATCHING);
    over();
}

/* Not in a Cluster, where nobody can watch. */
TEST(watching_survives_failed_allocations) {
    for (int i = 0; i < 2; i++) {
        url = urls[i];
        fail_at_every_index(watch);
    }
}

static void close_halfway(void) {
    open_unfailing(true);
    fake_serve(rig.world, NULL, NULL);
    ask_acquire(&rig, &asked[0], "x", 0);
    ask_renew(&rig, &asked[1], (struct asked *[]){&held, &shared}, 2);
    ask_list(&rig, &asked[2], "", 5);
    ask_inspect(&rig, &asked[3], "x");
    rig_close_store(&rig);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ_INT(asked[i].completions, 1);
        asked_clear(&asked[i]);
    }
    over();
}

TEST(closing_completes_all_operations_despite_failed_allocations) {
    fail_on_every_url(close_halfway);
}
