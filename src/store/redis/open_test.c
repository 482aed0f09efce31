/* The store's URL: where it leads, and a sentence for each that is wrong. */
#include "check.h"
#include "support/fake_redis.h"

#include <fcntl.h>
#include <sys/stat.h>

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
    check_refused("rediss+cluster://a?cert=x", "go together");
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
    check_refused("redis://localhost?timeout=", "timeout");
    check_refused("redis://localhost?timeout=0", "from 1 to 3600000");
    check_refused("redis://localhost?timeout=-1", "timeout");
    check_refused("redis://localhost?timeout=+1", "timeout");
    check_refused("redis://localhost?timeout=%201", "timeout");
    check_refused("redis://localhost?timeout=5s", "timeout");
    check_refused("redis://localhost?timeout=1.5", "timeout");
    check_refused("redis://localhost?timeout=0x10", "timeout");
    check_refused("redis://localhost?timeout=3600001", "timeout");
    check_refused("redis://localhost?connect_timeout=99999999999999999999", "connect_timeout");
    check_refused("redis://localhost?connect_timeout=x", "connect_timeout");
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
    static const char *const elsewhere[] = {"128.0.0.1", "0.0.0.0",     "[::]",
                                            "[::2]",     "203.0.113.5", "[::ffff:203.0.113.5]"};
    static const char *const near[] = {"localhost",         "127.0.0.1", "[::1]", "10.0.0.7",
                                       "[::ffff:10.0.0.7]", "[fe80::1]", "redis"};
    char url[128];
    for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++) {
        snprintf(url, sizeof(url), "redis://jo:hunter2@%s", elsewhere[i]);
        check_refused(url, "plaintext=yes");
        strcat(url, "?plaintext=yes");
        rig_open(&rig, url);
        rig_close(&rig);
    }
    for (size_t i = 0; i < sizeof(near) / sizeof(near[0]); i++) {
        snprintf(url, sizeof(url), "redis://%s", near[i]);
        rig_open(&rig, url);
        rig_close(&rig);
    }
    check_refused("redis+sentinel://127.0.0.1,203.0.113.5/orders", "use rediss+sentinel://");
    check_refused("redis+cluster://203.0.113.5", "use rediss+cluster://");
    check_refused("redis://localhost?plaintext=no", "plaintext");
    check_refused("redis://localhost?ca=x", "begins with rediss");
    check_refused("redis+unix:///run/redis.sock?plaintext=yes", "plaintext");
}

/* What a name leads to is seen only when it is connected to. */
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

static const char *file_with(const char *bytes, size_t size) {
    static char path[64];
    strcpy(path, "/tmp/holdfast-open-test-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    close(fd);
    return path;
}

TEST(a_password_comes_from_a_file_a_variable_or_a_descriptor) {
    char url[256];
    const char *path = file_with("hunter2\r\n", 9);
    snprintf(url, sizeof(url), "redis://jo@localhost?password_file=%s", path);
    CHECK_EQ_STR(password_of(url), "hunter2");
    int fd = open(path, O_RDONLY);
    snprintf(url, sizeof(url), "redis://localhost?password_fd=%d", fd);
    CHECK_EQ_STR(password_of(url), "hunter2");
    close(fd);
    unlink(path);
    setenv("HOLDFAST_TEST_PASSWORD", " spaces stay ", 1);
    CHECK_EQ_STR(password_of("redis://localhost?password_env=HOLDFAST_TEST_PASSWORD"),
                 " spaces stay ");
    CHECK_EQ_STR(password_of("redis://jo:p%40ss@localhost"), "p@ss");
}

TEST(a_password_that_comes_in_pieces_is_read_whole) {
    int ends[2];
    char url[64];
    CHECK(pipe(ends) == 0);
    if (fork() == 0) {
        for (const char *c = "hunter2\n"; *c; c++)
            if (write(ends[1], c, 1) != 1)
                _exit(1);
        _exit(0);
    }
    close(ends[1]);
    snprintf(url, sizeof(url), "redis://localhost?password_fd=%d", ends[0]);
    CHECK_EQ_STR(password_of(url), "hunter2");
    close(ends[0]);
    wait(NULL);
}

TEST(a_password_file_that_is_not_secret_is_a_bad_url) {
    char url[128];
    const char *path = file_with("hunter2\n", 8);
    snprintf(url, sizeof(url), "redis://localhost?password_file=%s", path);
    CHECK(chmod(path, 0644) == 0);
    check_refused(url, "every user of this host can read it");
    CHECK(chmod(path, 0620) == 0);
    check_refused(url, "others can write to it");
    CHECK(chmod(path, 0440) == 0);
    CHECK_EQ_STR(password_of(url), "hunter2");
    if (geteuid() == 0) {
        CHECK(chown(path, 65534, 65534) == 0);
        check_refused(url, "belongs to another user");
    }
    unlink(path);
}

TEST(a_password_that_cannot_be_found_is_a_bad_url) {
    char url[256], long_one[2000];
    check_refused("redis://localhost?password_file=/does/not/exist",
                  "/does/not/exist (No such file");
    check_refused("redis://localhost?password_file=/", "directory");
    check_refused("redis://localhost?password_env=HOLDFAST_TEST_NOT_SET", "not set");
    check_refused("redis://localhost?password_fd=x", "not the number of a descriptor");
    check_refused("redis://localhost?password_fd=99999", "Bad file descriptor");
    check_refused("redis://jo@localhost", "\"jo\" has no password");
    memset(long_one, 'x', sizeof(long_one));
    const char *path = file_with(long_one, 1025);
    snprintf(url, sizeof(url), "redis://localhost?password_file=%s", path);
    check_refused(url, "longer than 1024");
    unlink(path);
    long_one[1999] = 0;
    setenv("HOLDFAST_TEST_PASSWORD", long_one, 1);
    check_refused("redis://localhost?password_env=HOLDFAST_TEST_PASSWORD", "longer than 1024");
}

TEST(the_longest_password_is_sent_whole) {
    char password[1025], url[128];
    memset(password, 'x', 1024);
    password[1024] = 0;
    const char *path = file_with(password, 1024);
    snprintf(url, sizeof(url), "redis://localhost?password_file=%s", path);
    CHECK_EQ_STR(password_of(url), password);
    unlink(path);
}

/* Who says where the password is means to use one: without it, everything would go on as nobody. */
TEST(a_place_for_a_password_that_has_none_is_a_bad_url) {
    char url[256];
    const char *path = file_with("\n", 1);
    snprintf(url, sizeof(url), "redis://localhost?password_file=%s", path);
    check_refused(url, "password");
    unlink(path);
    setenv("HOLDFAST_TEST_PASSWORD", "", 1);
    check_refused("redis://localhost?password_env=HOLDFAST_TEST_PASSWORD", "password");
}
