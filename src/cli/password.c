/* The password of the store. */
#include "cli/password.h"

#include "base/password.h"
#include "cli/text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int cannot(const char *where, const char *why) {
    char safe[300];
    fail_say("cannot read the password from %s (%s); to see where that was set: holdfast config "
             "show --origin",
             text_safe(safe, sizeof(safe), where), why);
    return EXIT_CONFIG;
}

/* ---- Reading ---- */

static int read_file(const char *path, struct password *password) {
    char whole[PATH_MAX], why[PASSWORD_WHY_SIZE];
    const char *home = getenv("HOME");
    if (strncmp(path, "~/", 2) == 0 && home) { /* no shell expands it in a configuration */
        snprintf(whole, sizeof(whole), "%s%s", home, path + 1);
        path = whole;
    }
    return password_read_file(path, password, why) < 0 ? cannot(path, why) : 0;
}

static int read_variable(const char *name, struct password *password) {
    char where[300], why[PASSWORD_WHY_SIZE], *value = getenv(name);
    snprintf(where, sizeof(where), "the variable %s", name);
    if (!value)
        return cannot(where, "it is not set; it is not passed on to commands that holdfast runs");
    int r = password_read_variable(name, password, why);
    explicit_bzero(value, strlen(value)); /* it can be read in /proc while it is there */
    unsetenv(name);
    return r < 0 ? cannot(where, why) : 0;
}

static int read_descriptor(int64_t fd, struct password *password) {
    char where[40], why[PASSWORD_WHY_SIZE];
    snprintf(where, sizeof(where), "descriptor %" PRId64, fd);
    if (fd < 0 || fd == STDOUT_FILENO || fd == STDERR_FILENO || fd > INT_MAX)
        return cannot(where, "it must be 0, or 3 and above");
    int r = password_read_descriptor((int)fd, password, why);
    int null = fd == 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
    if (null >= 0)
        dup2(null, 0); /* else the next file that is opened would be standard input */
    close(null >= 0 ? null : (int)fd);
    return r < 0 ? cannot(where, why) : 0;
}

static int read_number(const char *text, struct password *password) {
    char *end;
    int64_t fd = strtoll(text, &end, 10);
    return read_descriptor(end == text || *end ? -1 : fd, password);
}

/* ---- The URL ---- */

static char *put_escaped(char *to, const struct password *password) {
    for (const char *at = password->text; *at; at++) {
        unsigned char c = (unsigned char)*at;
        if (c < 0x80 && isalnum(c))
            *to++ = (char)c;
        else
            to += sprintf(to, "%%%02X", c);
    }
    *to = 0;
    return to;
}

/* Replaces [from, to) in cli->url with a text, the password and another text. */
static int put_in_place(struct cli *cli, const char *from, const char *to, const char *before,
                        const struct password *password, const char *after) {
    char *url =
        malloc(strlen(cli->url) + strlen(before) + 3 * strlen(password->text) + strlen(after) + 1);
    if (!url)
        return cannot("memory", strerror(ENOMEM));
    char *end = stpcpy(mempcpy(url, cli->url, (size_t)(from - cli->url)), before);
    strcpy(stpcpy(put_escaped(end, password), after), to);
    password_forget(cli);
    cli->url = cli->url_composed = url;
    return 0;
}

/* scheme://[user@]hosts becomes scheme://[user]:password@hosts. */
static int insert(struct cli *cli, const struct password *password) {
    const char *authority = url_authority(cli->url);
    const char *end = authority + strcspn(authority, "/?@");
    return *end == '@' ? put_in_place(cli, end, end + 1, ":", password, "@")
                       : put_in_place(cli, authority, authority, ":", password, "@");
}

/* For a URL that already has options. */
static int append(struct cli *cli, const struct password *password) {
    const char *end = cli->url + strlen(cli->url);
    return put_in_place(cli, end, end, "&sentinel_password=", password, "");
}

static int check_url(const char *url) {
    char safe[300];
    bool has_secret = url && url_has_secret(url);
    if (has_secret)
        fail_say("there are two passwords (one in the URL, one beside it); remove one");
    if (has_secret || (url && url_authority(url)))
        return has_secret ? EXIT_CONFIG : 0;
    fail_say("%s takes no password (it is a file or memory of this host); remove password-file, "
             "password-env or password-fd",
             text_safe(safe, sizeof(safe), url ? url : "the embedded store"));
    return EXIT_CONFIG;
}

/* ---- Every place ---- */

/* Reads the password that is given beside the URL, by an option or the configuration. */
static int add_beside(struct cli *cli, struct password *password) {
    int r = check_url(cli->url);
    if (!r)
        r = cli->password_file  ? read_file(cli->password_file, password)
            : cli->password_env ? read_variable(cli->password_env, password)
                                : read_descriptor(cli->password_fd, password);
    return r ? r : insert(cli, password);
}

/* Reads the passwords that the URL's own options name. A password file is left to the library: the
 * command that we start inherits nothing of it. */
static int add_named(struct cli *cli, const struct url *url, struct password *password) {
    const char *variable = url_option(url, "password_env"), *fd = url_option(url, "password_fd");
    int r = variable || fd ? check_url(cli->url) : 0;
    if (!r && (variable || fd)) {
        r = variable ? read_variable(variable, password) : read_number(fd, password);
        r = r ? r : insert(cli, password);
    }
    variable = url_option(url, "sentinel_password_env");
    fd = url_option(url, "sentinel_password_fd");
    if (!r && (variable || fd)) {
        r = variable ? read_variable(variable, password) : read_number(fd, password);
        r = r ? r : append(cli, password);
    }
    return r;
}

int password_add(struct cli *cli) {
    struct password password = {.text = ""};
    int count = !!cli->password_file + !!cli->password_env + (cli->password_fd >= 0);
    const char *why;
    struct url url;
    if (count > 1)
        return fail_usage("--password-file, --password-env and --password-fd exclude each other");
    int r = count ? add_beside(cli, &password) : 0;
    if (!r && cli->url &&
        url_parse(cli->url, &url, &why) == HF_OK) { /* else the library says why */
        r = add_named(cli, &url, &password);
        url_free(&url);
    }
    explicit_bzero(&password, sizeof(password));
    return r;
}

void password_forget(struct cli *cli) {
    if (cli->url_composed)
        explicit_bzero(cli->url_composed, strlen(cli->url_composed));
    free(cli->url_composed);
}

/* ---- The environment ---- */

int password_hide_url(char **ret_url) {
    char *url = getenv("HOLDFAST_URL");
    *ret_url = NULL;
    if (!url || !url_has_secret(url))
        return 0;
    char *safe = url_without_secrets(url);
    *ret_url = strdup(url);
    bool hidden = safe && *ret_url && setenv("HOLDFAST_URL", safe, 1) == 0;
    free(safe);
    if (!hidden)
        return cannot("HOLDFAST_URL", strerror(ENOMEM));
    explicit_bzero(url, strlen(url)); /* it can be read in /proc while it is there */
    return 0;
}
