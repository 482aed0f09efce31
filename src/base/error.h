/* The text of a failure. Every thread has one line for the last failure of a public call. A failure
 * inside an operation must reach another thread, so it has its own string (error_format), which the
 * operation carries. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <holdfast/holdfast.h>

/* Set the text for hf_last_error, "the sentence of the code: the details", and evaluate to the
 * code, which the failed call returns. Macros, so that compilers and checkers see which code it
 * is. */
#define error_set(code, ...) (error_note((code), __VA_ARGS__), (code))
/* The same with details that may be NULL; the text is then only the sentence. */
#define error_set_text(code, particulars) (error_note_text((code), (particulars)), (code))

void error_note(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
void error_note_text(int code, const char *particulars);

/* A formatted string for the caller to free; NULL if there is no memory, which every caller takes
 * as "no details". */
char *error_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Appends to the text in a buffer of `size` bytes; truncates text that is too long. */
void error_append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
