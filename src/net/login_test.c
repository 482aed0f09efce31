/* Logins: the user and the password of a URL, wherever it keeps the password. */
#include "net/login.h"

#include "check.h"

#include <fcntl.h>
#include <holdfast/holdfast.h>
#include <sys/stat.h>

static struct net_login login;
static char *text;

static int read_from(const char *whole, const char *prefix) {
    struct url url;
    const char *why;
    CHECK_EQ_INT(url_parse(whole, &url, &why), HF_OK);
    int r = net_login_read(&login, &url, prefix, &text);
    url_free(&url);
    return r;
}

static const char *password_of(const char *url) {
    static char password[2048];
    CHECK_EQ_INT(read_from(url, ""), HF_OK);
    snprintf(password, sizeof(password), "%s", login.password);
    net_login_clear(&login);
    return password;
}

static void check_refused_with(const char *url, const char *prefix, const char *words) {
    int r = read_from(url, prefix);
    if (r != HF_BAD_URL)
        test_fail(__FILE__, __LINE__, "%s is %s", url, r ? hf_error_name(r) : "accepted");
    if (!text || !strstr(text, words))
        test_fail(__FILE__, __LINE__, "%s: \"%s\" does not say \"%s\"", url, text ? text : "",
                  words);
    CHECK(!strstr(text, "hunter2"));
    free(text);
    net_login_clear(&login);
}

static void check_refused(const char *url, const char *words) {
    check_refused_with(url, "", words);
}

static const char *file_with(const char *bytes, size_t size) {
    static char path[64];
    strcpy(path, "/tmp/holdfast-login-test-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    close(fd);
    return path;
}

TEST(without_a_user_and_a_password_there_is_no_login) {
    CHECK_EQ_INT(read_from("any://host", ""), HF_OK);
    CHECK(!login.user && !login.password);
}

TEST(user_and_password_are_those_of_the_url) {
    CHECK_EQ_INT(read_from("any://jo:p%40ss@host", ""), HF_OK);
    CHECK_EQ_STR(login.user, "jo");
    CHECK_EQ_STR(login.password, "p@ss");
    net_login_clear(&login);
    CHECK(!login.user && !login.password);
}

TEST(another_login_is_read_by_the_prefix_of_its_options) {
    setenv("HOLDFAST_TEST_PASSWORD", "of the watcher", 1);
    CHECK_EQ_INT(read_from("any://jo:hunter2@host?watcher_user=eve&watcher_password_env="
                           "HOLDFAST_TEST_PASSWORD&password_env=HOLDFAST_TEST_NOT_SET",
                           "watcher_"),
                 HF_OK);
    CHECK_EQ_STR(login.user, "eve");
    CHECK_EQ_STR(login.password, "of the watcher");
    net_login_clear(&login);
    CHECK_EQ_INT(read_from("any://jo:hunter2@host?watcher_password=pw", "watcher_"), HF_OK);
    CHECK(!login.user);
    CHECK_EQ_STR(login.password, "pw");
    net_login_clear(&login);
}

TEST(a_user_without_a_password_is_refused) {
    check_refused("any://jo@host", "the user \"jo\" has no password; it may be in a file "
                                   "(password_file=)");
    check_refused_with("any://jo:hunter2@host?watcher_user=eve", "watcher_",
                       "the user \"eve\" has no password; it may be in a file "
                       "(watcher_password_file=)");
}

TEST(a_password_comes_from_a_file_a_variable_or_a_descriptor) {
    char url[256];
    const char *path = file_with("hunter2\r\n", 9);
    snprintf(url, sizeof(url), "any://jo@host?password_file=%s", path);
    CHECK_EQ_STR(password_of(url), "hunter2");
    int fd = open(path, O_RDONLY);
    snprintf(url, sizeof(url), "any://host?password_fd=%d", fd);
    CHECK_EQ_STR(password_of(url), "hunter2");
    close(fd);
    unlink(path);
    setenv("HOLDFAST_TEST_PASSWORD", " spaces stay ", 1);
    CHECK_EQ_STR(password_of("any://host?password_env=HOLDFAST_TEST_PASSWORD"), " spaces stay ");
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
    snprintf(url, sizeof(url), "any://host?password_fd=%d", ends[0]);
    CHECK_EQ_STR(password_of(url), "hunter2");
    close(ends[0]);
    wait(NULL);
}

TEST(a_password_file_that_is_not_secret_is_a_bad_url) {
    char url[128];
    const char *path = file_with("hunter2\n", 8);
    snprintf(url, sizeof(url), "any://host?password_file=%s", path);
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
    check_refused("any://host?password_file=/does/not/exist", "/does/not/exist (No such file");
    check_refused("any://host?password_file=/", "directory");
    check_refused("any://host?password_env=HOLDFAST_TEST_NOT_SET", "not set");
    check_refused("any://host?password_fd=x", "not the number of a descriptor");
    check_refused("any://host?password_fd=99999", "Bad file descriptor");
    memset(long_one, 'x', sizeof(long_one));
    const char *path = file_with(long_one, 1025);
    snprintf(url, sizeof(url), "any://host?password_file=%s", path);
    check_refused(url, "longer than 1024");
    unlink(path);
    long_one[1999] = 0;
    setenv("HOLDFAST_TEST_PASSWORD", long_one, 1);
    check_refused("any://host?password_env=HOLDFAST_TEST_PASSWORD", "longer than 1024");
}

TEST(the_longest_password_is_read_whole) {
    char password[1025], url[128];
    memset(password, 'x', 1024);
    password[1024] = 0;
    const char *path = file_with(password, 1024);
    snprintf(url, sizeof(url), "any://host?password_file=%s", path);
    CHECK_EQ_STR(password_of(url), password);
    unlink(path);
}

/* A URL that names a source means to use a password. Without one, the client would log in as
 * nobody. */
TEST(an_empty_source_is_a_bad_url) {
    char url[256];
    const char *path = file_with("\n", 1);
    snprintf(url, sizeof(url), "any://host?password_file=%s", path);
    check_refused(url, "password");
    unlink(path);
    setenv("HOLDFAST_TEST_PASSWORD", "", 1);
    check_refused("any://host?password_env=HOLDFAST_TEST_PASSWORD", "password");
}
