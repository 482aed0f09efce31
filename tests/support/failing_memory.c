/* The functions that allocate, each of which fails when failing.c says so. A program that is linked
 * with --wrap for all of them gets these. */
#include "support/failing.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>

FAILING_CALL(void *, malloc, ENOMEM, NULL, (size_t size), (size))
FAILING_CALL(void *, calloc, ENOMEM, NULL, (size_t count, size_t size), (count, size))
FAILING_CALL(void *, realloc, ENOMEM, NULL, (void *memory, size_t size), (memory, size))
FAILING_CALL(char *, strdup, ENOMEM, NULL, (const char *text), (text))
FAILING_CALL(char *, strndup, ENOMEM, NULL, (const char *text, size_t most), (text, most))
FAILING_CALL(int, vasprintf, ENOMEM, -1, (char **ret_text, const char *format, va_list arguments),
             (ret_text, format, arguments))
