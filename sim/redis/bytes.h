/* Bytes, as the model handles them: slices, which belong to somebody else, and texts, which grow;
 * how Redis reads and writes numbers; and memory allocation, which a test may expect to succeed. */
#ifndef MODEL_BYTES_H
#define MODEL_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Like realloc; aborts if that fails. */
void *bytes_allocate(void *old, size_t size);

struct slice {
    const char *bytes;
    size_t size;
};

struct slice slice_of(const char *text);
/* Like memcmp: the order that Redis has for members, and the model for keys. */
int slice_compare(struct slice a, struct slice b);
/* Whether it is this word, ignoring case: as Redis compares commands and options. */
bool slice_is(struct slice slice, const char *word);
/* By the rules of SCAN: * ? [a-z] [^a], and \ before a character that stands for itself. */
bool slice_matches(struct slice slice, struct slice pattern);
/* A copy that ends with a NUL. slice_free frees it. */
struct slice slice_copy(struct slice slice);
void slice_free(struct slice copy);

/* As strict as Redis: no blanks, no leading zeros, nothing after the number. */
bool slice_to_integer(struct slice slice, int64_t *ret_number);
bool slice_to_double(struct slice slice, double *ret_number);

/* A NUL follows what was added; it is not counted. */
struct text {
    char *bytes;
    size_t size, room;
};

void text_add(struct text *text, const void *bytes, size_t size);
void text_format(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_free(struct text *text);

/* Replies, in RESP2, as bytes at the end of a text. An error is what follows the '-'. */
void answer_status(struct text *text, const char *status);
void answer_error(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void answer_integer(struct text *text, int64_t number);
void answer_double(struct text *text, double number);
void answer_bulk(struct text *text, struct slice bytes);
void answer_nil(struct text *text);
void answer_array(struct text *text, size_t count); /* whose items follow */

#endif
