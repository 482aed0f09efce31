/* The store's URL: where it leads, and a sentence for each that is wrong. */
#include "check.h"
#include "support/fake_redis.h"

static struct rig rig;
static struct asked a;

static void over(void) {
    rig_close(&rig);
    asked_clear(&a);
}

/* Opens, asks, and looks at where it connects. */
static const struct world_peer *peer_of(const char *url) {
    rig_open(&rig, url);
    ask_acquire(&rig, &a, "x", 0);
    return fake_stream(rig.world, 0)->owner->peer;
}

/* The password that is sent, or "" when something else is. */
static const char *password_of(const char *url) {
    static char password[2048];
    static struct seen seen;
    rig_open(&rig, url);
    ask_acquire(&rig, &a, "x", 0);
    fake_accept(fake_stream(rig.world, 0));
    CHECK(next_seen(fake_stream(rig.world, 0), &seen));
    snprintf(password, sizeof(password), "%s",
             strcmp(seen.arguments[0], "AUTH") == 0 ? seen.arguments[seen.count - 1] : "");
    over();
    return password;
}

static void check_refused(const char *url, const char *words) {
    char *text;
    int r = rig_open_url(&rig, url, &text);
    if (r != HF_BAD_URL || rig.store)
        test_fail(__FILE__, __LINE__, "%s is %s", url, r ? hf_error_name(r) : "opened");
    if (!text || !strstr(text, words))
        test_fail(__FILE__, __LINE__, "%s: \"%s\" does not say \"%s\"", url, text ? text : "",
                  words);
    CHECK(!strstr(text, "hunter2"));
    free(text);
    rig_close(&rig);
}

/* ---- Where it leads ---- */

TEST(a_host_has_the_usual_port_and_two_seconds) {
    const struct world_peer *peer = peer_of("redis://db.example?plaintext=yes");
    CHECK_EQ_STR(peer->host, "db.example");
    CHECK_EQ_INT(peer->port, 6379);
    CHECK_EQ_INT(peer->timeout_us, 2000000);
    CHECK(!peer->path);
    over();
}

TEST(host_port_and_time_to_connect_are_those_of_the_url) {
    const struct world_peer *peer = peer_of("redis://[::1]:7000/?connect_timeout=77&timeout=5");
    CHECK_EQ_STR(peer->host, "::1");
    CHECK_EQ_INT(peer->port, 7000);
    CHECK_EQ_INT(peer->timeout_us, 77000);
    over();
}

TEST(a_socket_is_connected_by_its_path) {
    const struct world_peer *peer = peer_of("redis+unix:///run/redis.sock?database=4");
    CHECK(!peer->host);
    CHECK_EQ_STR(peer->path, "/run/redis.sock");
    fake_accept(fake_stream(rig.world, 0));
    CHECK_EQ_STR(next_command(fake_stream(rig.world, 0)), "SELECT 4");
    over();
}

TEST(a_prefix_stands_before_each_name) {
    rig_open(&rig, "redis://localhost?prefix=app%3A");
    ask_acquire(&rig, &a, "x", 0);
    fake_accept(fake_stream(rig.world, 0));
    CHECK_EQ_STR(next_command(fake_stream(rig.world, 0)), "acquire app:x");
    over();
}

/* ---- Several servers ---- */

TEST(urls_of_several_servers_that_lack_something_are_refused) {
    check_refused("redis+sentinel://a,b?plaintext=yes", "/SERVICE");
    check_refused("redis+sentinel://a,b/?plaintext=yes", "/SERVICE");
    check_refused("redis+sentinel://a/orders/x", "the database");
    check_refused("redis+sentinel:///orders", "/SERVICE");
    check_refused("rediss+cluster://a?plaintext=yes", "\"plaintext\"");
    check_refused("rediss+cluster://a?cert=x", "must both be given");
    check_refused("redis+cluster://a?ca=x", "begins with rediss");
    check_refused("redis+cluster:///0", "some of its nodes");
    check_refused("redis+cluster://a/1", "the database");
    check_refused("redis+cluster://a?database=0", "\"database\"");
    check_refused("redis+cluster://a?sentinel_user=x", "\"sentinel_user\"");
    check_refused("redis://a?wait_replicas=1", "\"wait_replicas\"");
    check_refused("redis+cluster://a?wait_replicas=0", "wait_replicas");
    check_refused("redis+cluster://a?wait_replicas=1&timeout=10&wait_timeout=11", "wait_timeout");
}

/* ---- What is wrong ---- */

TEST(an_unknown_option_is_refused_by_its_name) {
    check_refused("redis://localhost?lease=5", "\"lease\"");
    check_refused("redis://localhost?prefix=a&time_out=5", "\"time_out\"");
    check_refused("redis://localhost?password=hunter2", "\"password\"");
}

TEST(numbers_that_are_none_or_out_of_range_are_refused) {
    check_refused("redis://localhost?timeout=0", "timeout is not a number from 1 to 3600000");
    check_refused("redis://localhost?timeout=3600001", "timeout");
    check_refused("redis://localhost?connect_timeout=0", "connect_timeout");
    check_refused("redis://localhost/x", "the database");
    check_refused("redis://localhost/1/2", "the database");
    check_refused("redis://localhost/-1", "the database");
    check_refused("redis://localhost/2147483648", "the database");
    check_refused("redis://localhost?database=1e3", "the database");
}

TEST(a_database_that_is_given_twice_is_refused) {
    check_refused("redis://localhost/1?database=1", "twice");
}

TEST(other_than_one_host_is_refused) {
    check_refused("redis:/path", "one host");
    check_refused("redis:h", "one host");
    check_refused("redis://a,b", "one host");
    check_refused("redis:///0", "one host");
}

TEST(a_socket_with_a_host_or_without_a_path_is_refused) {
    check_refused("redis+unix://h/run/redis.sock", "redis+unix:///path");
    check_refused("redis+unix:run", "redis+unix:///path");
    check_refused("redis+unix:", "redis+unix:///path");
}

TEST(a_prefix_that_is_too_long_or_would_end_a_tag_is_refused) {
    char url[128] = "redis://localhost?prefix=";
    memset(url + strlen(url), 'x', 50);
    rig_open(&rig, url);
    over();
    strcat(url, "x");
    check_refused(url, "prefix");
    check_refused("redis://localhost?prefix=%7Ba%7D.s", "prefix");
}

TEST(plaintext_beyond_private_networks_is_refused_unless_it_is_asked_for) {
    check_refused("redis://jo:hunter2@203.0.113.5", "use rediss://");
    check_refused("redis+sentinel://127.0.0.1,203.0.113.5/orders", "use rediss+sentinel://");
    check_refused("redis+cluster://203.0.113.5", "use rediss+cluster://");
    check_refused("redis://localhost?ca=x", "begins with rediss");
    check_refused("redis+unix:///run/redis.sock?plaintext=yes", "plaintext");
}

/* Where a name leads is known only when it is resolved, so the connection carries the limit. */
static void check_farthest(const char *url, enum world_reach farthest) {
    rig_open(&rig, url);
    ask_acquire(&rig, &a, "x", 0);
    CHECK_EQ_INT(fake_last(rig.world)->owner->farthest, farthest);
    over();
}

TEST(a_connection_goes_no_farther_than_its_url_permits) {
    check_farthest("redis://db.example", WORLD_PRIVATE);
    check_farthest("redis://db.example?plaintext=yes", WORLD_PUBLIC);
}

/* ---- Passwords ---- */

TEST(the_password_of_the_url_or_of_its_source_is_sent) {
    CHECK_EQ_STR(password_of("redis://jo:p%40ss@localhost"), "p@ss");
    setenv("HOLDFAST_TEST_PASSWORD", " spaces stay ", 1);
    CHECK_EQ_STR(password_of("redis://jo@localhost?password_env=HOLDFAST_TEST_PASSWORD"),
                 " spaces stay ");
}

TEST(a_user_without_a_password_is_refused) {
    check_refused("redis://jo@localhost", "\"jo\" has no password");
    check_refused("redis+sentinel://a/orders?sentinel_user=eve", "\"eve\" has no password");
}

TEST(a_node_of_a_set_is_one_server_and_no_deployment_with_replicas) {
    static const char *const urls[] = {"redis+sentinel://127.0.0.1/orders",
                                       "redis+cluster://127.0.0.1"};
    static const struct store_set set = {.name = "a/3/2/60000"};
    for (size_t i = 0; i < 2; i++) {
        char *text = NULL;
        rig_open(&rig, urls[i]);
        CHECK_EQ_INT(rig.store->driver->voting->join(rig.store, &set, &text), HF_BAD_URL);
        CHECK_EQ_STR(text, "a node of a set is one server: a replica that takes over may not have "
                           "its votes");
        free(text);
        rig_close(&rig);
    }
}
