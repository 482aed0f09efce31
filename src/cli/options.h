/* The options of a command: a table, and the one parser that all commands share.
 *
 * Parsing stops at the first word that is not an option, or after "--", so what follows may have
 * options of its own. The global options (--url, --json, -q, -v, --help, ...) are accepted wherever
 * a command's own are. "-n", "-nq", "-w5s", "-w 5s", "--wait 5s" and "--wait=5s" are understood. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "cli/cli.h"

#include <stddef.h>

enum option_type {
    OPTION_FLAG = 1, /* bool */
    OPTION_TEXT,     /* const char * */
    OPTION_URL,      /* the same, without a password in it */
    OPTION_LIST,     /* struct option_list: may be given again */
    OPTION_DURATION, /* int64_t, milliseconds */
    OPTION_NUMBER,   /* int64_t, from 0 */
    OPTION_FRACTION, /* struct option_fraction: "2/5" */
    OPTION_CHOICE,   /* const char *: one of the words of `argument`, "term|kill|ignore" */
    OPTION_HELP,     /* prints the command's help */
};

struct option_list {
    const char *items[64];
    size_t count;
};

struct option_fraction {
    uint32_t part, whole;
};

struct option {
    char letter; /* 0: has none */
    enum option_type type;
    const char *name;     /* "wait"; NULL after the last option of a table */
    size_t offset;        /* where in the command's settings the value goes */
    const char *argument; /* how help calls the value; NULL for flags */
    const char *help;
    const char
        *setting; /* its default, for people, if it can come from the configuration; else NULL */
};

extern const struct option global_options[];

/* Finds an option by name in a table, which may be NULL. Returns NULL if there is none. */
const struct option *option_find(const struct option *table, const char *name);

/* Whether an option has a meaning for a command (NULL: for some command). */
bool option_is_for(const struct option *option, const struct command *command);

/* Looks for a name in `table` that differs from `name` by fewer than `*best` letters, among those
 * that are for the command, and updates both. */
void option_find_nearest(const struct option *table, const struct command *command,
                         const char *name, const char **ret_nearest, size_t *best);

/* Converts a value to the type of the option and stores it at `target`. A flag is true, yes, on or
 * 1, or the opposite. Returns 0, or a negative number with what the value must be in `ret_why`. */
int option_convert(const struct option *option, const char *value, void *target, char *ret_why,
                   size_t size);

/* Whether the option of this name was given on the command line. */
bool option_was_given(const struct cli *cli, const char *name);

/* Parses the options at the start of argv[0 .. argc-1] into `settings` (of `command`) and `cli`.
 * Returns how many words they were. If the command must end now, because help or an error was
 * printed, returns a negative number for options_exit_code. options_finish must follow. */
int options_parse(struct cli *cli, const struct command *command, void *settings, int argc,
                  char **argv);
int options_exit_code(int parsed);

/* Call this when all options have been parsed. It takes what was not given from the environment and
 * the configuration (settings.h). Returns 0, or a negative number as above. */
int options_finish(struct cli *cli, const struct command *command, void *settings);

/* Does all of this for a command that takes `least` to `most` other words, which may stand among
 * the options. They go to `words`; the rest of it is NULL. Returns 0, or a negative number as
 * above. */
int options_parse_words(struct cli *cli, const struct command *command, void *settings, int argc,
                        char **argv, int least, int most, const char **words);

#endif
