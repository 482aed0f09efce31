/* holdfast quorum: declares a new set of servers, so that they vote at once. */
#include "base/url.h"
#include "cli/look.h"
#include "cli/options.h"
#include "cli/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 10000, LOOKS = 20, LOOK_AGAIN_MS = 100 };

/* Adds init=yes to the URL. An invalid URL is returned as it is: the library says what is wrong.
 * NULL: no memory. */
static char *with_init(const char *text) {
    char *ret = NULL;
    const char *why, *more = "";
    struct url url;
    if (url_parse(text, &url, &why) == HF_OK) {
        if (!url_option(&url, "init"))
            more = url.option_count ? "&init=yes" : "?init=yes";
        url_free(&url);
    }
    return asprintf(&ret, "%s%s", text, more) < 0 ? NULL : ret;
}

/* A vote for a new name declares the set, on every node that receives it. */
static int vote(hf_client *client, const char *name) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_hold *hold;
    options.wait_ms = PATIENCE_MS;
    int r = hf_acquire(client, name, &options, &hold);
    if (r < 0)
        return r;
    r = hf_release(hold); /* waits for a quorum; by then most of the others have voted as well */
    hf_hold_free(hold);
    return r;
}

/* A node that granted the name remembers its token. */
static bool has_voted(const hf_node *node) {
    return node->token;
}

static bool have_all_voted(const hf_lock_info *info) {
    for (size_t i = 0; i < info->node_count; i++) {
        if (!has_voted(info->nodes[i]))
            return false;
    }
    return true;
}

/* Asks the nodes about the vote, and repeats this for a while if one has not voted yet or does not
 * answer within node_timeout, which is short. */
static int look(hf_client *client, const char *name, hf_locks **ret_locks) {
    for (int tries = LOOKS;; tries--) {
        int r = hf_inspect(client, name, ret_locks);
        const hf_lock_info *info = r < 0 ? NULL : hf_locks_at(*ret_locks, 0);
        if (r < 0 || tries == 1 || (info && have_all_voted(info)))
            return r;
        hf_locks_free(*ret_locks);
        nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_MS * 1000000}, NULL);
    }
}

static void describe(char *ret, size_t size, const hf_node *node) {
    if (has_voted(node))
        snprintf(ret, size, "%s votes", node->name);
    else if (*node->failure)
        snprintf(ret, size, "%s does not answer: %s", node->name, node->failure);
    else
        snprintf(ret, size, "%s does not vote; holdfast doctor says why", node->name);
}

static size_t print_nodes(const struct cli *cli, const hf_lock_info *info) {
    struct json json = {.file = stdout};
    size_t missing = 0;
    if (cli->json)
        json_array(&json, NULL);
    for (size_t i = 0; info && i < info->node_count; i++) {
        char found[700], safe[700];
        bool votes = has_voted(info->nodes[i]);
        missing += !votes;
        describe(found, sizeof(found), info->nodes[i]);
        if (cli->json) {
            json_object(&json, NULL);
            json_bool(&json, "votes", votes);
            json_string(&json, "found", found);
            json_object_end(&json);
        } else if (!cli->quiet || !votes) {
            printf("%-8s %s\n", votes ? "ok" : "missing", text_safe(safe, sizeof(safe), found));
        }
    }
    if (cli->json) {
        json_array_end(&json);
        json_end(&json);
    }
    return missing;
}

static int init(struct cli *cli) {
    char name[80];
    hf_client *client;
    hf_locks *locks;
    int r = store_open(cli, NULL, &client);
    if (r < 0)
        return fail_exit_code(r);
    snprintf(name, sizeof(name), "holdfast-quorum-init-%ld-%" PRId64, (long)getpid(),
             look_wall_ms());
    r = vote(client, name);
    if (!r)
        r = look(client, name, &locks);
    int code = r < 0 ? fail_error(cli, r, "cannot declare the set") : EXIT_SUCCESS;
    if (!r) {
        code = print_nodes(cli, hf_locks_at(locks, 0)) ? EXIT_UNREACHABLE : EXIT_SUCCESS;
        hf_locks_free(locks);
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
        return fail_usage("usage: holdfast quorum init; try: holdfast help quorum");
    if (!cli->url || strncmp(cli->url, "quorum+", 7) != 0)
        return fail_usage(
            "the store is not a set of servers; try: --url quorum+redis://HOST1,HOST2,HOST3");
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
    .summary = "declare a new set of servers",
    .usage = "quorum init [--json]",
    .prints_json = true,
    .run = run,
    .details =
        "A server of a set (--url quorum+redis://HOST1,HOST2,HOST3) that is new or was restarted\n"
        "does not vote until the longest lease has passed: somebody may still hold a lock that\n"
        "it voted for and has forgotten. 'quorum init' declares that nobody does, and all\n"
        "servers vote at once. Run it once, before the first lock; after a restart only if all\n"
        "programs that lock have been stopped for that long.\n"
        "\n"
        "Prints a line for each server. Exit code: 0 all vote, 69 some do not.\n"
        "\n"
        "--json: [{\"votes\": true or false, \"found\": a sentence with the server's name}]. "
        "Later\n"
        "versions may add keys.\n"
        "\n"
        "Examples:\n"
        "  holdfast --url quorum+redis://a.example,b.example,c.example quorum init\n",
};
