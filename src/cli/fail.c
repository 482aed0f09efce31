/* How failures are reported, and with which exit code. The table below is the one place where
 * errors of the library become exit codes and advice. */
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/settings.h"
#include "cli/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    int error, exit_code;
    const char *advice; /* "" when the reason says it all */
} table[] = {
    {HF_BUSY, EXIT_NOT_ACQUIRED, "try later, or wait for it with -w"},
    {HF_TIMEOUT, EXIT_NOT_ACQUIRED, "try later, or wait longer"},
    {HF_CANCELLED, EXIT_NOT_ACQUIRED, ""},
    {HF_SHORT, EXIT_NOT_ACQUIRED, "use a smaller --min-left or a longer --ttl"},
    {HF_LOST, EXIT_LOST, "somebody else may hold it now"},
    {HF_RELEASED, EXIT_LOST, ""},
    {HF_UNKNOWN, EXIT_UNREACHABLE, "it may or may not have happened; check again"},
    {HF_NOT_YOURS, EXIT_LOST, "it has been released, lost or broken"},
    {HF_WRONG_KIND, EXIT_CONFIG, "use it in the same way everywhere, or use another name"},
    {HF_BAD_NAME, EXIT_USAGE, ""},
    {HF_BAD_WEIGHT, EXIT_USAGE, "-p K/N takes K permits out of N"},
    {HF_BAD_LEASE, EXIT_USAGE, "locks are renewed while they are held: a short --ttl is enough"},
    {HF_BAD_URL, EXIT_CONFIG, "for the form of URLs see: man holdfast (STORES)"},
    {HF_BAD_ARGUMENT, EXIT_USAGE, ""},
    {HF_NO_STORE, EXIT_CONFIG, "to see what this build has: holdfast stores"},
    {HF_UNSUPPORTED, EXIT_CONFIG, "to see what each store can do: holdfast stores"},
    {HF_UNREACHABLE, EXIT_UNREACHABLE, "is the server running and reachable?"},
    {HF_DENIED, EXIT_DENIED, "check the URL, the user and the password (--password-file)"},
    {HF_BAD_STORE, EXIT_CONFIG, "use another place, or move the existing data away"},
    {HF_STORE_FULL, EXIT_UNREACHABLE, "make room, then try again"},
    {HF_CLOCK, EXIT_CONFIG, "use the same --max-lease everywhere, and correct the clocks"},
    {HF_NO_MEMORY, EXIT_INTERNAL, ""},
    {HF_SYSTEM, EXIT_INTERNAL, ""},
    {HF_CLOSED, EXIT_INTERNAL, ""},
    {HF_FORKED, EXIT_INTERNAL, ""},
    {HF_MISMATCH, EXIT_MISMATCH, ""},
    {HF_RANGE, EXIT_RANGE, ""},
    {HF_PENDING, EXIT_INTERNAL, ""},
};

static size_t find(int error) {
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        if (table[i].error == error)
            return i;
    }
    return sizeof(table) / sizeof(*table) - 1; /* as unexpected as HF_PENDING */
}

int fail_exit_code(int error) {
    return error == HF_OK ? EXIT_SUCCESS : table[find(error)].exit_code;
}

/* What to do about a store in a file. NULL: what is in the table. */
static const char *advice_for_file(int error, bool is_default) {
    switch (error) {
    case HF_UNREACHABLE:
        return "does the folder exist, and is it on a disk that can be written to?";
    case HF_DENIED:
        return is_default ? "check the owner and the permissions, or name another file (--url "
                            "sqlite:PATH, or HOLDFAST_URL)"
                          : "check the owner and the permissions";
    default:
        return NULL;
    }
}

const char *fail_advice(const struct cli *cli, int error, const char *why) {
    static char text[800];
    bool is_file = !cli->url || !url_authority(cli->url);
    const char *for_file = is_file ? advice_for_file(error, !cli->url) : NULL;
    bool is_set = !is_file && strncmp(cli->url, "quorum+", 7) == 0;
    if (error == HF_UNREACHABLE && is_set)
        return "for a new set: holdfast quorum init; are enough servers running and voting?";
    if (error == HF_DENIED && !is_set && strstr(why, "; ")) /* the reason has its own advice */
        return "";
    if (error == HF_DENIED)
        settings_explain_denial(cli, text, sizeof(text));
    return error == HF_DENIED && *text ? text : for_file ? for_file : table[find(error)].advice;
}

int fail_name(const char *name) {
    enum { NAME_MOST = 255 };
    size_t length = strlen(name);
    if (!length)
        return fail_usage("the name of the lock is empty; it must have 1 to 255 bytes");
    if (length > NAME_MOST)
        return fail_usage("the name of the lock has %zu bytes; it must have 1 to 255 bytes",
                          length);
    return 0;
}

void fail_say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say_arguments(SAY_ERROR, format, args);
    va_end(args);
}

int fail_usage(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say_arguments(SAY_ERROR, format, args);
    va_end(args);
    return EXIT_USAGE;
}

/* Suggests to examine the same store, if there is room for that. */
static void add_hint(char *ret, size_t size, size_t length, const struct cli *cli) {
    static const char *const names[] = {"url", "profile"};
    const char *const values[] = {cli->url_given, cli->profile};
    char hint[600] = " try: holdfast doctor";
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (!option_was_given(cli, names[i]))
            continue;
        char *quoted = text_shell_quoted(values[i]);
        size_t used = strlen(hint);
        int more =
            snprintf(hint + used, sizeof(hint) - used, " --%s %s", names[i], quoted ? quoted : "");
        free(quoted);
        if ((size_t)more >= sizeof(hint) - used)
            return;
    }
    if (length + strlen(hint) < size)
        strcpy(ret + length, hint);
}

/* If the store cannot be reached, it matters little what was tried: "cannot reach URL for x
 * (details)". The advice is a question. */
static void unreachable_text(char *ret, size_t size, const struct cli *cli, const char *why,
                             const char *advice) {
    const char *sentence = hf_error_string(HF_UNREACHABLE);
    size_t said = strlen(sentence);
    if (strncmp(why, sentence, said) == 0 && strncmp(why + said, ": ", 2) == 0)
        why += said + 2;
    char store[300], safe[1024], lock[300];
    store_shown(cli, store, sizeof(store));
    text_safe(lock, sizeof(lock), cli->lock ? cli->lock : "");
    int length = snprintf(ret, size, "cannot reach %s%s%s (%s); %s", store, *lock ? " for " : "",
                          lock, text_safe(safe, sizeof(safe), why), advice);
    add_hint(ret, size, (size_t)length, cli);
}

/* The reason without the name of the lock, which is in the rest of the message. */
static const char *without_name(char *ret, size_t size, const struct cli *cli, int error,
                                const char *why) {
    const char *sentence = hf_error_string(error);
    char named[400];
    snprintf(named, sizeof(named), "%s: \"%s\"", sentence, cli->lock ? cli->lock : "");
    size_t length = strlen(named);
    if (strncmp(why, named, length) != 0)
        return why;
    snprintf(ret, size, "%s%s", sentence, why + length);
    return ret;
}

void fail_text(char *ret, size_t size, const struct cli *cli, int error, const char *why,
               const char *what) {
    char safe[1024], tried[300], shorter[1024];
    const char *advice = fail_advice(cli, error, why);
    why = *why ? without_name(shorter, sizeof(shorter), cli, error, why) : hf_error_string(error);
    if (error == HF_UNREACHABLE) {
        unreachable_text(ret, size, cli, why, advice);
        return;
    }
    snprintf(ret, size, "%s (%s)%s%s", text_safe(tried, sizeof(tried), what),
             text_safe(safe, sizeof(safe), why), *advice ? "; " : "", advice);
}

int fail_error(const struct cli *cli, int error, const char *what) {
    char text[2048];
    fail_text(text, sizeof(text), cli, error, hf_last_error(), what);
    fail_say("%s", text);
    return fail_exit_code(error);
}
