/* The options of a command. */
#include "cli/options.h"

#include "cli/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct option global_options[] = {
    {0, OPTION_URL, "url", offsetof(struct cli, url), "URL",
     "the store; else $HOLDFAST_URL, else the embedded one"},
    {0, OPTION_FLAG, "json", offsetof(struct cli, json), NULL, "print for programs"},
    {'q', OPTION_FLAG, "quiet", offsetof(struct cli, quiet), NULL, "say errors only"},
    {'v', OPTION_FLAG, "verbose", offsetof(struct cli, verbose), NULL, "say what is done"},
    {'h', OPTION_HELP, "help", 0, NULL, "print this"},
    {0},
};

enum { PARSED_HELP = -1, PARSED_WRONG = -2 };

struct parser {
    struct cli *cli;
    const struct command *command;
    void *settings;
    char **argv;
    int argc, at; /* at: the word that is next */
};

int options_exit_code(int parsed) {
    return parsed == PARSED_HELP ? EXIT_SUCCESS : EXIT_USAGE;
}

/* ---- What is wrong ---- */

static void find_nearest(const struct option *table, const char *name, const char **ret_nearest,
                         size_t *best) {
    for (; table && table->name; table++) {
        size_t distance = text_distance(name, table->name);
        bool begins = strlen(name) >= 3 && strncmp(table->name, name, strlen(name)) == 0;
        if (begins)
            distance = 1;
        if (distance < *best && distance < strlen(table->name)) {
            *best = distance;
            *ret_nearest = table->name;
        }
    }
}

static void get_help_words(const struct command *command, char *ret, size_t size) {
    snprintf(ret, size, "holdfast%s%s --help", command ? " " : "", command ? command->name : "");
}

static int no_such_option(const struct parser *p, const char *shown, const char *name) {
    char safe[80], help[60];
    const char *nearest = NULL;
    size_t best = 4;
    if (name) {
        find_nearest(p->command ? p->command->options : NULL, name, &nearest, &best);
        find_nearest(global_options, name, &nearest, &best);
    }
    text_safe(safe, sizeof(safe), shown);
    get_help_words(p->command, help, sizeof(help));
    if (nearest)
        fail_say("%s is not an option here; did you mean --%s? try: %s", safe, nearest, help);
    else
        fail_say("%s is not an option here; try: %s", safe, help);
    return PARSED_WRONG;
}

static int wrong_value(const struct option *option, const char *value, const char *expected) {
    char safe[80];
    fail_say("--%s cannot be '%s' (%s)", option->name, text_safe(safe, sizeof(safe), value),
             expected);
    return PARSED_WRONG;
}

/* ---- Values ---- */

static int set_number(const struct option *option, const char *value, int64_t *ret) {
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (end == value || *end || errno || number < 0)
        return wrong_value(option, value, "it must be a whole number, as 3");
    *ret = number;
    return 0;
}

static int set_fraction(const struct option *option, const char *value,
                        struct option_fraction *ret) {
    unsigned part, whole;
    int used = 0;
    bool digits = strspn(value, "0123456789/") == strlen(value);
    if (!digits || strlen(value) > 19 || sscanf(value, "%9u/%9u%n", &part, &whole, &used) < 2 ||
        value[used])
        return wrong_value(option, value, "it must be K/N, as 1/4: one permit out of four");
    *ret = (struct option_fraction){part, whole};
    return 0;
}

static int add_to_list(const struct option *option, const char *value, struct option_list *list) {
    if (list->count == sizeof(list->items) / sizeof(*list->items)) {
        fail_say("--%s was given too often (at most %zu times)", option->name, list->count);
        return PARSED_WRONG;
    }
    list->items[list->count++] = value;
    return 0;
}

static int set(const struct parser *p, const struct option *option, void *target,
               const char *value) {
    switch (option->type) {
    case OPTION_FLAG:
        *(bool *)target = true;
        return 0;
    case OPTION_URL:
        if (url_has_secret(value)) {
            fail_say(
                "a password in --%s is refused (every user of this host can read it in the list "
                "of processes); set HOLDFAST_URL in the environment instead",
                option->name);
            return PARSED_WRONG;
        }
        __attribute__((fallthrough));
    case OPTION_TEXT:
        *(const char **)target = value;
        return 0;
    case OPTION_LIST:
        return add_to_list(option, value, target);
    case OPTION_DURATION:
        if (text_parse_duration(value, target) < 0)
            return wrong_value(option, value, "it must be a time, as 500ms, 90s, 5m or 1h30m");
        return 0;
    case OPTION_NUMBER:
        return set_number(option, value, target);
    case OPTION_FRACTION:
        return set_fraction(option, value, target);
    case OPTION_HELP:
        help_print(p->command);
        return PARSED_HELP;
    }
    return 0;
}

/* ---- Words ---- */

static const struct option *find_in(const struct option *table, char letter, const char *name,
                                    size_t length) {
    for (; table && table->name; table++) {
        if (letter ? table->letter == letter
                   : strlen(table->name) == length && strncmp(table->name, name, length) == 0)
            return table;
    }
    return NULL;
}

/* Finds an option among the command's own and the global ones, and where its value goes. */
static const struct option *find(const struct parser *p, char letter, const char *name,
                                 size_t length, void **ret_target) {
    void *base = p->settings;
    const struct option *option =
        find_in(p->command ? p->command->options : NULL, letter, name, length);
    if (!option) {
        option = find_in(global_options, letter, name, length);
        base = p->cli;
    }
    if (option)
        *ret_target = (char *)base + option->offset;
    return option;
}

static bool takes_value(const struct option *option) {
    return option->argument != NULL;
}

static int needs_value(const struct option *option) {
    fail_say("--%s needs a value: --%s %s", option->name, option->name, option->argument);
    return PARSED_WRONG;
}

static int parse_long(struct parser *p, const char *word) {
    const char *name = word + 2, *value = strchr(name, '=');
    size_t length = value ? (size_t)(value - name) : strlen(name);
    void *target;
    const struct option *option = find(p, 0, name, length, &target);
    if (!option) {
        char cut[64];
        snprintf(cut, sizeof(cut), "%.*s", (int)(length < 60 ? length : 60), name);
        return no_such_option(p, word, cut);
    }
    if (value && !takes_value(option)) {
        fail_say("--%s takes no value", option->name);
        return PARSED_WRONG;
    }
    if (value)
        value++;
    else if (takes_value(option) && p->at == p->argc)
        return needs_value(option);
    else if (takes_value(option))
        value = p->argv[p->at++];
    return set(p, option, target, value ? value : "");
}

/* "-n", "-nq", "-w5s", "-w 5s": letters until one of them takes the rest as its value. */
static int parse_letters(struct parser *p, const char *word) {
    for (const char *c = word + 1; *c; c++) {
        void *target;
        const struct option *option = find(p, *c, NULL, 0, &target);
        if (!option)
            return no_such_option(p, word, NULL);
        const char *value = NULL;
        if (takes_value(option)) {
            if (!c[1] && p->at == p->argc)
                return needs_value(option);
            value = c[1] ? c + 1 : p->argv[p->at++];
        }
        int r = set(p, option, target, value ? value : "");
        if (r < 0 || value)
            return r;
    }
    return 0;
}

int options_parse(struct cli *cli, const struct command *command, void *settings, int argc,
                  char **argv) {
    struct parser p = {cli, command, settings, argv, argc, 0};
    while (p.at < argc && argv[p.at][0] == '-' && argv[p.at][1]) {
        const char *word = argv[p.at++];
        if (strcmp(word, "--") == 0)
            break;
        int r = word[1] == '-' ? parse_long(&p, word) : parse_letters(&p, word);
        if (r < 0)
            return r;
    }
    return p.at;
}

int options_parse_words(struct cli *cli, const struct command *command, void *settings, int argc,
                        char **argv, int least, int most, const char **words) {
    int count = 0, at = 1;
    for (int i = 0; i < most; i++)
        words[i] = NULL;
    for (;;) {
        int used = options_parse(cli, command, settings, argc - at, argv + at);
        if (used < 0)
            return used;
        at += used;
        if (at == argc)
            break;
        if (count == most) {
            char safe[80];
            fail_say("%s: '%s' is a word too many; try: holdfast %s --help", command->name,
                     text_safe(safe, sizeof(safe), argv[at]), command->name);
            return PARSED_WRONG;
        }
        words[count++] = argv[at++];
    }
    if (count < least) {
        fail_say("a word is missing; it is: holdfast %s", command->usage);
        return PARSED_WRONG;
    }
    return 0;
}
