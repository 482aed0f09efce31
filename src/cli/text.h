/* Text for people: names that are safe on a terminal, times as people write them, the nearest
 * word. */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* The length of the UTF-8 character at `text`, or 0 where there is none (also at the end). */
size_t text_utf8_length(const char *text);

/* Copies `text` so that it is safe to print: control characters, including those of Unicode that
 * change the direction of text, and bytes that are not UTF-8 become \xNN, a backslash \\. It is cut
 * to `size` between two characters. Returns `ret`. */
char *text_safe(char *ret, size_t size, const char *text);

/* How many columns of a terminal `text` takes: two for a wide character, none for a combining
 * one. */
size_t text_width(const char *text);

/* Cuts `text` in place to at most `columns`. "…" then stands for the rest. */
void text_cut(char *text, size_t columns);

/* Quotes `text` for a POSIX shell; the caller frees it. */
char *text_shell_quoted(const char *text);

/* "850ms", "12s", "4m10s", "2h05m", "3d04h". Returns `ret`. */
char *text_duration(char *ret, size_t size, int64_t ms);

/* What is left of a lease: "12s left", or "unlimited" for a foreign client's lock without
 * expiry. */
char *text_left(char *ret, size_t size, int64_t left_ms);

/* Milliseconds from "500ms", "90s", "5m", "1h30m", "1.5s" or "2d". A number alone is seconds; among
 * other parts a number needs its unit, as nobody knows what "1h30" means. Returns 0, or -1 if it is
 * none of these. */
int text_parse_duration(const char *text, int64_t *ret_ms);

/* How many letters must be changed, added, removed or swapped to turn one word into the other. */
size_t text_distance(const char *a, const char *b);

#endif
