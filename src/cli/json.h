/* Writes JSON: one value on one line. Keys are ours and plain; strings may be anything: control
 * characters are escaped, and bytes that are not UTF-8 become U+FFFD. A token is a string, because
 * many readers keep numbers as doubles. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
    FILE *file;
    bool follows; /* a comma is due before the next value */
};

/* `key` is NULL in arrays and at the top. */
void json_object(struct json *json, const char *key);
void json_array(struct json *json, const char *key);
void json_object_end(struct json *json);
void json_array_end(struct json *json);
void json_string(struct json *json, const char *key, const char *value); /* NULL: null */
void json_number(struct json *json, const char *key, int64_t value);
void json_bool(struct json *json, const char *key, bool value);
void json_token(struct json *json, const char *key, uint64_t token); /* 0: null */

/* The end of the line. */
void json_end(struct json *json);

#endif
