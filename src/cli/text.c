/* Text for people. */
#include "cli/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MS_IN_SECOND = 1000, MS_IN_MINUTE = 60000, MS_IN_HOUR = 3600000, MS_IN_DAY = 86400000 };

/* ---- Characters ---- */

static bool is_continuation(unsigned char c) {
    return (c & 0xc0) == 0x80;
}

static uint32_t decode(const unsigned char *s, size_t length) {
    static const unsigned char first_mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = s[0] & first_mask[length];
    for (size_t i = 1; i < length; i++)
        code = code << 6 | (s[i] & 0x3f);
    return code;
}

size_t text_utf8_length(const char *text) {
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80)
        return s[0] != 0;
    size_t length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if (!is_continuation(s[i]))
            return 0;
    }
    uint32_t code = decode(s, length);
    bool surrogate = code >= 0xd800 && code <= 0xdfff;
    return code >= smallest[length] && code <= 0x10ffff && !surrogate ? length : 0;
}

/* C0, DEL, C1, line separators, and characters that reverse or hide text (bidirectional, zero
 * width). */
static bool is_unsafe(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x061c || code == 0xfeff ||
           (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2060 && code <= 0x206f);
}

static size_t escape(char *ret, const unsigned char *s, size_t count) {
    for (size_t i = 0; i < count; i++)
        sprintf(ret + 4 * i, "\\x%02x", s[i]);
    return 4 * count;
}

char *text_safe(char *ret, size_t size, const char *text) {
    size_t used = 0;
    while (*text) {
        char piece[20];
        size_t length = text_utf8_length(text), taken = length ? length : 1, made = taken;
        const unsigned char *s = (const unsigned char *)text;
        if (!length || is_unsafe(decode(s, length)))
            made = escape(piece, s, taken);
        else if (*text == '\\')
            made = (size_t)sprintf(piece, "\\\\");
        else
            memcpy(piece, text, taken);
        if (used + made >= size)
            break;
        memcpy(ret + used, piece, made);
        used += made;
        text += taken;
    }
    ret[used] = 0;
    return ret;
}

/* Roughly as Unicode says: East Asian scripts and emoji are wide, combining accents have no
 * width. */
static size_t width_of(uint32_t code) {
    static const struct {
        uint32_t first, last;
        size_t width;
    } ranges[] = {
        {0x0300, 0x036f, 0}, {0x1100, 0x115f, 2},   {0x20d0, 0x20ff, 0},   {0x2e80, 0xa4cf, 2},
        {0xac00, 0xd7a3, 2}, {0xf900, 0xfaff, 2},   {0xfe00, 0xfe0f, 0},   {0xfe30, 0xfe6f, 2},
        {0xff00, 0xff60, 2}, {0x1f300, 0x1faff, 2}, {0x20000, 0x3fffd, 2}, {0xe0100, 0xe01ef, 0},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
        if (code >= ranges[i].first && code <= ranges[i].last)
            return ranges[i].width;
    }
    return 1;
}

/* Returns the width of the character at `*text`, and moves `*text` past it. */
static size_t take_width(const char **text) {
    size_t length = text_utf8_length(*text);
    uint32_t code = length ? decode((const unsigned char *)*text, length) : 0;
    *text += length ? length : 1;
    return width_of(code);
}

size_t text_width(const char *text) {
    size_t width = 0;
    while (*text)
        width += take_width(&text);
    return width;
}

void text_cut(char *text, size_t columns) {
    static const char rest[] = "…";
    if (text_width(text) <= columns)
        return;
    const char *end = text;
    for (size_t width = 0;;) {
        const char *next = end;
        width += take_width(&next);
        if (width + 1 > columns)
            break;
        end = next;
    }
    char *cut = text + (end - text);
    while (cut > text && strlen(cut) < sizeof(rest) - 1) { /* room for it, in bytes */
        do
            cut--;
        while (cut > text && is_continuation((unsigned char)*cut));
    }
    if (columns && strlen(cut) >= sizeof(rest) - 1)
        memcpy(cut, rest, sizeof(rest));
    else
        *cut = 0;
}

char *text_shell_quoted(const char *text) {
    char *ret = malloc(4 * strlen(text) + 3), *end = ret;
    if (!ret)
        return NULL;
    *end++ = '\'';
    for (; *text; text++) {
        if (*text == '\'')
            end = stpcpy(end, "'\\''");
        else
            *end++ = *text;
    }
    strcpy(end, "'");
    return ret;
}

/* ---- Times ---- */

char *text_duration(char *ret, size_t size, int64_t ms) {
    long long d = ms < 0 ? 0 : ms;
    if (d < MS_IN_SECOND)
        snprintf(ret, size, "%lldms", d);
    else if (d < MS_IN_MINUTE)
        snprintf(ret, size, "%llds", d / MS_IN_SECOND);
    else if (d < MS_IN_HOUR)
        snprintf(ret, size, "%lldm%02llds", d / MS_IN_MINUTE, d / MS_IN_SECOND % 60);
    else if (d < MS_IN_DAY)
        snprintf(ret, size, "%lldh%02lldm", d / MS_IN_HOUR, d / MS_IN_MINUTE % 60);
    else
        snprintf(ret, size, "%lldd%02lldh", d / MS_IN_DAY, d / MS_IN_HOUR % 24);
    return ret;
}

char *text_left(char *ret, size_t size, int64_t left_ms) {
    char duration[32];
    if (left_ms < 0)
        snprintf(ret, size, "unlimited");
    else
        snprintf(ret, size, "%s left", text_duration(duration, sizeof(duration), left_ms));
    return ret;
}

/* Returns the unit at `*text`, and moves `*text` past it; 0 for none. */
static int64_t take_unit(const char **text) {
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {
        {"ms", 1}, {"s", MS_IN_SECOND}, {"m", MS_IN_MINUTE}, {"h", MS_IN_HOUR}, {"d", MS_IN_DAY}};
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
        size_t length = strlen(units[i].name);
        if (strncmp(*text, units[i].name, length) == 0) {
            *text += length;
            return units[i].ms;
        }
    }
    return 0;
}

/* One number with its unit, as "1.5h". */
static int take_part(const char **text, double *ret_ms) {
    if (**text < '0' || **text > '9')
        return -1;
    char *end;
    size_t length = strspn(*text, "0123456789.");
    double number = strtod(*text, &end);
    if (end != *text + length)
        return -1;
    *text = end;
    int64_t unit = take_unit(text);
    if (!unit)
        return -1;
    *ret_ms = number * (double)unit;
    return 0;
}

int text_parse_duration(const char *text, int64_t *ret_ms) {
    double sum = 0, part;
    char in_seconds[32];
    if (!*text)
        return -1;
    bool is_number = strspn(text, "0123456789.") == strlen(text);
    if (is_number &&
        snprintf(in_seconds, sizeof(in_seconds), "%ss", text) < (int)sizeof(in_seconds))
        text = in_seconds;
    while (*text) {
        if (take_part(&text, &part) < 0)
            return -1;
        sum += part;
    }
    if (sum > 1e15)
        return -1;
    *ret_ms = (int64_t)(sum + 0.5);
    return 0;
}

/* ---- Words ---- */

static size_t least(size_t a, size_t b, size_t c) {
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

size_t text_distance(const char *a, const char *b) {
    enum { LONGEST = 40 };
    size_t rows[3][LONGEST + 1];
    size_t a_length = strlen(a), b_length = strlen(b);
    if (a_length > LONGEST || b_length > LONGEST)
        return LONGEST;
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t *row = rows[i % 3], *above = rows[(i - 1) % 3];
        const size_t *twice_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            row[j] = least(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                twice_above[j - 2] + 1 < row[j])
                row[j] = twice_above[j - 2] + 1;
        }
    }
    return rows[a_length % 3][b_length];
}
