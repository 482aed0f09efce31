/* Opening the store, and URLs without what must not be shown. */
#include "base/url.h"
#include "cli/cli.h"
#include "cli/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int store_open_silently(const struct cli *cli, const hf_client_options *options,
                        hf_client **ret_client) {
    hf_client_options own = HF_CLIENT_OPTIONS_INIT;
    if (options)
        own = *options;
    own.max_lease_ms = cli->max_lease_ms;
    return hf_client_open(cli->url, &own, ret_client);
}

int store_open(const struct cli *cli, const hf_client_options *options, hf_client **ret_client) {
    int r = store_open_silently(cli, options, ret_client);
    if (r < 0) {
        char *shown = cli->url_given ? url_redacted(cli->url_given) : NULL;
        char what[300];
        snprintf(what, sizeof(what), "cannot open %s", shown ? shown : "the default store");
        fail_error(cli, r, what);
        free(shown);
    }
    return r;
}

char *store_shown(const struct cli *cli, char *ret, size_t size) {
    char *shown = cli->url_given ? url_redacted(cli->url_given) : NULL;
    text_safe(ret, size, shown ? shown : "the default store");
    free(shown);
    return ret;
}

/* Whether `shown` is all of `url`, apart from unprintable bytes, which are %XX. */
static bool is_whole(const char *url, const char *shown) {
    for (; *url; url++) {
        bool plain = *url >= ' ' && *url <= '~';
        if (plain ? *shown != *url : *shown != '%')
            return false;
        shown += plain ? 1 : 3;
    }
    return !*shown;
}

bool url_has_secret(const char *url) {
    char *shown = url_redacted(url);
    bool has = !shown || !is_whole(url, shown);
    free(shown);
    return has;
}

const char *url_authority(const char *url) {
    const char *colon = url + strcspn(url, ":");
    return strncmp(colon, "://", 3) == 0 ? colon + 3 : NULL;
}

/* "user:***@" becomes "user@", and ":***@" nothing. The values of options become empty. */
char *url_without_secrets(const char *url) {
    char *ret = url_redacted(url);
    const char *authority = ret ? url_authority(ret) : NULL;
    char *from = ret && url_has_secret(url) ? strstr(ret, "***") : NULL;
    while (from) {
        const char *to = from + 3;
        if (authority && from > authority && from[-1] == ':' && *to == '@') {
            from--;
            to += from == authority;
        }
        memmove(from, to, strlen(to) + 1);
        from = strstr(from, "***");
    }
    return ret;
}
