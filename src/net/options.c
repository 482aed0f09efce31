#include "net/options.h"

#include "base/error.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int net_parse_number(const char *text, const char *what, uint64_t least, uint64_t most,
                     uint64_t *number, char **ret_text) {
    char *end = NULL;
    errno = 0;
    unsigned long long parsed = isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : 0;
    if (!end || *end || errno || parsed < least || parsed > most) {
        *ret_text =
            error_format("%s is not a number from %" PRIu64 " to %" PRIu64, what, least, most);
        return HF_BAD_URL;
    }
    *number = parsed;
    return HF_OK;
}

int net_option_number(const struct url *url, const char *key, uint64_t least, uint64_t most,
                      uint64_t *number, char **ret_text) {
    const char *text = url_option(url, key);
    return text ? net_parse_number(text, key, least, most, number, ret_text) : HF_OK;
}

int net_option_ms(const struct url *url, const char *key, uint64_t most_ms, int64_t *us,
                  char **ret_text) {
    uint64_t ms = 0;
    int r = net_option_number(url, key, 1, most_ms, &ms, ret_text);
    if (r == HF_OK && ms)
        *us = (int64_t)ms * 1000;
    return r;
}

int net_option_yes(const struct url *url, const char *key, bool *yes, char **ret_text) {
    const char *text = url_option(url, key);
    if (text && strcmp(text, "yes") != 0) {
        *ret_text = error_format("%s is \"%s\"; it can only be \"yes\"", key, text);
        return HF_BAD_URL;
    }
    if (text)
        *yes = true;
    return HF_OK;
}
