/* Numbers and switches in the URL of a store, with the errors for invalid ones. Each function
 * returns HF_OK, or HF_BAD_URL with malloc'd particulars, and does not touch its output if the
 * option is missing. */
#ifndef NET_OPTIONS_H
#define NET_OPTIONS_H

#include "base/url.h"

#include <stdbool.h>

/* A decimal number without a sign. `what` names it in the error. */
int net_parse_number(const char *text, const char *what, uint64_t least, uint64_t most,
                     uint64_t *number, char **ret_text);

/* The same for an option. */
int net_option_number(const struct url *url, const char *key, uint64_t least, uint64_t most,
                      uint64_t *number, char **ret_text);

/* A time in milliseconds, which is at least 1; the output is in microseconds. */
int net_option_ms(const struct url *url, const char *key, uint64_t most_ms, int64_t *us,
                  char **ret_text);

/* "yes", which is the only value. */
int net_option_yes(const struct url *url, const char *key, bool *yes, char **ret_text);

#endif
