/* holdfast ls: the locks that are held or waited for. */
#include "cli/lock_table.h"
#include "cli/look.h"
#include "cli/options.h"

#include <stdlib.h>
#include <unistd.h>

enum { PORTION = 200 }; /* rows that are kept to find the width of the columns */

struct settings {
    bool waiting;
};

struct listing {
    bool waiting, no_memory;
    struct json *json; /* NULL: the table */
    struct table *table;
};

static const struct option options[] = {
    {'w', OPTION_FLAG, "waiting", offsetof(struct settings, waiting), NULL,
     "only those that somebody waits for"},
    {0},
};

static bool print_lock(void *arg, const hf_lock_info *info) {
    struct listing *listing = arg;
    if (listing->waiting && !info->waiter_count)
        return true;
    if (listing->json) {
        json_object(listing->json, NULL);
        look_put_lock(listing->json, info);
        json_object_end(listing->json);
        json_end(listing->json);
        return true;
    }
    listing->no_memory = !lock_table_add(listing->table, info);
    if (listing->table->row_count == PORTION)
        table_flush(listing->table);
    return !listing->no_memory;
}

static int list(struct cli *cli, hf_client *client, const char *prefix, bool waiting) {
    struct json json = {.file = stdout};
    struct table table = {.file = stdout, .columns = lock_columns, .column_count = LOCK_COLUMNS};
    struct listing listing = {waiting, false, cli->json ? &json : NULL, &table};
    table.width = table_terminal_size(STDOUT_FILENO, NULL);
    table.color = table.width && table_wants_color();
    int r = look_each(client, prefix, print_lock, &listing);
    if (!cli->json && (r == HF_OK || table.titled))
        table_flush(&table);
    table_free(&table);
    if (r == HF_OK && listing.no_memory)
        r = HF_NO_MEMORY;
    if (r < 0) {
        fflush(stdout);
        return fail_error(cli, r, "cannot list the locks");
    }
    return EXIT_SUCCESS;
}

static int run(struct cli *cli, int argc, char **argv) {
    struct settings settings = {false};
    const char *prefix;
    hf_client *client;
    int r = options_parse_words(cli, &ls_command, &settings, argc, argv, 0, 1, &prefix);
    if (r < 0)
        return options_exit_code(r);
    r = store_open(cli, NULL, &client);
    if (r < 0)
        return fail_exit_code(r);
    int exit_code = list(cli, client, prefix, settings.waiting);
    hf_client_close(client);
    return exit_code;
}

const struct command ls_command = {
    .name = "ls",
    .summary = "list the locks that are held or waited for",
    .usage = "ls [-w] [PREFIX]",
    .prints_json = true,
    .options = options,
    .run = run,
    .details =
        "Lists the locks whose names begin with PREFIX (not a pattern), in the order of their "
        "names.\n"
        "\n" LOCK_TABLE_HELP "\n"
        "On a terminal the table fits its width, and long texts are cut. Elsewhere nothing is cut, "
        "and tabs\n"
        "separate the columns. --json prints the object of inspect for each lock, one on a line.\n"
        "\n"
        "Examples:\n"
        "  holdfast ls\n"
        "  holdfast ls deploy/\n"
        "  holdfast ls --waiting\n"
        "  holdfast ls --json | jq -r 'select(.waiters != []) | .name'\n",
};
