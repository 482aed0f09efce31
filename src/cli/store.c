/* Opening the store, and URLs without what must not be shown. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int store_open(const struct cli *cli, const hf_client_options *options, hf_client **ret_client) {
    int r = hf_client_open(cli->url, options, ret_client);
    if (r < 0) {
        char *shown = url_without_secrets(cli->url ? cli->url : "the default store", "***");
        char what[300];
        snprintf(what, sizeof(what), "cannot open %s", shown ? shown : "the store");
        fail_error(cli, r, what);
        free(shown);
    }
    return r;
}

/* The password in scheme://user:PASSWORD@…: from behind the colon to the '@'. Every '@' counts but
 * those of the options, so that a password pasted unescaped is hidden too. */
static bool find_password(const char *url, const char **ret_start, const char **ret_end) {
    const char *user = strstr(url, "://");
    if (!user)
        return false;
    user += 3;
    const char *end = user + strcspn(user, "?"), *at = NULL;
    for (const char *c = user; c < end; c++) {
        if (*c == '@')
            at = c;
    }
    const char *colon = at ? memchr(user, ':', (size_t)(at - user)) : NULL;
    if (!colon || colon + 1 == at)
        return false;
    *ret_start = colon + 1;
    *ret_end = at;
    return true;
}

static bool is_secret_key(const char *key, size_t length) {
    static const char *const words[] = {"password", "passwd", "pass",  "pwd",
                                        "secret",   "token",  "apikey"};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if (strlen(words[i]) == length && strncasecmp(key, words[i], length) == 0)
            return true;
    }
    return false;
}

/* The next option at or behind `from` that is a secret: its value. */
static bool find_secret_option(const char *from, const char **ret_start, const char **ret_end) {
    const char *key = from;
    while (*key) {
        size_t all = strcspn(key, "&"), length = strcspn(key, "=&");
        if (length < all && length + 1 < all && is_secret_key(key, length)) {
            *ret_start = key + length + 1;
            *ret_end = key + all;
            return true;
        }
        key += all + (key[all] == '&');
    }
    return false;
}

bool url_has_secret(const char *url) {
    const char *start, *end, *query = strchr(url, '?');
    return find_password(url, &start, &end) ||
           (query && find_secret_option(query + 1, &start, &end));
}

/* Copies what is between `*from` and `start`, then `instead`; goes on at `end`. */
static char *replace(char *to, const char **from, const char *start, const char *end,
                     const char *instead) {
    to = mempcpy(to, *from, (size_t)(start - *from));
    *from = end;
    return stpcpy(to, instead);
}

char *url_without_secrets(const char *url, const char *instead) {
    size_t secrets_max = strlen(url) / 2 + 1;
    char *ret = malloc(strlen(url) + secrets_max * strlen(instead) + 1), *to = ret;
    const char *from = url, *start, *end;
    if (!ret)
        return NULL;
    if (find_password(url, &start, &end))
        to = replace(to, &from, start, end, instead);
    const char *query = strchr(from, '?');
    while (query && find_secret_option(query + 1, &start, &end)) {
        to = replace(to, &from, start, end, instead);
        query = *end ? end : NULL;
    }
    strcpy(to, from);
    return ret;
}
