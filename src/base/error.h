/* The text of a failure. Every thread has one line in which the last failure of a public call is
 * told; what happens inside an operation and must travel to another thread is told in a string of its
 * own (error_format), which the operation carries. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <holdfast/holdfast.h>

/* Note what failed for hf_last_error, "the sentence of the code: the particulars", and are the code: what a
 * call that failed returns. Macros, so that compilers and checkers see which code it is. */
#define error_set(code, ...) (error_note((code), __VA_ARGS__), (code))
/* The same with particulars that may be NULL: then the sentence alone. */
#define error_set_text(code, particulars) (error_note_text((code), (particulars)), (code))

void error_note(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
void error_note_text(int code, const char *particulars);

/* A formatted string for the caller to free; NULL when there is no memory, which every user of such
 * particulars takes as "no particulars". */
char *error_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Adds to what is in a buffer of `size` bytes; what is too long is cut. */
void error_append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
