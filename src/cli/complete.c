/* Completion: the words that can follow where the user pressed Tab. */
#include "cli/complete.h"

#include "base/fence_sql.h"
#include "cli/settings.h"

#include <stdio.h>
#include <string.h>

enum { NAMES_MOST = 200, PATIENCE_MS = 1000, PLACE_SIZE = 80 };

/* What is known from the words before the current one. */
struct place {
    struct cli *cli;
    const struct command *command; /* NULL: none yet */
    const struct option *option;   /* whose value is next; NULL: none */
    size_t count;                  /* words after the command that are not options */
    const char *form;              /* the first of them, which may choose a form of the usage */
    bool options_ended;
    bool lost;              /* the command is unknown */
    const char *before;     /* printed before each answer, such as "--url=" */
    const char *typed;      /* what the answers begin with */
    const char *chosen[16]; /* --url X, --profile X, ...: which store */
    int chosen_count;
};

static const char *const no_words = "";

static bool begins_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

static void answer(const struct place *place, const char *word, const char *help) {
    if (begins_with(word, place->typed))
        printf("%s%s\t%s\n", place->before, word, help);
}

/* ---- The usage of a command ---- */

/* Takes the next word of a usage, without its brackets and dots, and reports whether it had
 * brackets. */
static const char *next_word(const char *usage, char *ret, bool *ret_opens, bool *ret_closes) {
    usage += strspn(usage, " ");
    size_t length = strcspn(usage, " ");
    *ret_opens = length && strchr("[(", usage[0]);
    *ret_closes = length && strchr("])", usage[length - 1]);
    size_t start = strspn(usage, "[("), end = length;
    while (end > start && strchr("]).", usage[end - 1]))
        end--;
    snprintf(ret, PLACE_SIZE, "%.*s", (int)(end > start ? end - start : 0),
             usage + (start < length ? start : length));
    return usage + length;
}

/* The `number`-th word that a command takes besides options, as this form of its usage names it; ""
 * if there is none. */
static void get_word(const char *usage, size_t number, char *ret) {
    bool opens, closes, skipping = false, skip_next = false;
    usage += strcspn(usage, " ");
    while (*usage) {
        usage = next_word(usage, ret, &opens, &closes);
        if (!skipping && strcmp(ret, "|") == 0)
            break; /* the next form */
        bool is_option = *ret == '-' || strcmp(ret, "options") == 0;
        if (opens)
            skipping = is_option;
        bool skip =
            skipping || is_option || (skip_next && strspn(ret, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"));
        skip_next = is_option && !opens;
        if (closes)
            skipping = false;
        if (!skip && number-- == 0)
            return;
    }
    *ret = 0;
}

/* Whether this word and those after it are a command to run, with its arguments. */
static bool is_foreign(const struct command *command, size_t number) {
    char word[PLACE_SIZE], next[PLACE_SIZE];
    get_word(command->usage, number, word);
    get_word(command->usage, number + 1, next);
    return strcmp(word, "COMMAND") == 0 && strcmp(next, "ARG") == 0;
}

/* ---- What can come next ---- */

static void answer_choice(const struct place *place, const char *words) {
    while (*words) {
        char word[PLACE_SIZE];
        size_t length = strcspn(words, "|");
        snprintf(word, sizeof(word), "%.*s", (int)length, words);
        answer(place, word, "");
        words += length + (words[length] == '|');
    }
}

static void answer_commands(const struct place *place) {
    for (size_t i = 0; commands[i]; i++)
        answer(place, commands[i]->name, commands[i]->summary);
}

static void answer_options(const struct place *place, const struct option *table) {
    for (; table && table->name; table++) {
        char word[PLACE_SIZE];
        snprintf(word, sizeof(word), "--%s", table->name);
        if (option_is_for(table, place->command))
            answer(place, word, table->help);
    }
}

static void answer_stores(const struct place *place) {
    const hf_store_info *store;
    for (size_t i = 0; (store = hf_store_at(i)); i++) {
        char word[PLACE_SIZE];
        snprintf(word, sizeof(word), "%s:", store->scheme);
        answer(place, word, store->summary);
    }
}

static void answer_profiles(const struct place *place) {
    const struct settings_file *files = settings_files();
    if (settings_load(place->cli))
        return;
    for (size_t i = 0; i < SETTINGS_FILES; i++) {
        const struct config *config = &files[i].config;
        for (size_t j = 0; j < config->count; j++) {
            if (!config->entries[j].key)
                answer(place, config->entries[j].profile, files[i].path);
        }
    }
}

/* A name with control characters is not offered: the shell would split it. */
static bool is_plain(const char *name) {
    for (; *name; name++) {
        if ((unsigned char)*name < ' ' || *name == 0x7f)
            return false;
    }
    return true;
}

static void answer_locks(const struct place *place, hf_client *client) {
    hf_call *call;
    if (hf_list_start(client, place->typed, NULL, NAMES_MOST, &call) < 0)
        return;
    hf_call_wait(call, PATIENCE_MS);
    hf_locks *locks = hf_call_take_locks(call);
    for (size_t i = 0; locks && i < hf_locks_count(locks); i++) {
        const hf_lock_info *lock = hf_locks_at(locks, i);
        if (is_plain(lock->name))
            answer(place, lock->name, "");
    }
    hf_locks_free(locks);
    hf_call_free(call);
}

/* The locks in the store that the command line names. */
static void answer_names(struct place *place) {
    hf_client *client;
    char **words = (char **)place->chosen;
    if (options_parse(place->cli, NULL, NULL, place->chosen_count, words) < 0 ||
        settings_apply(place->cli, &completion_command, NULL) ||
        store_open(place->cli, NULL, &client) < 0)
        return;
    answer_locks(place, client);
    hf_client_close(client);
}

static void answer_dialects(const struct place *place) {
    const char *word;
    for (int dialect = 1; (word = fence_sql_word(dialect)); dialect++)
        answer(place, word, "");
}

/* Answers for a kind of word, as help names it. */
static void answer_kind(struct place *place, const char *kind) {
    if (strchr(kind, '|') || strspn(kind, "abcdefghijklmnopqrstuvwxyz"))
        answer_choice(place, kind);
    else if (strcmp(kind, "FILE") == 0)
        puts(":file");
    else if (strcmp(kind, "NAME") == 0 || strcmp(kind, "PREFIX") == 0)
        answer_names(place);
    else if (strcmp(kind, "URL") == 0)
        answer_stores(place);
    else if (strcmp(kind, "DIALECT") == 0)
        answer_dialects(place);
    else if (strcmp(kind, "PROFILE") == 0)
        answer_profiles(place);
    else if (strcmp(kind, "COMMAND") == 0)
        answer_commands(place);
}

/* Answers for the next word after the command, from each form of its usage that is meant. */
static void answer_word(struct place *place) {
    const struct command *command = place->command;
    bool chosen = place->count && help_next_form(command, command->usage);
    char word[PLACE_SIZE];
    for (const char *form = command->usage; form; form = help_next_form(command, form)) {
        get_word(form, 0, word);
        if (chosen && strcmp(word, place->form) != 0)
            continue;
        get_word(form, place->count, word);
        answer_kind(place, word);
    }
}

/* ---- The line ---- */

static const struct option *find_option(const struct place *place, const char *word) {
    const struct option *tables[] = {place->command ? place->command->options : NULL,
                                     global_options};
    bool is_long = word[1] == '-';
    size_t length = is_long ? strcspn(word + 2, "=") : strlen(word);
    for (size_t i = 0; i < 2; i++) {
        for (const struct option *o = tables[i]; o && o->name; o++) {
            if (is_long ? strlen(o->name) == length && strncmp(o->name, word + 2, length) == 0
                        : o->letter == word[length - 1])
                return o;
        }
    }
    return NULL;
}

/* Remembers a word that says which store is meant. */
static void choose(struct place *place, const char *word) {
    size_t most = sizeof(place->chosen) / sizeof(*place->chosen);
    if ((size_t)place->chosen_count < most)
        place->chosen[place->chosen_count++] = word;
}

static bool names_store(const struct option *option) {
    return strcmp(option->name, "url") == 0 || strcmp(option->name, "profile") == 0 ||
           settings_is_password(option);
}

static void take_option(struct place *place, const char *word) {
    const struct option *option = find_option(place, word);
    if (!option)
        return;
    if (names_store(option))
        choose(place, word);
    if (option->argument && !(word[1] == '-' && strchr(word, '=')))
        place->option = option;
}

static void take(struct place *place, const char *word) {
    bool foreign = place->command && place->count && is_foreign(place->command, place->count - 1);
    if (place->option) {
        if (names_store(place->option))
            choose(place, word);
        place->option = NULL;
    } else if (!foreign && !place->options_ended && word[0] == '-' && word[1]) {
        place->options_ended = strcmp(word, "--") == 0;
        take_option(place, word);
    } else if (!place->command) {
        place->command = command_find(word);
        place->lost = !place->command;
    } else if (!foreign) {
        place->form = place->count++ ? place->form : word;
    }
}

/* If the current word is like "--wait=5", completes the value after the "=". */
static bool splits_value(struct place *place, const char *word, char *ret_before, size_t size) {
    const char *equals = begins_with(word, "--") ? strchr(word, '=') : NULL;
    place->option = equals ? find_option(place, word) : NULL;
    if (!place->option)
        return false;
    snprintf(ret_before, size, "%.*s", (int)(equals + 1 - word), word);
    place->before = ret_before;
    place->typed = equals + 1;
    return true;
}

static void answer_place(struct place *place) {
    size_t count = place->count;
    if (place->option) {
        if (place->option->argument)
            answer_kind(place, place->option->argument);
    } else if (place->command && count && is_foreign(place->command, count - 1)) {
        puts(":arguments");
    } else if (place->typed[0] == '-' && !place->options_ended) {
        answer_options(place, place->command ? place->command->options : NULL);
        answer_options(place, global_options);
    } else if (!place->command) {
        answer_commands(place);
    } else if (is_foreign(place->command, count)) {
        puts(":command");
    } else {
        answer_word(place);
    }
}

void complete_print(struct cli *cli, int count, char **words) {
    struct place place = {.cli = cli, .before = no_words, .typed = words[count - 1]};
    char before[PLACE_SIZE];
    for (int i = 1; i < count - 1 && !place.lost; i++)
        take(&place, words[i]);
    if (count < 2)
        place.typed = no_words;
    if (!place.option && !place.options_ended)
        splits_value(&place, place.typed, before, sizeof(before));
    if (!place.lost)
        answer_place(&place);
}
