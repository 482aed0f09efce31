/* The password of the store. */
#include "cli/password.h"

#include "cli/text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PASSWORD_MAX = 1024 };

struct password {
    char bytes[PASSWORD_MAX + 3]; /* with a line end, and one more that is too much */
    size_t size;
};

static int cannot(const char *where, const char *why) {
    char safe[300];
    fail_say("cannot take the password from %s (%s); where that was said: holdfast config show "
             "--origin",
             text_safe(safe, sizeof(safe), where), why);
    return EXIT_CONFIG;
}

/* ---- Reading ---- */

static int read_descriptor(struct password *password, int fd, const char *where) {
    while (password->size < sizeof(password->bytes)) {
        ssize_t count =
            read(fd, password->bytes + password->size, sizeof(password->bytes) - password->size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return cannot(where, strerror(errno));
        if (count == 0)
            break;
        password->size += (size_t)count;
    }
    return 0;
}

static int read_file(struct password *password, const char *path) {
    char whole[PATH_MAX];
    const char *home = getenv("HOME");
    if (strncmp(path, "~/", 2) == 0 && home) { /* in a configuration no shell has done that */
        snprintf(whole, sizeof(whole), "%s%s", home, path + 1);
        path = whole;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return cannot(path, strerror(errno));
    int r = read_descriptor(password, fd, path);
    close(fd);
    return r;
}

static int read_variable(struct password *password, const char *name, const char *where) {
    char *value = getenv(name);
    if (!value)
        return cannot(where, "it is not set; it is not passed on to commands that holdfast runs");
    size_t size = strlen(value);
    password->size = size < sizeof(password->bytes) ? size : sizeof(password->bytes);
    memcpy(password->bytes, value, password->size);
    explicit_bzero(value, size); /* it can be read in /proc while it is there */
    unsetenv(name);
    return 0;
}

static int read_number(struct password *password, int64_t fd, const char *where) {
    if (fd == STDOUT_FILENO || fd == STDERR_FILENO || fd > INT_MAX)
        return cannot(where, "it must be 0, or 3 and above");
    int r = read_descriptor(password, (int)fd, where);
    int null = fd == 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
    if (null >= 0)
        dup2(null, 0); /* else the next file that is opened would be standard input */
    close(null >= 0 ? null : (int)fd);
    return r;
}

static int check(struct password *password, const char *where) {
    size_t size = password->size;
    if (size && password->bytes[size - 1] == '\n')
        size--;
    if (size < password->size && size && password->bytes[size - 1] == '\r')
        size--;
    password->size = size;
    if (size == 0)
        return cannot(where, "there is none");
    if (size > PASSWORD_MAX)
        return cannot(where, "it is longer than 1024 bytes");
    if (memchr(password->bytes, '\n', size) || memchr(password->bytes, 0, size))
        return cannot(where, "there is more than one line");
    return 0;
}

static int read_password(const struct cli *cli, struct password *password) {
    char where[300];
    int r;
    if (cli->password_file) {
        snprintf(where, sizeof(where), "%s", cli->password_file);
        r = read_file(password, cli->password_file);
    } else if (cli->password_env) {
        snprintf(where, sizeof(where), "the variable %s", cli->password_env);
        r = read_variable(password, cli->password_env, where);
    } else {
        snprintf(where, sizeof(where), "descriptor %lld", (long long)cli->password_fd);
        r = read_number(password, cli->password_fd, where);
    }
    return r ? r : check(password, where);
}

/* ---- The URL ---- */

static char *put_escaped(char *to, const struct password *password) {
    for (size_t i = 0; i < password->size; i++) {
        unsigned char c = (unsigned char)password->bytes[i];
        if (c < 0x80 && isalnum(c))
            *to++ = (char)c;
        else
            to += sprintf(to, "%%%02X", c);
    }
    return to;
}

/* scheme://[user@]hosts becomes scheme://[user]:password@hosts. NULL: no memory. */
static char *insert(const char *url, const struct password *password) {
    const char *authority = strstr(url, "://") + 3;
    size_t length = strcspn(authority, "/?@");
    const char *user_end = authority[length] == '@' ? authority + length : authority;
    char *ret = malloc(strlen(url) + 3 * password->size + 3), *to = ret;
    if (!ret)
        return NULL;
    to = mempcpy(to, url, (size_t)(user_end - url));
    *to++ = ':';
    to = put_escaped(to, password);
    *to++ = '@';
    strcpy(to, *user_end == '@' ? user_end + 1 : user_end);
    return ret;
}

static int check_url(const char *url) {
    char safe[300];
    bool has_secret = url && url_has_secret(url);
    if (has_secret)
        fail_say("there are two passwords (one in the URL, one beside it); take one away");
    if (has_secret || (url && strstr(url, "://")))
        return has_secret ? EXIT_CONFIG : 0;
    fail_say("%s takes no password (it is a file or memory of this host); take password-file, "
             "password-env or password-fd away",
             text_safe(safe, sizeof(safe), url ? url : "the embedded store"));
    return EXIT_CONFIG;
}

int password_add(struct cli *cli) {
    struct password password = {.size = 0};
    int count = !!cli->password_file + !!cli->password_env + (cli->password_fd >= 0);
    if (count > 1)
        return fail_usage("--password-file, --password-env and --password-fd exclude each other");
    int r = check_url(cli->url);
    if (!r)
        r = read_password(cli, &password);
    if (!r) {
        cli->url_composed = insert(cli->url, &password);
        if (cli->url_composed)
            cli->url = cli->url_composed;
        else
            r = cannot("memory", strerror(ENOMEM));
    }
    explicit_bzero(&password, sizeof(password));
    return r;
}
