/* holdfast release: releases a lock taken by holdfast acquire. */
#include "cli/holder.h"
#include "cli/options.h"

#include <stdlib.h>

static int run(struct cli *cli, int argc, char **argv) {
    const char *word;
    int r = options_parse_words(cli, &release_command, NULL, argc, argv, 0, 1, &word);
    if (r < 0)
        return options_exit_code(r);
    const char *id = holder_id(word);
    if (!id)
        return EXIT_USAGE;
    struct holder_request request = {.verb = HOLDER_RELEASE};
    struct holder_reply reply;
    r = holder_ask(id, &request, &reply);
    if (r == HF_OK)
        r = reply.error;
    return r < 0 ? holder_failed(cli, r) : EXIT_SUCCESS;
}

const struct command release_command = {
    .name = "release",
    .summary = "for scripts: release a lock taken by acquire",
    .usage = "release [HOLD]",
    .without_settings = true,
    .run = run,
    .details = "HOLD is what acquire printed as HOLDFAST_HOLD; it defaults to that variable.\n"
               "Exit code 79: the lock was lost, or already released.\n"
               "\n"
               "Examples:\n"
               "  holdfast release\n"
               "  holdfast release \"$HOLDFAST_HOLD\"\n",
};
