#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char last_error[1024];

const char *hf_error_string(int code) {
    switch (code) {
    case HF_OK:
        return "success";
#define SENTENCE(name, number, sentence) \
    case HF_##name:                      \
        return sentence;
        HF_ERROR_MAP(SENTENCE)
#undef SENTENCE
    default:
        return "unknown error code";
    }
}

const char *hf_error_name(int code) {
    switch (code) {
    case HF_OK:
        return "HF_OK";
#define NAME(name, number, sentence) \
    case HF_##name:                  \
        return "HF_" #name;
        HF_ERROR_MAP(NAME)
#undef NAME
    default:
        return "unknown";
    }
}

const char *hf_last_error(void) {
    return last_error;
}

void error_note_text(int code, const char *particulars) {
    snprintf(last_error, sizeof(last_error), "%s%s%s", hf_error_string(code),
             particulars ? ": " : "", particulars ? particulars : "");
}

void error_note(int code, const char *format, ...) {
    char particulars[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(particulars, sizeof(particulars), format, arguments);
    va_end(arguments);
    error_note_text(code, particulars);
}

char *error_format(const char *format, ...) {
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        text = NULL;
    va_end(arguments);
    return text;
}

void error_append(char *text, size_t size, const char *format, ...) {
    size_t used = strlen(text);
    va_list values;
    va_start(values, format);
    vsnprintf(text + used, size - used, format, values);
    va_end(values);
}
