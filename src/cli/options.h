/* The options of a command: a table, and the one parser that all commands share.
 *
 * Parsing stops at the first word that is not an option, or behind "--"; so what follows may have options
 * of its own. The global options (--url, --json, -q, -v, --help) are taken everywhere that a
 * command's own are. "-n", "-nq", "-w5s", "-w 5s", "--wait 5s" and "--wait=5s" are understood. */
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
};

extern const struct option global_options[];

/* Parses the options at the start of argv[0 .. argc-1] into `settings` (of `command`) and `cli`. Returns how
 * many words they were, or, when the command is to end now, something negative for options_exit_code:
 * help was asked for and printed, or a word was wrong and that was said. */
int options_parse(struct cli *cli, const struct command *command, void *settings, int argc,
                  char **argv);
int options_exit_code(int parsed);

/* The same for a command whose other words come in between: takes `least` to `most` of them out into `words`
 * (the rest are NULL). 0, or something negative as above. */
int options_parse_words(struct cli *cli, const struct command *command, void *settings, int argc,
                        char **argv, int least, int most, const char **words);

#endif
