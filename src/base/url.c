/* The parser walks the text once, from left to right, and copies each part, decoded, into one block
 * of memory that also holds the arrays, so there is only one allocation to fail and to free. No
 * part grows when it is decoded, and each has a delimiter in the text, which makes room for its NUL
 * (the two bytes of "//" serve the last host and its path). Only a path without hosts has no
 * delimiter, so the text's length + 1 is enough.
 *
 * Redaction does not use the parser: it must also hide the password of a text that is not a valid
 * URL, especially of one that is invalid because of its password. */
#include "base/url.h"

#include <arpa/inet.h>
#include <assert.h>
#include <holdfast/holdfast.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

#define TEXT_OF(number) TEXT(number)
#define TEXT(number) #number

/* ---- Parsing ------------------------------------------------------------------------------ */

struct memory {
    struct url_host hosts[URL_HOSTS_MAX];
    struct url_option options[URL_OPTIONS_MAX];
    size_t size; /* of the strings, one of which may be a password */
    char strings[];
};

struct parser {
    struct url url;
    char *room, *room_end; /* what is left for strings */
    const char *why;
};

static int bad(struct parser *parser, const char *why) {
    parser->why = why;
    return HF_BAD_URL;
}

/* The first `byte` in [from, end), or `end`. */
static const char *find(const char *from, const char *end, char byte) {
    while (from < end && *from != byte)
        from++;
    return from;
}

static bool only_has(const char *from, const char *end, const char *bytes) {
    return strspn(from, bytes) >= (size_t)(end - from);
}

static int hex_digit(char c) {
    const char *digits = "0123456789abcdef0123456789ABCDEF";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)((found - digits) % 16) : -1;
}

/* Copies [from, end) into the URL's memory, decoded. */
static int keep(struct parser *parser, const char *from, const char *end, char **ret) {
    assert(end - from < parser->room_end - parser->room);
    char *to = parser->room;
    for (; from < end; from++) {
        if (*from != '%') {
            *to++ = *from;
            continue;
        }
        int high = end - from > 2 ? hex_digit(from[1]) : -1;
        int low = end - from > 2 ? hex_digit(from[2]) : -1;
        if (high < 0 || low < 0)
            return bad(parser,
                       "a '%' must be followed by two hexadecimal digits; write '%' itself as %25");
        if (!high && !low)
            return bad(parser, "%00 cannot be part of a URL");
        *to++ = (char)(high * 16 + low);
        from += 2;
    }
    *to++ = '\0';
    *ret = parser->room;
    parser->room = to;
    return HF_OK;
}

static int parse_scheme(struct parser *parser, const char *from, const char *end) {
    if (from == end || !only_has(from, from + 1, LOWER) || !only_has(from, end, LOWER DIGITS "+-."))
        return bad(parser, "the scheme must be lower-case letters, digits, '+', '-' and '.', and "
                           "begin with a letter");
    return keep(parser, from, end, &parser->url.scheme);
}

static int parse_user_info(struct parser *parser, const char *from, const char *end) {
    const char *colon = find(from, end, ':');
    if (from == end)
        return bad(parser, "the user info before '@' is empty");
    if (end - colon == 1)
        return bad(parser, "the password between ':' and '@' is empty");
    int r = colon > from ? keep(parser, from, colon, &parser->url.user) : HF_OK;
    if (r == HF_OK && colon < end)
        r = keep(parser, colon + 1, end, &parser->url.password);
    return r;
}

static int parse_port(struct parser *parser, const char *from, const char *end, uint16_t *ret) {
    unsigned long port = 0;
    if (end - from >= 1 && end - from <= 5 && only_has(from, end, DIGITS))
        port = strtoul(from, NULL, 10);
    if (port < 1 || port > UINT16_MAX)
        return bad(parser, "the port after a host's ':' must be a number from 1 to 65535");
    *ret = (uint16_t)port;
    return HF_OK;
}

static bool is_name(const char *from, const char *end) {
    return from < end && only_has(from, end, LOWER UPPER DIGITS "-._");
}

static bool is_ipv6(const char *from, const char *end) {
    char address[INET6_ADDRSTRLEN] = "";
    struct in6_addr unused;
    const char *zone = find(from, end, '%');
    if ((size_t)(zone - from) >= sizeof(address))
        return false;
    memcpy(address, from, (size_t)(zone - from));
    return inet_pton(AF_INET6, address, &unused) == 1 &&
           (zone == end || (!strncmp(zone, "%25", 3) && is_name(zone + 3, end)));
}

static int parse_host(struct parser *parser, const char *from, const char *end) {
    if (parser->url.host_count == URL_HOSTS_MAX)
        return bad(parser, "there are more than " TEXT_OF(URL_HOSTS_MAX) " hosts");
    struct url_host *host = &parser->url.hosts[parser->url.host_count++];
    bool bracketed = from < end && *from == '[';
    const char *name = bracketed ? from + 1 : from;
    const char *name_end = find(name, end, bracketed ? ']' : ':');
    const char *rest = bracketed && name_end < end ? name_end + 1 : name_end;
    if (name == name_end)
        return bad(parser, "a host is empty: hosts follow \"//\" or '@', separated by ','");
    if (!bracketed && !is_name(name, name_end))
        return bad(parser, "a host may have letters, digits, '-', '.' and '_'");
    if (bracketed && (rest == name_end || (rest < end && *rest != ':')))
        return bad(parser,
                   "an address in '[' must end with ']', and only ':' and a port may follow");
    if (bracketed && !is_ipv6(name, name_end))
        return bad(parser,
                   "the text between '[' and ']' is not an IPv6 address (with %25 and a zone)");
    int r = keep(parser, name, name_end, &host->host);
    if (r == HF_OK && rest < end)
        r = parse_port(parser, rest + 1, end, &host->port);
    return r;
}

/* What is between "//" and the path or the options. */
static int parse_authority(struct parser *parser, const char *from, const char *end) {
    int r = HF_OK;
    const char *at = find(from, end, '@');
    if (strchr(at < end ? at + 1 : end, '@'))
        return bad(parser,
                   "an '@' other than the one before the hosts must be written %40, and in a "
                   "password '/' and '?' as %2F and %3F");
    if (at < end) {
        r = parse_user_info(parser, from, at);
        from = at + 1;
    }
    if (from == end && *end == '/')
        return r; /* only a path, such as that of a socket */
    while (r == HF_OK) {
        const char *comma = find(from, end, ',');
        r = parse_host(parser, from, comma);
        if (comma == end)
            break;
        from = comma + 1;
    }
    return r;
}

static int parse_option(struct parser *parser, const char *from, const char *end) {
    const char *equals = find(from, end, '=');
    if (equals == from || equals == end)
        return bad(parser, "each option after '?' or '&' must be written key=value");
    if (!only_has(from, equals, LOWER DIGITS "-._"))
        return bad(parser, "an option's key may have lower-case letters, digits, '-', '.' and '_'");
    if (parser->url.option_count == URL_OPTIONS_MAX)
        return bad(parser, "there are more than " TEXT_OF(URL_OPTIONS_MAX) " options");
    struct url_option option;
    int r = keep(parser, from, equals, &option.key);
    if (r == HF_OK)
        r = keep(parser, equals + 1, end, &option.value);
    if (r == HF_OK && url_option(&parser->url, option.key))
        return bad(parser, "an option is given twice");
    if (r == HF_OK)
        parser->url.options[parser->url.option_count++] = option;
    return r;
}

static int parse_options(struct parser *parser, const char *from, const char *end) {
    for (;;) {
        const char *ampersand = find(from, end, '&');
        int r = parse_option(parser, from, ampersand);
        if (r != HF_OK || ampersand == end)
            return r;
        from = ampersand + 1;
    }
}

static int parse(struct parser *parser, const char *text, const char *end) {
    for (const char *c = text; c < end; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return bad(parser, "there is a control character (a line end?) in the URL");
    const char *from = find(text, end, ':');
    if (from == end)
        return bad(parser, "a URL begins with a scheme and ':', such as redis: or sqlite:");
    if (find(text, end, '#') < end)
        return bad(parser, "a '#' must be written %23");
    int r = parse_scheme(parser, text, from++);
    if (r == HF_OK && !strncmp(from, "//", 2)) {
        const char *authority = from + 2;
        from = authority + strcspn(authority, "/?");
        r = parse_authority(parser, authority, from);
    }
    const char *question = find(from, end, '?');
    if (r == HF_OK)
        r = keep(parser, from, question, &parser->url.path);
    if (r == HF_OK && question < end)
        r = parse_options(parser, question + 1, end);
    return r;
}

int url_parse(const char *text, struct url *ret, const char **ret_why) {
    size_t length = strnlen(text, URL_LENGTH_MAX + 1);
    if (length > URL_LENGTH_MAX) {
        *ret_why = "the URL is longer than " TEXT_OF(URL_LENGTH_MAX) " bytes";
        return HF_BAD_URL;
    }
    struct memory *memory = calloc(1, sizeof(*memory) + length + 1);
    if (!memory)
        return HF_NO_MEMORY;
    memory->size = length + 1;
    struct parser parser = {
        .url = {.hosts = memory->hosts, .options = memory->options, .memory = memory},
        .room = memory->strings,
        .room_end = memory->strings + length + 1,
    };
    int r = parse(&parser, text, text + length);
    if (r == HF_OK) {
        *ret = parser.url;
    } else {
        *ret_why = parser.why;
        url_free(&parser.url);
    }
    return r;
}

void url_free(struct url *url) {
    struct memory *memory = url->memory;
    if (memory)
        explicit_bzero(memory->strings, memory->size);
    free(memory);
    *url = (struct url){0};
}

const char *url_option(const struct url *url, const char *key) {
    for (size_t i = 0; i < url->option_count; i++)
        if (!strcmp(url->options[i].key, key))
            return url->options[i].value;
    return NULL;
}

/* ---- Redaction ---------------------------------------------------------------------------- */

/* What may precede an option, in a URL or in a text mistaken for one. */
#define SEPARATORS "?&;#"

static char *put(char *to, const char *from, const char *end) {
    static const char hex[] = "0123456789ABCDEF";
    for (; from < end; from++) {
        unsigned char byte = (unsigned char)*from;
        if (byte >= ' ' && byte < 0x7f) {
            *to++ = *from;
            continue;
        }
        *to++ = '%';
        *to++ = hex[byte >> 4];
        *to++ = hex[byte & 15];
    }
    return to;
}

/* Puts stars for [from, end), unless there is nothing in it to hide. */
static char *put_hidden(char *to, const char *from, const char *end) {
    return from < end ? stpcpy(to, "***") : to;
}

static bool ends_with(const char *from, const char *end, const char *word) {
    size_t length = strlen(word);
    return (size_t)(end - from) >= length && !strncasecmp(end - length, word, length);
}

/* Whether an option with this name is a secret, and not where one is kept (password_file). A key
 * with an escape in it is not valid, and might spell anything. */
static bool is_secret(const char *key, const char *end) {
    static const char *const secrets[] = {"pass", "pwd", "secret", "credential", "apikey"};
    static const char *const places[] = {"file", "env", "fd"};
    if (find(key, end, '%') < end || ends_with(key, end, "token"))
        return true;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        if (ends_with(key, end, places[i]))
            return false;
    for (const char *c = key; c < end; c++)
        for (size_t i = 0; i < sizeof(secrets) / sizeof(*secrets); i++)
            if (ends_with(key, c + 1, secrets[i]))
                return true;
    return false;
}

/* The end of a value. Text after an '&' that is not key=value is the rest of a password that should
 * have been escaped. */
static const char *value_end(const char *value, const char *end) {
    const char *ampersand = find(value, end, '&');
    while (ampersand < end) {
        const char *next = find(ampersand + 1, end, '&');
        if (find(ampersand + 1, next, '=') < next)
            break;
        ampersand = next;
    }
    return ampersand;
}

/* Puts [from, end) with the values of secret options hidden. */
static char *put_options(char *to, const char *from, const char *end) {
    while (from < end) {
        bool separates = strchr(SEPARATORS, *from);
        to = put(to, from, from + 1);
        from++;
        const char *key_end = separates ? from + strcspn(from, "=" SEPARATORS) : end;
        if (key_end >= end || *key_end != '=' || !is_secret(from, key_end))
            continue;
        const char *value = key_end + 1;
        to = put(to, from, value);
        from = value_end(value, end);
        to = put_hidden(to, value, from);
    }
    return to;
}

/* What follows a ':' in the hosts at `from` and is not a port. Without an '@' after it, it is a
 * password whose end was lost (a shell cuts the text at an unquoted '&'). NULL: nothing. */
static const char *password_without_end(const char *from) {
    const char *end = from + strcspn(from, "/?#");
    bool bracketed = false;
    for (; from < end; from++) {
        if (*from == '[' || *from == ']')
            bracketed = *from == '[';
        if (*from != ':' || bracketed)
            continue;
        const char *port_end = from + 1 + strspn(from + 1, DIGITS);
        if (port_end < end && *port_end != ',')
            return from + 1;
    }
    return NULL;
}

/* Finds the password in the user info, which begins at `from`: all from the first ':' to the last
 * '@'. If that '@' is not the first delimiter, nobody can say what follows it, so everything to the
 * end counts. If there is none: an empty part at the text's end. */
static void find_password(const char *from, const char **ret_from, const char **ret_end) {
    const char *end = from + strlen(from);
    const char *at = strrchr(from, '@');
    const char *colon = strchr(from, ':');
    *ret_from = *ret_end = end;
    if (at && colon && colon < at) {
        *ret_from = colon + 1;
        *ret_end = from + strcspn(from, "/?#@") == at ? at : end;
    } else {
        const char *password = password_without_end(at ? at + 1 : from);
        *ret_from = password ? password : end;
    }
}

/* Where the user info begins, if there is any. A text that is not a URL may be a URL without its
 * scheme (user:password@host). The names of files and of memory stores have no user info. */
static const char *user_info(const char *text) {
    const char *colon = text + strcspn(text, ":");
    if (!strncmp(colon, "://", 3))
        return colon + 3;
    const char *scheme = text + (strncmp(text, "quorum+", 7) ? 0 : 7);
    bool is_path = !strncmp(scheme, "sqlite:", 7) || !strncmp(scheme, "memory:", 7);
    return is_path ? text + strlen(text) : text;
}

char *url_redacted(const char *text) {
    size_t length = strlen(text);
    char *redacted = malloc(3 * length + 1); /* a byte becomes three, escaped or hidden */
    if (!redacted)
        return NULL;
    const char *from, *end;
    find_password(user_info(text), &from, &end);
    char *to = put_options(redacted, text, from);
    to = put_hidden(to, from, end);
    to = put_options(to, end, text + length);
    *to = '\0';
    return redacted;
}
