/* holdfast help: lists the commands, and explains how each is used. */
#include "cli/cli.h"
#include "cli/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void get_words(const struct option *option, char *ret, size_t size) {
    snprintf(ret, size, "%c%c%s--%s%s%s", option->letter ? '-' : ' ',
             option->letter ? option->letter : ' ', option->letter ? ", " : "  ", option->name,
             option->argument ? " " : "", option->argument ? option->argument : "");
}

static void print_options(const char *title, const struct option *table,
                          const struct command *command) {
    char words[80];
    size_t width = 0;
    for (const struct option *option = table; option->name; option++) {
        get_words(option, words, sizeof(words));
        width = strlen(words) > width ? strlen(words) : width;
    }
    printf("\n%s:\n", title);
    for (; table->name; table++) {
        if (!option_is_for(table, command))
            continue;
        get_words(table, words, sizeof(words));
        printf("  %-*s  %s\n", (int)width, words, table->help);
    }
}

static void print_commands(void) {
    printf("holdfast: locks shared by processes and machines\n\n"
           "Usage: holdfast [--url URL | --profile PROFILE] [--json] [-q|-v] COMMAND ...\n\n"
           "Commands:\n");
    for (size_t i = 0; commands[i]; i++)
        printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
    print_options("Options of every command", global_options, NULL);
    printf("\nExamples:\n"
           "  holdfast run nightly -- ./report.sh      one at a time, on this host\n"
           "  holdfast run -n nightly -- ./report.sh   or not at all\n"
           "  holdfast help run                        everything about run\n");
}

const char *help_next_form(const struct command *command, const char *usage) {
    char start[80];
    snprintf(start, sizeof(start), " | %s ", command->name);
    const char *found = strstr(usage, start);
    return found ? found + strlen(" | ") : NULL;
}

static void print_usage(const struct command *command) {
    const char *title = "Usage:", *next;
    for (const char *form = command->usage; form; form = next, title = "") {
        next = help_next_form(command, form);
        int size = (int)(next ? strlen(form) - strlen(next) - strlen(" | ") : strlen(form));
        printf("%-6s holdfast %.*s\n", title, size, form);
    }
}

void help_print(const struct command *command) {
    if (!command) {
        print_commands();
        return;
    }
    printf("holdfast %s: %s\n\n", command->name, command->summary);
    print_usage(command);
    if (command->options)
        print_options("Options", command->options, command);
    print_options("Options of every command", global_options, command);
    printf("\n%s", command->details);
}

static int run(struct cli *cli, int argc, char **argv) {
    const char *name;
    int r = options_parse_words(cli, &help_command, NULL, argc, argv, 0, 1, &name);
    if (r < 0)
        return options_exit_code(r);
    const struct command *command = name ? command_find(name) : NULL;
    if (name && !command)
        return command_unknown(name);
    help_print(command);
    return EXIT_SUCCESS;
}

const struct command help_command = {
    .name = "help",
    .summary = "print this, or everything about one command",
    .usage = "help [COMMAND]",
    .without_settings = true,
    .details = "Examples:\n"
               "  holdfast help run\n",
    .run = run,
};
