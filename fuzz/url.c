/* Arbitrary URLs: what is parsed keeps its promises and parses the same again, and what is shown to
 * people is printable and contains no password. */
#include "base/url.h"

#include <assert.h>
#include <holdfast/holdfast.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char marked[] = "Hunter-2-Secret";

static void check_shape(const struct url *url) {
    assert(url->scheme && *url->scheme && url->path);
    assert(!url->user || *url->user);
    assert(!url->password || *url->password);
    assert(url->host_count <= URL_HOSTS_MAX && url->option_count <= URL_OPTIONS_MAX);
    for (size_t i = 0; i < url->host_count; i++)
        assert(*url->hosts[i].host && !strpbrk(url->hosts[i].host, "/@?#,[] "));
    for (size_t i = 0; i < url->option_count; i++)
        assert(url_option(url, url->options[i].key) == url->options[i].value);
}

static void check_same_text(const char *a, const char *b) {
    assert(!a == !b && (!a || !strcmp(a, b)));
}

static void check_same(const struct url *a, const struct url *b) {
    check_same_text(a->scheme, b->scheme);
    check_same_text(a->user, b->user);
    check_same_text(a->password, b->password);
    check_same_text(a->path, b->path);
    assert(a->host_count == b->host_count && a->option_count == b->option_count);
    for (size_t i = 0; i < a->host_count; i++) {
        check_same_text(a->hosts[i].host, b->hosts[i].host);
        assert(a->hosts[i].port == b->hosts[i].port);
    }
    for (size_t i = 0; i < a->option_count; i++) {
        check_same_text(a->options[i].key, b->options[i].key);
        check_same_text(a->options[i].value, b->options[i].value);
    }
}

static char *redacted(const char *text) {
    char *shown = url_redacted(text);
    assert(shown);
    for (const char *c = shown; *c; c++)
        assert(*c >= ' ' && *c <= '~');
    return shown;
}

/* A secret that stands literally in its place, and nowhere else in the text, must not be shown. If
 * it is written with escapes, the same text elsewhere is something else. */
static void check_hidden(const char *text, const char *place, const char *secret,
                         const char *shown) {
    bool is_there = place && secret && strncmp(place, secret, strlen(secret)) == 0;
    if (is_there && strlen(secret) >= 4 && strstr(text, secret) == place &&
        !strstr(place + 1, secret) && !strchr(secret, '*'))
        assert(!strstr(shown, secret));
}

/* What follows the first of these words and, after it, the second; NULL: one is missing. */
static const char *behind(const char *text, const char *first, const char *second) {
    const char *found = strstr(text, first);
    found = found ? strstr(found + strlen(first), second) : NULL;
    return found ? found + strlen(second) : NULL;
}

static void check_parsed(const char *text) {
    struct url url, again;
    const char *why = NULL;
    int r = url_parse(text, &url, &why);
    assert(r == HF_OK || r == HF_BAD_URL);
    assert(!why == (r == HF_OK));
    if (r != HF_OK)
        return;
    check_shape(&url);
    assert(url_parse(text, &again, &why) == HF_OK);
    check_same(&url, &again);
    char *shown = redacted(text);
    check_hidden(text, behind(text, "://", ":"), url.password, shown);
    check_hidden(text, behind(text, "?", "password="), url_option(&url, "password"), shown);
    /* Not too much is hidden: the host is shown, unless there seem to be options before it. */
    if (url.host_count && !(url.user && strpbrk(url.user, "&;")))
        assert(strstr(shown, url.hosts[0].host) || strchr(url.hosts[0].host, '%'));
    free(shown);
    url_free(&again);
    url_free(&url);
}

static void check_marked(const char *before, const char *text, const char *between,
                         const char *behind, const char *after) {
    char whole[2 * URL_LENGTH_MAX + 64];
    snprintf(whole, sizeof(whole), "%s%s%s%s%s%s", before, text, between, marked, behind, after);
    char *shown = redacted(whole);
    assert(!strstr(shown, marked));
    free(shown);
}

/* A password with any text around it, in the places where one is, is hidden. */
static void check_garbage(const char *text) {
    if (strlen(text) > URL_LENGTH_MAX || strstr(text, marked))
        return;
    check_marked("redis://jo:", text, "", text, "@db/0");
    check_marked("redis://", text, ":", text, "@db");
    check_marked("", text, "?password=", "", "");
    if (!strchr(text, '&')) /* which might begin another option */
        check_marked("redis://jo:pw@db?password=", text, "", "", "");
    if (strncmp(text, "//", 2) != 0) /* then it would be the user of scheme jo */
        check_marked("jo:", text, "", text, "@db");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = strndup((const char *)data, size);
    check_parsed(text);
    check_garbage(text);
    free(redacted(text));
    free(text);
    return 0;
}
