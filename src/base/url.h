/* The parser of store URLs. One grammar serves every store:
 *
 *    scheme:path[?options]                                 memory:jobs   sqlite:/var/lib/locks.db
 *    scheme://[user[:password]@]hosts[/path][?options]     redis://db:6379/0?prefix=app:
 *    scheme://[user[:password]@]/path[?options]            redis+unix:///run/redis.sock
 *
 * Hosts are separated by commas, each with an optional port; IPv6 addresses are in brackets, with a
 * zone after %25. Options are key=value, separated by '&'. User, password, path and values may use
 * %XX. The store decides what a path or an option means.
 *
 * An '@' ends the user info and nothing else: anywhere else after "//" it must be written %40. So a
 * password that was pasted unescaped is never mistaken for a host and a path, and then printed. */
#ifndef BASE_URL_H
#define BASE_URL_H

#include <stddef.h>
#include <stdint.h>

#define URL_LENGTH_MAX 4096
#define URL_HOSTS_MAX 64
#define URL_OPTIONS_MAX 64

struct url {
    char *scheme;   /* "redis+unix" */
    char *user;     /* NULL: none; never "" */
    char *password; /* NULL: none; never "" */
    struct url_host {
        char *host;    /* an IPv6 address without its brackets */
        uint16_t port; /* 0: none given */
    } * hosts;
    size_t host_count;
    char *path; /* as written, with its leading '/' if it has one; "" if there is none */
    struct url_option {
        char *key, *value;
    } * options;
    size_t option_count;
    void *memory; /* holds all of the above */
};

/* Parses `text`; free the result with url_free. On failure HF_NO_MEMORY, or HF_BAD_URL with a
 * static sentence that says what is wrong and where, without quoting the URL. */
int url_parse(const char *text, struct url *ret, const char **ret_why);

/* Frees the result of url_parse; accepts a zeroed url. */
void url_free(struct url *url);

/* The value of an option; NULL when it was not given. */
const char *url_option(const struct url *url, const char *key);

/* The URL for people to see, to be freed: the password and the values of options that look like
 * secrets (password=, but not password_file=) are "***", bytes that are not printable ASCII are
 * %XX. Accepts any text: if it is not a valid URL, it hides too much rather than too little. NULL:
 * no memory. */
char *url_redacted(const char *text);

#endif
