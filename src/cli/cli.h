/* What the commands share: the global settings, the table of commands, and how failures are
 * reported.
 *
 * The command uses only the public header of the library, and base/url.h and base/password.h, so
 * that one place decides what must not be shown. Each command is one file with one `const struct
 * command`; main.c has the table of them. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <holdfast/holdfast.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct option;

/* Exit codes of holdfast itself, from sysexits.h where possible. */
enum {
    EXIT_USAGE = 64,
    EXIT_RANGE = 65,
    EXIT_UNREACHABLE = 69,
    EXIT_INTERNAL = 70,
    EXIT_NOT_ACQUIRED = 75,
    EXIT_DENIED = 77,
    EXIT_CONFIG = 78,
    EXIT_LOST = 79,
    EXIT_MISMATCH = 80,
    EXIT_MAX_HOLD = 124,
    EXIT_CANNOT_RUN = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_BY_SIGNAL = 128, /* plus the signal */
};

/* The global options. */
struct cli {
    const char *url;       /* NULL: the default store. May have a password in it */
    const char *url_given; /* the same before a password was added: this one is shown */
    char *url_composed;    /* memory of `url` if password.c has added a password */
    bool json, quiet, verbose;
    const char *log;                          /* "json": stderr is JSON; NULL: text */
    const char *lock;                         /* the lock that those lines are about; NULL: none */
    const char *profile;                      /* NULL: none */
    const char *password_file, *password_env; /* where the password is; NULL: not there */
    int64_t password_fd;                      /* -1: not there */
    int64_t max_lease_ms;
    const struct option *given[64]; /* on the command line */
    size_t given_count;
};

struct command {
    const char *name;
    const char *summary;          /* one line, for the list of commands */
    const char *usage;            /* what follows "holdfast " */
    const char *details;          /* paragraphs and examples, below the options */
    const struct option *options; /* NULL: none but the global ones */
    bool without_settings;        /* works even if the configuration is invalid */
    bool prints_json;             /* --json has a meaning */
    /* argv[0] is the command's name. Returns the exit code. */
    int (*run)(struct cli *cli, int argc, char **argv);
};

/* All commands in the order in which help lists them; NULL after the last. */
extern const struct command *const commands[];
const struct command *command_find(const char *name); /* NULL: none */
int command_unknown(const char *name);                /* prints an error; EXIT_USAGE */

extern const struct command acquire_command, bench_command, break_command, completion_command,
    config_command, count_command, demo_command, doctor_command, elect_command, fence_command,
    help_command, inspect_command, lab_command, limit_command, ls_command, quorum_command,
    release_command, renew_command, run_command, schema_command, stores_command, version_command,
    watch_command;

void help_print(const struct command *command);

/* The next form of a usage that has several, as "fence check FILE | fence sql DIALECT"; NULL: there
 * is none. */
const char *help_next_form(const struct command *command, const char *usage);

/* ---- Lines on standard error ---- */

enum say_level { SAY_ERROR = 3, SAY_WARNING = 4, SAY_INFO = 6 }; /* those of syslog */

/* Prints "holdfast: text", with its level if stderr is the systemd journal, or an object with --log
 * json. The text must be safe for a terminal (text.h). */
void say(enum say_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void say_arguments(enum say_level level, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

/* Makes say() follow the options in `cli` from now on. */
void say_as(const struct cli *cli);
bool say_is_json(void);

/* Flushes standard output. Returns `exit_code`; if something cannot be written, reports that,
 * discards it, and returns another code. main calls this when a command has ended. */
int say_flush(int exit_code);

/* ---- Failures ---- */

/* Prints an error: "what (why); what to do". */
void fail_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same; returns EXIT_USAGE. */
int fail_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The exit code for an error of the library. */
int fail_exit_code(int error);

/* What to do about an error for this reason, "" if the reason says it all. Valid until the next
 * call. */
const char *fail_advice(const struct cli *cli, int error, const char *why);

/* Checks the name of a lock. Returns 0, or EXIT_USAGE after printing an error. */
int fail_name(const char *name);

/* Composes the line for an error of the library: what was tried, why it failed, what to do. `why`
 * is hf_last_error() or hf_call_error(). */
void fail_text(char *ret, size_t size, const struct cli *cli, int error, const char *why,
               const char *what);

/* Prints that line, with hf_last_error() as the reason, and returns the exit code. */
int fail_error(const struct cli *cli, int error, const char *what);

/* ---- The store ---- */

/* Opens the store; `options` may be NULL. Returns HF_OK or a negative hf_error. store_open prints
 * the error as well; the caller then returns fail_exit_code(). */
int store_open_silently(const struct cli *cli, const hf_client_options *options,
                        hf_client **ret_client);
int store_open(const struct cli *cli, const hf_client_options *options, hf_client **ret_client);

/* The URL of the store as people may see it: without passwords, and safe on a terminal. */
char *store_shown(const struct cli *cli, char *ret, size_t size);

/* Whether a URL contains a password or another secret; and the URL without secrets, for programs.
 * The caller frees it; NULL: no memory. */
bool url_has_secret(const char *url);
char *url_without_secrets(const char *url);

/* What follows "scheme://"; NULL if there is no "//": the store is a file or memory of this
 * host. */
const char *url_authority(const char *url);

#endif
