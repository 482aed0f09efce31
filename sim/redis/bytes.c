#include "sim/redis/bytes.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void *bytes_allocate(void *old, size_t size) {
    void *block = realloc(old, size ? size : 1);
    if (!block)
        abort();
    return block;
}

/* ---- Slices ---- */

struct slice slice_of(const char *text) {
    return (struct slice){text, strlen(text)};
}

int slice_compare(struct slice a, struct slice b) {
    size_t size = a.size < b.size ? a.size : b.size;
    int order = size ? memcmp(a.bytes, b.bytes, size) : 0;
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

bool slice_is(struct slice slice, const char *word) {
    return strlen(word) == slice.size && strncasecmp(slice.bytes, word, slice.size) == 0;
}

struct slice slice_copy(struct slice slice) {
    char *copy = bytes_allocate(NULL, slice.size + 1);
    if (slice.size)
        memcpy(copy, slice.bytes, slice.size);
    copy[slice.size] = 0;
    return (struct slice){copy, slice.size};
}

void slice_free(struct slice copy) {
    free((void *)(uintptr_t)copy.bytes);
}

/* ---- Patterns ---- */

static struct slice without_first(struct slice slice, size_t count) {
    return (struct slice){slice.bytes + count, slice.size - count};
}

/* Matches c with the class at the start of the pattern, after its '['. Returns the length of
 * the class. A class without an end extends to the end of the pattern. */
static size_t match_class(unsigned char c, struct slice pattern, bool *ret_matches) {
    const unsigned char *p = (const unsigned char *)pattern.bytes;
    size_t i = 0, end = pattern.size;
    bool negated = end && p[0] == '^', found = false;
    for (i = negated; i < end && p[i] != ']'; i++) {
        if (p[i] == '\\' && i + 1 < end) {
            found |= p[++i] == c;
        } else if (i + 2 < end && p[i + 1] == '-') {
            unsigned char low = p[i] < p[i + 2] ? p[i] : p[i + 2];
            unsigned char high = p[i] < p[i + 2] ? p[i + 2] : p[i];
            found |= c >= low && c <= high;
            i += 2;
        } else {
            found |= p[i] == c;
        }
    }
    *ret_matches = found != negated;
    return i < end ? i + 1 : end;
}

bool slice_matches(struct slice slice, struct slice pattern) {
    for (; pattern.size; slice = without_first(slice, 1)) {
        char p = pattern.bytes[0];
        pattern = without_first(pattern, 1);
        if (p == '*') {
            for (size_t skipped = 0; skipped <= slice.size; skipped++)
                if (slice_matches(without_first(slice, skipped), pattern))
                    return true;
            return false;
        }
        if (!slice.size)
            return false;
        bool matches = p == '?';
        if (p == '[') {
            size_t size = match_class((unsigned char)slice.bytes[0], pattern, &matches);
            pattern = without_first(pattern, size);
        } else if (!matches) {
            if (p == '\\' && pattern.size) {
                p = pattern.bytes[0];
                pattern = without_first(pattern, 1);
            }
            matches = p == slice.bytes[0];
        }
        if (!matches)
            return false;
    }
    return slice.size == 0;
}

/* ---- Numbers ---- */

bool slice_to_integer(struct slice slice, int64_t *ret_number) {
    bool negative = slice.size && slice.bytes[0] == '-';
    struct slice digits = negative ? without_first(slice, 1) : slice;
    int64_t number = 0;
    if (digits.size == 0 || (digits.bytes[0] == '0' && slice.size > 1))
        return false;
    for (size_t i = 0; i < digits.size; i++) {
        int digit = digits.bytes[i] - '0';
        if (digit < 0 || digit > 9 || __builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, negative ? -digit : digit, &number))
            return false;
    }
    *ret_number = number;
    return true;
}

bool slice_to_double(struct slice slice, double *ret_number) {
    char text[256], *end;
    if (slice.size == 0 || slice.size >= sizeof(text) || strchr(" \t\n\v\f\r", slice.bytes[0]))
        return false;
    memcpy(text, slice.bytes, slice.size);
    text[slice.size] = 0;
    errno = 0;
    *ret_number = strtod(text, &end);
    bool lost = errno == ERANGE && (isinf(*ret_number) || *ret_number == 0);
    return end == text + slice.size && !lost && !isnan(*ret_number);
}

/* ---- Texts ---- */

static void text_reserve(struct text *text, size_t more) {
    if (text->room - text->size > more)
        return;
    text->room = 2 * text->room + more + 64;
    text->bytes = bytes_allocate(text->bytes, text->room);
}

void text_add(struct text *text, const void *bytes, size_t size) {
    text_reserve(text, size);
    if (size)
        memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    text->bytes[text->size] = 0;
}

__attribute__((format(printf, 2, 0))) static void text_format_list(struct text *text,
                                                                   const char *format,
                                                                   va_list list) {
    va_list again;
    va_copy(again, list);
    int size = vsnprintf(NULL, 0, format, again);
    va_end(again);
    assert(size >= 0);
    text_reserve(text, (size_t)size);
    vsnprintf(text->bytes + text->size, (size_t)size + 1, format, list);
    text->size += (size_t)size;
}

void text_format(struct text *text, const char *format, ...) {
    va_list list;
    va_start(list, format);
    text_format_list(text, format, list);
    va_end(list);
}

void text_free(struct text *text) {
    free(text->bytes);
    *text = (struct text){NULL, 0, 0};
}

/* ---- Replies ---- */

void answer_status(struct text *text, const char *status) {
    text_format(text, "+%s\r\n", status);
}

/* An error is one line, whatever is in it. */
void answer_error(struct text *text, const char *format, ...) {
    text_add(text, "-", 1);
    size_t start = text->size;
    va_list list;
    va_start(list, format);
    text_format_list(text, format, list);
    va_end(list);
    for (size_t i = start; i < text->size; i++)
        if (text->bytes[i] == '\r' || text->bytes[i] == '\n')
            text->bytes[i] = ' ';
    text_add(text, "\r\n", 2);
}

/* A type, a number, and the end of the line. This is the hottest function of all replies, so it
 * avoids printf. */
static void add_header(struct text *text, char type, int64_t number) {
    char line[32], *at = line + sizeof(line);
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    *--at = '\n';
    *--at = '\r';
    do {
        *--at = (char)('0' + left % 10);
        left /= 10;
    } while (left);
    if (number < 0)
        *--at = '-';
    *--at = type;
    text_add(text, at, (size_t)(line + sizeof(line) - at));
}

void answer_integer(struct text *text, int64_t number) {
    add_header(text, ':', number);
}

void answer_double(struct text *text, double number) {
    char digits[40];
    snprintf(digits, sizeof(digits), "%.17g", number);
    answer_bulk(text, slice_of(digits));
}

void answer_bulk(struct text *text, struct slice bytes) {
    add_header(text, '$', (int64_t)bytes.size);
    text_add(text, bytes.bytes, bytes.size);
    text_add(text, "\r\n", 2);
}

void answer_nil(struct text *text) {
    text_add(text, "$-1\r\n", 5);
}

void answer_array(struct text *text, size_t count) {
    add_header(text, '*', (int64_t)count);
}
