/* The command `holdfast`: global options, then one of the commands in the table. */
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/password.h"
#include "cli/text.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct command *const commands[] = {
    &run_command,        &elect_command,   &acquire_command, &renew_command,
    &release_command,    &fence_command,   &count_command,   &limit_command,
    &ls_command,         &inspect_command, &watch_command,   &break_command,
    &doctor_command,     &quorum_command,  &schema_command,  &bench_command,
    &lab_command,        &demo_command,    &stores_command,  &config_command,
    &completion_command, &version_command, &help_command,    NULL,
};

const struct command *command_find(const char *name) {
    for (size_t i = 0; commands[i]; i++) {
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    }
    return NULL;
}

int command_unknown(const char *name) {
    char safe[80];
    const char *nearest = NULL;
    size_t best = 4;
    for (size_t i = 0; commands[i]; i++) {
        size_t distance = text_distance(name, commands[i]->name);
        if (distance < best && distance < strlen(commands[i]->name)) {
            best = distance;
            nearest = commands[i]->name;
        }
    }
    text_safe(safe, sizeof(safe), name);
    if (nearest)
        return fail_usage("%s is not a command; did you mean %s? try: holdfast help", safe,
                          nearest);
    return fail_usage("%s is not a command; try: holdfast help", safe);
}

/* Opens the standard descriptors that are closed. Otherwise the next files that we open would take
 * their place, and be lost when the process in the background redirects them. */
static void open_standard_descriptors(void) {
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

static bool asks_for_version(int argc, char **argv) {
    return argc == 2 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0);
}

/* Executes what the command line says, and returns the exit code. */
static int execute(struct cli *cli, int argc, char **argv) {
    if (asks_for_version(argc, argv))
        return version_command.run(cli, 1, argv + 1);
    int used = options_parse(cli, NULL, NULL, argc - 1, argv + 1);
    if (used < 0)
        return options_exit_code(used);
    int at = 1 + used;
    if (at == argc) {
        help_print(NULL);
        return fail_usage("missing command; usage: holdfast [options] COMMAND ...");
    }
    const struct command *command = command_find(argv[at]);
    return command ? command->run(cli, argc - at, argv + at) : command_unknown(argv[at]);
}

int main(int argc, char **argv) {
    const hf_client_options defaults = HF_CLIENT_OPTIONS_INIT;
    struct cli cli = {.password_fd = -1, .max_lease_ms = defaults.max_lease_ms};
    open_standard_descriptors();
    say_as(&cli);
    int code = say_flush(execute(&cli, argc, argv));
    password_forget(&cli);
    return code;
}
