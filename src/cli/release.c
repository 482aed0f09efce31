/* holdfast release: ends what holdfast acquire began. */
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
    .summary = "for scripts: let go of what acquire took",
    .usage = "release [HOLD]",
    .without_settings = true,
    .run = run,
    .details = "HOLD is what acquire printed as HOLDFAST_HOLD; without it, that variable counts. "
               "Exit code 79:\n"
               "the lock was lost, or released before.\n"
               "\n"
               "Examples:\n"
               "  holdfast release\n"
               "  holdfast release \"$HOLDFAST_HOLD\"\n",
};
