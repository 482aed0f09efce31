/* A name is quoted only if nothing in it has a special meaning in any dialect, setting or encoding.
 * Every other name is written as the hexadecimal digits of its bytes. */
#include "base/fence_sql.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *word;
    const char *begin, *end;
    const char *open;           /* what a check starts with, before its name */
    const char *before, *after; /* hexadecimal digits, so that they become bytes */
} dialects[] = {
    [HF_POSTGRES] = {"postgres", "SELECT ", "", "holdfast.fence(", "decode('", "', 'hex')"},
    [HF_MYSQL] = {"mysql", "INSERT INTO holdfast_fences (name, token) VALUES ",
                  " ON DUPLICATE KEY UPDATE token = IF(VALUES(token) < token, 0, VALUES(token))",
                  "(", "X'", "'"},
    [HF_SQLITE] = {"sqlite", "INSERT INTO holdfast_fences (name, token) VALUES ",
                   " ON CONFLICT (name) DO UPDATE SET token = "
                   "CASE WHEN excluded.token < token THEN 0 ELSE excluded.token END",
                   "(", "X'", "'"},
};

const char *fence_sql_word(int dialect) {
    bool is_known = dialect > 0 && (size_t)dialect < sizeof(dialects) / sizeof(dialects[0]);
    return is_known ? dialects[dialect].word : NULL;
}

__attribute__((format(printf, 2, 3))) static void add(struct fence_sql *sql, const char *format,
                                                      ...) {
    size_t at = sql->length < sql->size ? sql->length : sql->size;
    va_list args;
    va_start(args, format);
    sql->length +=
        (size_t)vsnprintf(sql->text ? sql->text + at : NULL, sql->size - at, format, args);
    va_end(args);
}

static bool is_plain(const char *name) {
    return name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             " +-./:@_")] == 0;
}

static void add_name(struct fence_sql *sql, const char *name) {
    if (is_plain(name)) {
        add(sql, "'%s'", name);
        return;
    }
    add(sql, "%s", dialects[sql->dialect].before);
    for (; *name; name++)
        add(sql, "%02x", (unsigned)(unsigned char)*name);
    add(sql, "%s", dialects[sql->dialect].after);
}

void fence_sql_add(struct fence_sql *sql, const char *name, uint64_t token) {
    add(sql, "%s%s", sql->length ? ", " : dialects[sql->dialect].begin,
        dialects[sql->dialect].open);
    add_name(sql, name);
    add(sql, ", %" PRIu64 ")", token);
}

void fence_sql_end(struct fence_sql *sql) {
    add(sql, "%s", dialects[sql->dialect].end);
}
