/* Opening the store, and URLs without what must not be shown. */
#include "base/url.h"
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

bool url_has_secret(const char *url) {
    char *shown = url_redacted(url);
    const char *stars = shown ? strstr(shown, "***") : url;
    bool has = stars && !strstr(url, "***"); /* who writes stars has nothing to hide */
    free(shown);
    return has;
}

char *url_without_secrets(const char *url, const char *instead) {
    char *shown = url_redacted(url), *stars = shown;
    if (!url_has_secret(url))
        return shown;
    while (stars && (stars = strstr(stars, "***"))) {
        memcpy(stars, instead, strlen(instead));
        memmove(stars + strlen(instead), stars + 3, strlen(stars + 3) + 1);
        stars += strlen(instead);
    }
    return shown;
}
