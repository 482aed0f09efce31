/* holdfast quorum: declares a set of servers new, so that they vote at once. */
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE_MS = 10000 };

/* The URL with init=yes; NULL: no memory. */
static char *with_init(const char *url) {
    char *ret = NULL;
    const char *joint = strstr(url, "init=yes") ? "" : strchr(url, '?') ? "&init=yes" : "?init=yes";
    return asprintf(&ret, "%s%s", url, joint) < 0 ? NULL : ret;
}

/* A vote for a name of its own is what declares the set, on every node that gets to see it. */
static int vote(hf_client *client) {
    char name[80];
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_hold *hold;
    snprintf(name, sizeof(name), "holdfast-quorum-init-%ld", (long)getpid());
    options.wait_ms = PATIENCE_MS;
    int r = hf_acquire(client, name, &options, &hold);
    if (r < 0)
        return r;
    r = hf_release(hold); /* which waits for a quorum, as a rule behind the others' votes */
    hf_hold_free(hold);
    return r;
}

static bool is_of_node(const hf_finding *finding) {
    return strcmp(finding->id, "vote") == 0 || strcmp(finding->id, "node") == 0;
}

static size_t print_nodes(const struct cli *cli, const hf_examination *found) {
    struct json json = {.file = stdout};
    size_t missing = 0;
    if (cli->json)
        json_array(&json, NULL);
    for (size_t i = 0; i < found->count; i++) {
        const hf_finding *finding = found->findings[i];
        char safe[700];
        if (!is_of_node(finding))
            continue;
        bool votes = finding->severity == HF_FINE;
        missing += !votes;
        if (cli->json) {
            json_object(&json, NULL);
            json_bool(&json, "votes", votes);
            json_string(&json, "found", finding->found);
            json_object_end(&json);
        } else if (!cli->quiet || !votes) {
            printf("%-8s %s\n", votes ? "ok" : "missing",
                   text_safe(safe, sizeof(safe), finding->found));
        }
    }
    if (cli->json) {
        json_array_end(&json);
        json_end(&json);
    }
    return missing;
}

static int init(struct cli *cli) {
    hf_client *client;
    hf_examination *found;
    int r = store_open(cli, NULL, &client);
    if (r < 0)
        return fail_exit_code(r);
    r = vote(client);
    if (!r)
        r = hf_examine(client, &found);
    int code = r < 0 ? fail_error(cli, r, "cannot declare the set") : EXIT_SUCCESS;
    if (!r) {
        code = print_nodes(cli, found) ? EXIT_UNREACHABLE : EXIT_SUCCESS;
        hf_examination_free(found);
    }
    hf_client_close(client);
    return code;
}

static int run(struct cli *cli, int argc, char **argv) {
    const char *words[1];
    int r = options_parse_words(cli, &quorum_command, NULL, argc, argv, 1, 1, words);
    if (r < 0)
        return options_exit_code(r);
    if (strcmp(words[0], "init") != 0)
        return fail_usage("quorum has one word: init; try: holdfast help quorum");
    if (!cli->url || strncmp(cli->url, "quorum+", 7) != 0)
        return fail_usage(
            "the store is no set of servers; try: --url quorum+redis://HOST1,HOST2,HOST3");
    char *url = with_init(cli->url);
    if (!url)
        return fail_error(cli, HF_NO_MEMORY, "cannot declare the set");
    cli->url = url;
    int code = init(cli);
    free(url);
    return code;
}

const struct command quorum_command = {
    .name = "quorum",
    .summary = "declare a set of servers new",
    .usage = "quorum init [--json]",
    .run = run,
    .details = "A server of a set (--url quorum+redis://HOST1,HOST2,HOST3) that has forgotten its "
               "locks, or never\n"
               "had any, does not vote before the longest lease is over: somebody may still hold "
               "one that it gave.\n"
               "'quorum init' says that nobody does, and all vote at once. Say it once, before the "
               "first lock; after\n"
               "a restart only if all programs that lock have been stopped for as long.\n"
               "\n"
               "Prints a line for each server. Exit code: 0 all vote, 69 some do not.\n"
               "\n"
               "--json: [{\"votes\": true or false, \"found\": a sentence with the server's "
               "name}]. More keys may come.\n"
               "\n"
               "Examples:\n"
               "  holdfast --url quorum+redis://a.example,b.example,c.example quorum init\n",
};
