/* holdfast version: prints the version. */
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/options.h"

#include <stdio.h>
#include <stdlib.h>

static int run(struct cli *cli, int argc, char **argv) {
    int r = options_parse_words(cli, &version_command, NULL, argc, argv, 0, 0, NULL);
    if (r < 0)
        return options_exit_code(r);
    if (!cli->json) {
        printf("holdfast %s\n", hf_version());
        return EXIT_SUCCESS;
    }
    struct json json = {.file = stdout};
    json_object(&json, NULL);
    json_string(&json, "version", hf_version());
    json_object_end(&json);
    json_end(&json);
    return EXIT_SUCCESS;
}

const struct command version_command = {
    .name = "version",
    .summary = "print the version (also --version, -V)",
    .usage = "version [--json]",
    .prints_json = true,
    .without_settings = true,
    .details = "Examples:\n"
               "  holdfast version\n",
    .run = run,
};
