/* Store URLs, taken apart. One grammar serves every store:
 *
 *    scheme:path[?options]                                 memory:jobs   sqlite:/var/lib/locks.db
 *    scheme://[user[:password]@]hosts[/path][?options]     redis://db:6379/0?prefix=app:
 *    scheme://[user[:password]@]/path[?options]            redis+unix:///run/redis.sock
 *
 * Hosts are separated by commas, each with a port of its own if it wants one; IPv6 addresses stand
 * in brackets, a zone after %25. Options are key=value, separated by '&'. User, password, path
 * and values may use %XX. What a scheme, a path or an option means is for its store to say.
 *
 * An '@' ends the user info and nothing else: elsewhere behind "//" it is written %40. Thus no
 * password that was pasted unescaped is taken for a host and a path, and then printed. */
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
    char *path; /* as it stands, with its leading '/' if it has one; "" when there is none */
    struct url_option {
        char *key, *value;
    } * options;
    size_t option_count;
    void *memory; /* in which all of the above is */
};

/* Takes `text` apart; the result is for url_free. HF_BAD_URL with a sentence (static, and without
 * a word of the URL in it) that says what is wrong and where, or HF_NO_MEMORY. */
int url_parse(const char *text, struct url *ret, const char **ret_why);

/* Frees what url_parse made; a zeroed url too. */
void url_free(struct url *url);

/* The value of an option; NULL when it was not given. */
const char *url_option(const struct url *url, const char *key);

/* The URL for people to see, to be freed: the password and the values of options that look like
 * secrets (password=, but not password_file=) are "***", bytes that are not printable ASCII are
 * %XX. Takes any text: where that is no valid URL, it rather hides too much. NULL: no memory. */
char *url_redacted(const char *text);

#endif
