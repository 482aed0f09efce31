/* holdfast stores: where locks can be kept, as far as this build goes. */
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/options.h"

#include <stdio.h>
#include <stdlib.h>

static void print_table(void) {
    const hf_store_info *store;
    printf("%-14s %-12s %-10s %s\n", "URL", "TIER", "", "");
    for (size_t i = 0; (store = hf_store_at(i)); i++) {
        char scheme[64];
        snprintf(scheme, sizeof(scheme), "%s:", store->scheme);
        printf("%-14s %-12s ", scheme, store->tier);
        if (store->available)
            printf("%-10s %s\n", "ready", store->summary);
        else
            printf("%-10s %s (install %s)\n", "missing", store->summary, store->package);
    }
}

static void print_json(void) {
    const hf_store_info *store;
    struct json json = {.file = stdout};
    json_array(&json, NULL);
    for (size_t i = 0; (store = hf_store_at(i)); i++) {
        json_object(&json, NULL);
        json_string(&json, "scheme", store->scheme);
        json_string(&json, "tier", store->tier);
        json_bool(&json, "available", store->available);
        json_string(&json, "package", store->package);
        json_string(&json, "summary", store->summary);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_end(&json);
}

static int run(struct cli *cli, int argc, char **argv) {
    int r = options_parse_words(cli, &stores_command, NULL, argc, argv, 0, 0, NULL);
    if (r < 0)
        return options_exit_code(r);
    if (cli->json)
        print_json();
    else
        print_table();
    return EXIT_SUCCESS;
}

const struct command stores_command = {
    .name = "stores",
    .summary = "where locks can be kept, as far as this build goes",
    .usage = "stores [--json]",
    .without_settings = true,
    .details = "A store is named by a URL: memory:, sqlite:PATH, and what else is listed. Its tier "
               "says what\n"
               "its locks are worth: strict (nothing that was acknowledged is forgotten), timed "
               "(as good as\n"
               "the clock and the disk of one server), best effort (a fail-over or a restart may "
               "lose them).\n"
               "\n"
               "Examples:\n"
               "  holdfast stores\n"
               "  holdfast stores --json\n",
    .run = run,
};
