/* The options of a command. */
#include "cli/options.h"

#include "cli/settings.h"
#include "cli/text.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct cli, field)
const struct option global_options[] = {
    {0, OPTION_URL, "url", AT(url), "URL", "the store; else $HOLDFAST_URL, else the embedded one",
     "sqlite:"},
    {0, OPTION_TEXT, "profile", AT(profile), "PROFILE",
     "the part of the configuration to use; else $HOLDFAST_PROFILE"},
    {0, OPTION_TEXT, "password-file", AT(password_file), "FILE", "the store's password is in FILE",
     "none"},
    {0, OPTION_TEXT, "password-env", AT(password_env), "VAR", "... in the environment variable VAR",
     "none"},
    {0, OPTION_NUMBER, "password-fd", AT(password_fd), "N", "... is read from the descriptor N",
     "none"},
    {0, OPTION_DURATION, "max-lease", AT(max_lease_ms), "DUR",
     "the longest lease; the same for all who use a store (60s)", "60s"},
    {0, OPTION_CHOICE, "log", AT(log), "text|json",
     "how lines on standard error are written (text)", "text"},
    {0, OPTION_FLAG, "json", AT(json), NULL, "print JSON, for programs"},
    {'q', OPTION_FLAG, "quiet", AT(quiet), NULL, "print errors only", "no"},
    {'v', OPTION_FLAG, "verbose", AT(verbose), NULL, "print what is being done", "no"},
    {'h', OPTION_HELP, "help", 0, NULL, "print this"},
    {0},
};

enum { PARSED_HELP = -1, PARSED_WRONG = -EXIT_USAGE };

bool option_is_for(const struct option *option, const struct command *command) {
    return !command || command->prints_json || strcmp(option->name, "json") != 0;
}

struct parser {
    struct cli *cli;
    const struct command *command;
    void *settings;
    char **argv;
    int argc, at; /* at: the word that is next */
};

int options_exit_code(int parsed) {
    return parsed == PARSED_HELP ? EXIT_SUCCESS : -parsed;
}

/* ---- Which were given ---- */

bool option_was_given(const struct cli *cli, const char *name) {
    for (size_t i = 0; i < cli->given_count; i++) {
        if (strcmp(cli->given[i]->name, name) == 0)
            return true;
    }
    return false;
}

static void remember(struct cli *cli, const struct option *option) {
    if (option_was_given(cli, option->name))
        return;
    assert(cli->given_count < sizeof(cli->given) / sizeof(*cli->given));
    cli->given[cli->given_count++] = option;
}

/* ---- What is wrong ---- */

void option_find_nearest(const struct option *table, const struct command *command,
                         const char *name, const char **ret_nearest, size_t *best) {
    for (; table && table->name; table++) {
        size_t distance = text_distance(name, table->name);
        bool begins = strlen(name) >= 3 && strncmp(table->name, name, strlen(name)) == 0;
        if (begins)
            distance = 1;
        if (distance < *best && 2 * distance <= strlen(table->name) &&
            option_is_for(table, command)) {
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
        option_find_nearest(p->command ? p->command->options : NULL, p->command, name, &nearest,
                            &best);
        option_find_nearest(global_options, p->command, name, &nearest, &best);
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

__attribute__((format(printf, 3, 4))) static int must_be(char *ret_why, size_t size,
                                                         const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(ret_why, size, format, args);
    va_end(args);
    return -1;
}

static bool convert_flag(const char *value, bool *ret) {
    static const char *const words[] = {"false", "no", "off", "0", "true", "yes", "on", "1"};
    for (size_t i = 0; i < 8; i++) {
        if (strcmp(value, words[i]) == 0) {
            *ret = i >= 4;
            return true;
        }
    }
    return false;
}

static bool convert_number(const char *value, int64_t *ret) {
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    bool good = *value >= '0' && *value <= '9' && !*end && !errno;
    if (good)
        *ret = number;
    return good;
}

static bool convert_fraction(const char *value, struct option_fraction *ret) {
    unsigned part, whole;
    int used = 0;
    bool digits = strspn(value, "0123456789/") == strlen(value);
    if (!digits || strlen(value) > 19 || sscanf(value, "%9u/%9u%n", &part, &whole, &used) < 2 ||
        value[used])
        return false;
    *ret = (struct option_fraction){part, whole};
    return true;
}

static bool is_choice(const char *words, const char *value) {
    size_t length = strlen(value);
    for (const char *word = words; word; word = strchr(word, '|') ? strchr(word, '|') + 1 : NULL) {
        if (strcspn(word, "|") == length && strncmp(word, value, length) == 0)
            return true;
    }
    return false;
}

/* Writes "term|kill|ignore" as "term, kill or ignore". */
static int must_be_choice(char *ret_why, size_t size, const char *words) {
    char list[120] = "";
    while (*words) {
        size_t length = strcspn(words, "|"), used = strlen(list);
        const char *rest = words + length + (words[length] == '|');
        const char *between = !used ? "" : *rest ? ", " : " or ";
        snprintf(list + used, sizeof(list) - used, "%s%.*s", between, (int)length, words);
        words = rest;
    }
    return must_be(ret_why, size, "it must be %s", list);
}

static bool add_to_list(const char *value, struct option_list *list) {
    bool fits = list->count < sizeof(list->items) / sizeof(*list->items);
    if (fits)
        list->items[list->count++] = value;
    return fits;
}

int option_convert(const struct option *option, const char *value, void *target, char *ret_why,
                   size_t size) {
    switch (option->type) {
    case OPTION_FLAG:
        return convert_flag(value, target) ? 0 : must_be(ret_why, size, "it must be yes or no");
    case OPTION_CHOICE:
        if (!is_choice(option->argument, value))
            return must_be_choice(ret_why, size, option->argument);
        __attribute__((fallthrough));
    case OPTION_URL:
    case OPTION_TEXT:
        *(const char **)target = value;
        return 0;
    case OPTION_LIST:
        return add_to_list(value, target) ? 0
                                          : must_be(ret_why, size, "there are too many of them");
    case OPTION_DURATION:
        if (text_parse_duration(value, target) < 0)
            return must_be(ret_why, size,
                           "it must be a time such as 500ms, 90s, 5m or 1h30m; a number without "
                           "a unit is seconds");
        return 0;
    case OPTION_NUMBER:
        return convert_number(value, target)
                   ? 0
                   : must_be(ret_why, size, "it must be a whole number such as 3");
    case OPTION_FRACTION:
        return convert_fraction(value, target)
                   ? 0
                   : must_be(ret_why, size, "it must be K/N; 1/4 is one permit out of four");
    case OPTION_HELP:
        break;
    }
    return 0;
}

static int refuse_password(const struct option *option) {
    fail_say("a password in --%s is refused (every user of this host can read it in the list of "
             "processes); give it with --password-file, --password-env or --password-fd",
             option->name);
    return PARSED_WRONG;
}

/* A second value would contradict the first. A flag may be repeated. */
static bool is_repeated(const struct cli *cli, const struct option *option) {
    return option->type != OPTION_FLAG && option->type != OPTION_LIST &&
           option_was_given(cli, option->name);
}

static int set(const struct parser *p, const struct option *option, void *target,
               const char *value) {
    char why[160];
    if (option->type == OPTION_HELP) {
        help_print(p->command);
        return PARSED_HELP;
    }
    if (option->type == OPTION_URL && url_has_secret(value))
        return refuse_password(option);
    if (is_repeated(p->cli, option)) {
        fail_say("--%s is given twice; give it once", option->name);
        return PARSED_WRONG;
    }
    remember(p->cli, option);
    if (option->type == OPTION_FLAG) {
        *(bool *)target = true;
        return 0;
    }
    return option_convert(option, value, target, why, sizeof(why)) < 0
               ? wrong_value(option, value, why)
               : 0;
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

const struct option *option_find(const struct option *table, const char *name) {
    return find_in(table, 0, name, strlen(name));
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
            return no_such_option(p, word, word[2] ? word + 1 : NULL);
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

/* A negative number is a word, and so is "-". */
static bool is_option(const char *word) {
    return word[0] == '-' && word[1] && !isdigit((unsigned char)word[1]);
}

int options_parse(struct cli *cli, const struct command *command, void *settings, int argc,
                  char **argv) {
    struct parser p = {cli, command, settings, argv, argc, 0};
    while (p.at < argc && is_option(argv[p.at])) {
        const char *word = argv[p.at++];
        if (strcmp(word, "--") == 0)
            break;
        int r = word[1] == '-' ? parse_long(&p, word) : parse_letters(&p, word);
        if (r < 0)
            return r;
    }
    if (command && cli->json && !command->prints_json) {
        fail_say("--json cannot be used with %s, which prints no JSON; try: holdfast %s --help",
                 command->name, command->name);
        return PARSED_WRONG;
    }
    return p.at;
}

int options_finish(struct cli *cli, const struct command *command, void *settings) {
    return command->without_settings ? 0 : -settings_apply(cli, command, settings);
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
            fail_say("%s: unexpected argument '%s'; try: holdfast %s --help", command->name,
                     text_safe(safe, sizeof(safe), argv[at]), command->name);
            return PARSED_WRONG;
        }
        words[count++] = argv[at++];
    }
    if (count < least) {
        fail_say("missing argument; usage: holdfast %s", command->usage);
        return PARSED_WRONG;
    }
    return options_finish(cli, command, settings);
}
