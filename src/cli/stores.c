/* holdfast stores: the stores that this build supports. */
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_missing(void) {
    const hf_store_info *store;
    char last[1024] = "";
    for (size_t i = 0; (store = hf_store_at(i)); i++) {
        if (!*store->missing || strcmp(store->missing, last) == 0)
            continue; /* several stores need one module */
        snprintf(last, sizeof(last), "%s", store->missing);
        printf("\nmissing: %s\n", last);
    }
}

static void print_table(void) {
    const hf_store_info *store;
    printf("%-17s %-12s %-27s %-6s %-7s %-6s %-6s %-6s %-6s %s\n", "URL", "TIER", "LOCKS", "QUEUE",
           "LEASE", "FLOOR", "PUSH", "COUNT", "LIMIT", "FOR");
    for (size_t i = 0; (store = hf_store_at(i)); i++) {
        char scheme[64], locks[64];
        snprintf(scheme, sizeof(scheme), "%s:", store->scheme);
        snprintf(locks, sizeof(locks), "exclusive%s%s", store->shares ? ", shared" : "",
                 store->permits ? ", permits" : "");
        printf("%-17s %-12s %-27s %-6s %-7s %-6s %-6s %-6s %-6s %s%s\n", scheme, store->tier, locks,
               store->queues ? "yes" : "no", store->lease_each ? "hold" : "client",
               store->token_floor ? "yes" : "no", store->pushes ? "yes" : "no",
               store->counts ? "yes" : "no", store->permits && store->keeps ? "yes" : "no",
               store->available ? "" : "missing: ", store->summary);
    }
    print_missing();
}

static void print_json(void) {
    const hf_store_info *store;
    struct json json = {.file = stdout};
    json_array(&json, NULL);
    for (size_t i = 0; (store = hf_store_at(i)); i++) {
        json_object(&json, NULL);
        json_string(&json, "scheme", store->scheme);
        json_string(&json, "tier", store->tier);
        json_bool(&json, "shared", store->shares);
        json_bool(&json, "permits", store->permits);
        json_bool(&json, "queue", store->queues);
        json_bool(&json, "lease_each", store->lease_each);
        json_bool(&json, "token_floor", store->token_floor);
        json_bool(&json, "pushes", store->pushes);
        json_bool(&json, "barge", store->barges);
        json_bool(&json, "counts", store->counts);
        json_bool(&json, "keep", store->keeps);
        json_bool(&json, "available", store->available);
        json_string(&json, "missing", store->missing);
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
    .summary = "list the stores that can keep locks",
    .usage = "stores [--json]",
    .prints_json = true,
    .without_settings = true,
    .details =
        "A URL names a store; man holdfast (STORES) has its form and options. The tier of a store\n"
        "says what its locks are worth: strict (nothing that was acknowledged is forgotten),\n"
        "timed (as good as the clock and the disk of one server), best effort (a fail-over or a\n"
        "restart may lose them).\n"
        "\n"
        "A store with a queue serves waiters in the order in which they came. Each hold has its\n"
        "own lease, or all holds of a client share one. If a store has a floor, a program can\n"
        "make tokens start above a number, for example after a backup was restored. A store that\n"
        "pushes reports events to 'watch' as they happen; others are polled. COUNT says whether\n"
        "the store has counters (see 'count'), and LIMIT whether 'limit' works, which needs\n"
        "permits that outlast their client ('keep'). 'limit --fixed' needs only counters that\n"
        "expire.\n"
        "\n"
        "--json prints an array of objects: scheme, tier, summary, missing (which module, or "
        "\"\"),\n"
        "and true or false for shared, permits, queue, lease_each, token_floor, pushes, "
        "barge,\n"
        "counts, keep, available.\n"
        "\n"
        "Examples:\n"
        "  holdfast stores\n"
        "  holdfast stores --json\n",
    .run = run,
};
