/* Writes JSON. */
#include "cli/json.h"

#include "cli/text.h"

#include <inttypes.h>
#include <string.h>

static void put_string(FILE *file, const char *text) {
    putc('"', file);
    while (*text) {
        size_t length = text_utf8_length(text);
        unsigned char c = (unsigned char)*text;
        if (!length)
            fputs("\\ufffd", file);
        else if (c < 0x20 || c == 0x7f)
            fprintf(file, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else
            fwrite(text, 1, length, file);
        text += length ? length : 1;
    }
    putc('"', file);
}

/* The comma and the key that go before a value. */
static void start(struct json *json, const char *key) {
    if (json->follows)
        putc(',', json->file);
    json->follows = true;
    if (key)
        fprintf(json->file, "\"%s\":", key);
}

static void open_with(struct json *json, const char *key, char bracket) {
    start(json, key);
    putc(bracket, json->file);
    json->follows = false;
}

static void close_with(struct json *json, char bracket) {
    putc(bracket, json->file);
    json->follows = true;
}

void json_object(struct json *json, const char *key) {
    open_with(json, key, '{');
}

void json_array(struct json *json, const char *key) {
    open_with(json, key, '[');
}

void json_object_end(struct json *json) {
    close_with(json, '}');
}

void json_array_end(struct json *json) {
    close_with(json, ']');
}

void json_string(struct json *json, const char *key, const char *value) {
    start(json, key);
    if (value)
        put_string(json->file, value);
    else
        fputs("null", json->file);
}

void json_number(struct json *json, const char *key, int64_t value) {
    start(json, key);
    fprintf(json->file, "%" PRId64, value);
}

void json_bool(struct json *json, const char *key, bool value) {
    start(json, key);
    fputs(value ? "true" : "false", json->file);
}

void json_token(struct json *json, const char *key, uint64_t token) {
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, token);
    json_string(json, key, token ? text : NULL);
}

void json_end(struct json *json) {
    putc('\n', json->file);
    json->follows = false;
}
