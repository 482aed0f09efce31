/* Lines on standard error, for people, for a journal or for programs. Each is one write, so that
 * lines of several processes do not mix. And whether standard output was written. */
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/look.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct cli *says; /* whose options we follow; NULL: plain text */

void say_as(const struct cli *cli) {
    says = cli;
}

bool say_is_json(void) {
    return says && says->log && strcmp(says->log, "json") == 0;
}

/* Whether standard error is the systemd journal, which reads a priority at the start of each line.
 * JOURNAL_STREAM has the device and inode of the stream. */
static bool is_journal(void) {
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat info;
    uintmax_t device, inode;
    return stream && sscanf(stream, "%ju:%ju", &device, &inode) == 2 &&
           fstat(STDERR_FILENO, &info) == 0 && info.st_dev == device && info.st_ino == inode;
}

static void put_json(FILE *file, enum say_level level, const char *text) {
    static const char *const levels[] = {
        [SAY_ERROR] = "error", [SAY_WARNING] = "warning", [SAY_INFO] = "info"};
    struct json json = {.file = file};
    json_object(&json, NULL);
    json_number(&json, "at_ms", look_wall_ms());
    json_string(&json, "level", levels[level]);
    json_string(&json, "lock", says->lock);
    json_string(&json, "message", text);
    json_object_end(&json);
    json_end(&json);
}

static void put_line(FILE *file, enum say_level level, const char *text) {
    if (is_journal())
        fprintf(file, "<%d>", level);
    if (say_is_json())
        put_json(file, level, text);
    else
        fprintf(file, "holdfast: %s\n", text);
}

void say_arguments(enum say_level level, const char *format, va_list args) {
    char text[2048], *line = NULL;
    size_t length;
    vsnprintf(text, sizeof(text), format, args);
    FILE *file = open_memstream(&line, &length);
    if (!file)
        return;
    put_line(file, level, text);
    if (fclose(file) == 0) {
        ssize_t written = write(STDERR_FILENO, line, length);
        (void)written; /* there is nobody else to tell */
    }
    free(line);
}

void say(enum say_level level, const char *format, ...) {
    va_list args;
    va_start(args, format);
    say_arguments(level, format, args);
    va_end(args);
}

int say_flush(int exit_code) {
    if (fflush(stdout) == 0 && !ferror(stdout))
        return exit_code;
    fail_say("cannot write to standard output (%s)", strerror(errno));
    __fpurge(stdout);
    clearerr(stdout);
    return EXIT_INTERNAL;
}
