/* holdfast renew: restarts the time of holdfast acquire --for, and reports whether the lock is
 * still held. */
#include "cli/holder.h"
#include "cli/json.h"
#include "cli/options.h"

#include <stdio.h>
#include <stdlib.h>

struct settings {
    int64_t for_ms;
};

static const struct option options[] = {
    {0, OPTION_DURATION, "for", offsetof(struct settings, for_ms), "DUR",
     "the time from now on (default: as given to acquire)"},
    {0},
};

static void print(const struct holder_reply *reply) {
    struct json json = {.file = stdout};
    json_object(&json, NULL);
    json_token(&json, "token", reply->token);
    json_number(&json, "left_ms", reply->left_ms);
    json_object_end(&json);
    json_end(&json);
}

static int run(struct cli *cli, int argc, char **argv) {
    struct settings s = {.for_ms = -1};
    const char *word;
    int r = options_parse_words(cli, &renew_command, &s, argc, argv, 0, 1, &word);
    if (r < 0)
        return options_exit_code(r);
    const char *id = holder_id(word);
    if (!id || holder_check_for(s.for_ms))
        return EXIT_USAGE;
    struct holder_request request = {.verb = HOLDER_RENEW, .for_ms = s.for_ms};
    struct holder_reply reply;
    r = holder_ask(id, &request, &reply);
    if (r == HF_OK)
        r = reply.error;
    if (r < 0)
        return holder_failed(cli, r);
    if (cli->json)
        print(&reply);
    return EXIT_SUCCESS;
}

const struct command renew_command = {
    .name = "renew",
    .summary = "for scripts: restart the time of acquire --for",
    .usage = "renew [HOLD] [--for DUR]",
    .prints_json = true,
    .without_settings = true,
    .options = options,
    .run = run,
    .details = "Restarts the time of acquire --for, and tells you whether the lock is still held:\n"
               "exit code 79 means no. The lease in the store is renewed automatically.\n"
               "\n"
               "Examples:\n"
               "  holdfast renew || exit\n"
               "  holdfast renew --for 20m\n",
};
