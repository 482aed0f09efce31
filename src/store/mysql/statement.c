/* The text of queries. All values in them are numbers, or bytes in hex, so nothing needs to be
 * escaped, whatever the session's mode and character set are.
 *
 * If the procedures cannot be called, the text of one is sent instead, which MariaDB accepts as a
 * block. It takes longer to parse, but does the same. */
#include "store/mysql/mysql.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *mysql_write(const char *format, ...) {
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int size = vasprintf(&text, format, arguments);
    va_end(arguments);
    return size < 0 ? NULL : text;
}

char *mysql_quote(const char *text) {
    static const char digits[] = "0123456789abcdef";
    size_t size = text ? strlen(text) : 0;
    char *quoted = malloc(2 * size + 4), *at = quoted;
    if (!quoted)
        return NULL;
    *at++ = 'X';
    *at++ = '\'';
    for (size_t i = 0; i < size; i++) {
        *at++ = digits[(uint8_t)text[i] >> 4];
        *at++ = digits[(uint8_t)text[i] & 15];
    }
    memcpy(at, "'", 2);
    return quoted;
}

static const char *const names[] = {
    "holdfast_acquire",       "holdfast_release",      "holdfast_break",         "holdfast_draw",
    "holdfast_break_session", "holdfast_acquire_free", "holdfast_release_quiet", "holdfast_count"};

static char *write_call(const char *name, const char *arguments) {
    char *text = mysql_write("CALL %s(%s)", name, arguments);
    for (char *at = text; at && *at; at++)
        *at = *at == '\n' ? ',' : *at;
    return text;
}

/* In the schema, each parameter is a line, "name TYPE,". The last one has no comma. */
static char *write_block(const char *name, const char *arguments) {
    char begin[64];
    snprintf(begin, sizeof(begin), "CREATE PROCEDURE %s (\n", name);
    const char *parameter = strstr(mysql_schema, begin) + strlen(begin);
    const char *body = strstr(parameter, "\nBEGIN\n") + 1, *end = strstr(parameter, "\n//\n");
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    fputs("BEGIN NOT ATOMIC\n", out);
    while (*parameter != ')') {
        size_t width = strcspn(parameter, "\n"), length = strcspn(arguments, "\n");
        bool has_comma = parameter[width - 1] == ',';
        fprintf(out, "DECLARE %.*s DEFAULT %.*s;\n", (int)width - has_comma, parameter, (int)length,
                arguments);
        parameter += width + 1;
        arguments += length + (arguments[length] == '\n');
    }
    fprintf(out, "%.*s;\nEND", (int)(end - body), body);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

char *mysql_write_call(const struct mysql *my, enum my_procedure procedure, const char *arguments) {
    return my->spells_out ? write_block(names[procedure], arguments)
                          : write_call(names[procedure], arguments);
}
