/* holdfast watch: what happens to locks, as it happens. */
#include "cli/watch.h"

#include "cli/lock_table.h"
#include "cli/options.h"

#include <unistd.h>

enum { EVERY_MS = 1000, EVERY_LEAST_MS = 50 };

struct settings {
    int64_t every_ms;
};

static const struct option options[] = {
    {0, OPTION_DURATION, "every", offsetof(struct settings, every_ms), "DUR",
     "how often to poll the store (1s; at least 50ms)"},
    {0},
};

static int run(struct cli *cli, int argc, char **argv) {
    struct settings settings = {EVERY_MS};
    struct watch watch = {.cli = cli};
    int r = options_parse_words(cli, &watch_command, &settings, argc, argv, 0, 1, &watch.prefix);
    if (r < 0)
        return options_exit_code(r);
    if (settings.every_ms < EVERY_LEAST_MS)
        return fail_usage("--every must be at least 50ms (each poll is work for the store)");
    watch.every_ms = settings.every_ms;
    r = store_open(cli, NULL, &watch.client);
    if (r < 0)
        return fail_exit_code(r);
    bool live = isatty(STDOUT_FILENO) && table_can_draw() && !cli->json;
    int exit_code = live ? watch_screen(&watch) : watch_events(&watch);
    hf_client_close(watch.client);
    return exit_code;
}

const struct command watch_command = {
    .name = "watch",
    .summary = "show locks live; in a pipe, print what happens to them",
    .usage = "watch [--every DUR] [--json] [PREFIX]",
    .prints_json = true,
    .options = options,
    .run = run,
    .details =
        "On a terminal: the table of ls, updated continuously; q or Ctrl-C ends it. Elsewhere, "
        "and\n"
        "with TERM=dumb or --json: a line for each event.\n"
        "\n"
        "A store that pushes ('holdfast stores' shows which do) reports events as they happen, "
        "with\n"
        "their time. It is also polled every DUR, for what nobody reports: the end of leases, and\n"
        "what other programs do. A store that does not push is only polled, so what begins and\n"
        "ends between two polls is not seen. watch says so, and says when events may be missing.\n"
        "\n" LOCK_TABLE_HELP "\n"
        "Events:\n"
        "  held      the lock was held when the watch began\n"
        "  waiting   somebody waits for it (also: waited when the watch began)\n"
        "  acquired  somebody acquired it\n"
        "  released  it was released; from a poll also: its process died\n"
        "  lost      the hold is gone; its lease may have ended unrenewed since the last poll\n"
        "  broken    an operator broke it; by whom and why follows\n"
        "  left      somebody stopped waiting without getting it\n"
        "\n"
        "--json: one object on a line, with event, at_ms, exact, name and party (as in inspect\n"
        "--json); broken also has by and reason. Tokens are strings. at_ms is when it happened if\n"
        "exact is true, otherwise when a poll saw it. Three more events are about the watch itself "
        "and\n"
        "have event, at_ms and reason: watching (from here on events are complete), missed (some "
        "may be\n"
        "missing until the next watching), polling (the store does not push).\n"
        "\n"
        "Examples:\n"
        "  holdfast watch\n"
        "  holdfast watch deploy/ --every 200ms\n"
        "  holdfast watch --json | jq -r 'select(.event == \"lost\") | .name'\n",
};
