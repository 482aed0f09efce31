/* holdfast count: one step on a counter in the store. */
#include "cli/json.h"
#include "cli/look.h"
#include "cli/options.h"
#include "cli/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    int64_t expire_ms;
};

static const struct option options[] = {
    {0, OPTION_DURATION, "expire", offsetof(struct settings, expire_ms), "DUR",
     "if this creates the counter, it expires after DUR"},
    {0},
};

/* What can be done, and the words that follow COUNTER. */
static const struct form {
    const char *word;
    hf_count_op op;
    size_t least, most;
    bool creates;
} forms[] = {
    {"get", HF_COUNT_GET, 0, 0, false},   {"add", HF_COUNT_ADD, 0, 1, true},
    {"cas", HF_COUNT_CAS, 2, 2, true},    {"swap", HF_COUNT_SWAP, 1, 1, true},
    {"rm", HF_COUNT_REMOVE, 0, 0, false},
};

enum { FORM_COUNT = sizeof(forms) / sizeof(*forms), WORDS_MOST = 4 };

/* ---- What is asked for ---- */

static int read_number(const char *what, const char *word, int64_t *ret_number) {
    char safe[80], *end;
    errno = 0;
    int64_t number = strtoll(word, &end, 10);
    if (end == word || *end || errno)
        return fail_usage("%s cannot be '%s'; it must be a whole number of 64 bits", what,
                          text_safe(safe, sizeof(safe), word));
    *ret_number = number;
    return EXIT_SUCCESS;
}

/* NULL, after printing an error, if there is none. */
static const struct form *find_form(const char *word) {
    char safe[80];
    for (size_t i = 0; i < FORM_COUNT; i++) {
        if (strcmp(forms[i].word, word) == 0)
            return &forms[i];
    }
    fail_usage("count %s is not a command; it can be get, add, cas, swap or rm; try: holdfast "
               "count --help",
               text_safe(safe, sizeof(safe), word));
    return NULL;
}

static int check_words(const struct cli *cli, const struct form *form, const char *const *words) {
    size_t count = 0;
    while (count < WORDS_MOST - 2 && words[count])
        count++;
    if (count < form->least || count > form->most)
        return fail_usage("count %s: %s argument; try: holdfast count --help", form->word,
                          count < form->least ? "missing" : "unexpected");
    if (!form->creates && option_was_given(cli, "expire"))
        return fail_usage("--expire cannot be used with count %s, which creates no counter",
                          form->word);
    return EXIT_SUCCESS;
}

/* `words` are those after COUNTER. */
static int read_words(const struct form *form, const char *const *words,
                      hf_count_options *options_of) {
    options_of->op = form->op;
    options_of->number = 1;
    if (form->op != HF_COUNT_CAS)
        return words[0] ? read_number(form->op == HF_COUNT_ADD ? "N" : "NEW", words[0],
                                      &options_of->number)
                        : EXIT_SUCCESS;
    options_of->expect_none = strcmp(words[0], "none") == 0;
    int exit_code = EXIT_SUCCESS;
    if (!options_of->expect_none)
        exit_code = read_number("EXPECTED", words[0], &options_of->expected);
    return exit_code ? exit_code : read_number("NEW", words[1], &options_of->number);
}

/* ---- The answer ---- */

static void print_json(const char *name, const hf_counter *counter) {
    struct json json = {.file = stdout};
    char value[24];
    snprintf(value, sizeof(value), "%" PRId64, counter->value);
    json_object(&json, NULL);
    json_string(&json, "name", name);
    json_string(&json, "value", counter->exists ? value : NULL);
    if (counter->exists && counter->left_ms >= 0)
        json_number(&json, "left_ms", counter->left_ms);
    else
        json_string(&json, "left_ms", NULL);
    json_object_end(&json);
    json_end(&json);
}

static void print(const struct cli *cli, const char *name, const hf_counter *counter) {
    if (cli->json)
        print_json(name, counter);
    else if (counter->exists)
        printf("%" PRId64 "\n", counter->value);
    else
        puts("none");
}

static int count(struct cli *cli, hf_client *client, const char *name,
                 const hf_count_options *options_of) {
    hf_counter counter = HF_COUNTER_INIT;
    int r = hf_count(client, name, options_of, &counter);
    if (r == HF_OK || (r == HF_MISMATCH && cli->json))
        print(cli, name, &counter);
    if (r == HF_OK)
        return EXIT_SUCCESS;
    char what[LOOK_NAME_SIZE];
    snprintf(what, sizeof(what), "cannot %s %s", options_of->op == HF_COUNT_GET ? "read" : "change",
             name);
    return fail_error(cli, r, what);
}

static int run(struct cli *cli, int argc, char **argv) {
    struct settings settings = {.expire_ms = 0};
    const char *words[WORDS_MOST];
    hf_count_options options_of = HF_COUNT_OPTIONS_INIT;
    hf_client *client;
    int r = options_parse_words(cli, &count_command, &settings, argc, argv, 2, WORDS_MOST, words);
    if (r < 0)
        return options_exit_code(r);
    const struct form *form = find_form(words[0]);
    int exit_code = form ? check_words(cli, form, words + 2) : EXIT_USAGE;
    if (!exit_code)
        exit_code = read_words(form, words + 2, &options_of);
    if (exit_code)
        return exit_code;
    cli->lock = words[1];
    options_of.expiry_ms = settings.expire_ms;
    r = store_open(cli, NULL, &client);
    if (r < 0)
        return fail_exit_code(r);
    exit_code = count(cli, client, words[1], &options_of);
    hf_client_close(client);
    return exit_code;
}

const struct command count_command = {
    .name = "count",
    .summary = "a number in the store: add, read, compare and set",
    .usage = "count get COUNTER | count add COUNTER [N] [--expire DUR] | count cas COUNTER "
             "EXPECTED NEW [--expire DUR] | count swap COUNTER NEW [--expire DUR] | count rm "
             "COUNTER",
    .prints_json = true,
    .options = options,
    .run = run,
    .details =
        "One step on a counter, which needs no lock. Nobody sees it half done, and if a reply\n"
        "is lost it is repeated and still happens once. Use a name that no lock has.\n"
        "\n"
        "get   prints the value\n"
        "add   adds N (1 if it is not given; may be negative) and prints the sum; a counter that\n"
        "      does not exist starts at 0\n"
        "cas   sets the counter to NEW if it is EXPECTED, or, if EXPECTED is 'none', if there is\n"
        "      no such counter, and prints NEW\n"
        "swap  sets the counter to NEW and prints what it was\n"
        "rm    removes the counter and prints what it was\n"
        "\n"
        "'none' is printed for a counter that does not exist. --expire counts from when the\n"
        "counter is created, in the same step. An existing counter keeps its expiry.\n"
        "\n"
        "--json prints an object: name, value (a string, or null), left_ms (until it expires; "
        "null:\n"
        "it does not).\n"
        "\n"
        "Exit code 80: cas did not find what it expected, and the message says what the counter\n"
        "is. 65: the sum does not fit 64 bits, and nothing was changed. 69: the store did not\n"
        "answer; if it may have happened, the message says so.\n"
        "\n"
        "Examples:\n"
        "  holdfast count add builds\n"
        "  holdfast count add mails-today 20 --expire 24h\n"
        "  holdfast count cas schema-version 6 7 && ./migrate-to-7\n"
        "  holdfast count cas first-run none 1 && ./initialise\n",
};
