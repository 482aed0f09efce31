/* holdfast inspect: everything about one lock. */
#include "cli/look.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_FREE = 1, UNCUT = 10000 };

/* ---- For people ---- */

static void print_since(int64_t since_ms) {
    char when[32], ago[32];
    if (since_ms)
        printf(" since %s (%s)", look_time(when, sizeof(when), since_ms),
               text_duration(ago, sizeof(ago), look_wall_ms() - since_ms));
}

static void print_holder(const hf_lock_info *info, const hf_party *holder) {
    char who[LOOK_PARTY_SIZE], words[LOOK_NAME_SIZE], left[32];
    printf("  holder   %s", look_process(who, sizeof(who), holder));
    print_since(holder->since_ms);
    printf("\n");
    if (*holder->command)
        printf("  command  %s\n", text_safe(words, sizeof(words), holder->command));
    if (*holder->label && !look_is_foreign(holder))
        printf("  label    %s\n", text_safe(words, sizeof(words), holder->label));
    if (info->kind == HF_PERMITS)
        printf("  permits  %u\n", (unsigned)holder->weight);
    printf("  lease    %s\n", text_left(left, sizeof(left), holder->left_ms));
    printf("  token    %" PRIu64 "\n", holder->token);
    if (info->quorum)
        printf("  votes    %" PRIu32 " of %zu, and %" PRIu32 " are needed\n", holder->votes,
               info->node_count, info->quorum);
}

/* A set has no queue: these have votes, but too few of them. */
static void print_queue(const hf_lock_info *info) {
    char who[LOOK_PARTY_SIZE];
    if (!info->waiter_count)
        return;
    if (info->quorum)
        printf("\n  without a quorum: %zu\n", info->waiter_count);
    else
        printf("\n  queue    %zu waiting\n", info->waiter_count);
    for (size_t i = 0; i < info->waiter_count; i++) {
        const hf_party *party = info->waiters[i];
        printf("  %6zu   %s", i + 1, look_party(who, sizeof(who), party));
        print_since(party->since_ms);
        if (info->quorum)
            printf(", %" PRIu32 " of %zu votes", party->votes, info->node_count);
        printf("\n");
    }
}

static void print_break(const hf_lock_info *info) {
    char when[32], by[LOOK_PARTY_SIZE], reason[LOOK_NAME_SIZE];
    if (!info->broken_ms)
        return;
    printf("\n  broken   %s by %s\n", look_time(when, sizeof(when), info->broken_ms),
           text_safe(by, sizeof(by), info->broken_by));
    printf("  token    %" PRIu64 " was broken\n", info->broken_token);
    if (*info->broken_reason)
        printf("  reason   %s\n", text_safe(reason, sizeof(reason), info->broken_reason));
}

static const struct table_column node_columns[] = {
    {"NODE"},
    {"VOTE", .shrink = true},
    {"OWNER"},
    {"TOKEN", .right = true},
    {"LEFT", .right = true},
};
enum {
    NODE_COLUMNS = sizeof(node_columns) / sizeof(node_columns[0]),
    VOTE_COLUMN = 1,
    TOKEN_COLUMN = 3
};

/* The node has a smaller token for the holder than the hold has. */
static bool is_behind(const hf_lock_info *info, const hf_party *vote) {
    for (size_t i = 0; i < info->holder_count; i++) {
        if (strcmp(info->holders[i]->owner, vote->owner) == 0)
            return vote->token < info->holders[i]->token;
    }
    return false;
}

static bool add_vote(struct table *table, const hf_lock_info *info, const char *node,
                     const hf_party *vote) {
    char owner[LOOK_NAME_SIZE], who[LOOK_PARTY_SIZE], token[40];
    char left[32] = "-";
    bool behind = is_behind(info, vote);
    look_process(who, sizeof(who), vote);
    snprintf(token, sizeof(token), "%s%" PRIu64, behind ? "behind: " : "", vote->token);
    if (vote->left_ms >= 0) /* -1: it has no end */
        text_duration(left, sizeof(left), vote->left_ms);
    text_safe(owner, sizeof(owner), vote->owner);
    return table_add(table, (const char *[]){node, who, owner, token, left},
                     behind ? TOKEN_COLUMN : -1);
}

static bool add_node(struct table *table, const hf_lock_info *info, const hf_node *node) {
    char name[LOOK_NAME_SIZE], words[LOOK_NAME_SIZE] = "nobody", token[24] = "-";
    bool ok = true;
    text_safe(name, sizeof(name), node->name);
    for (size_t i = 0; ok && i < node->holder_count; i++)
        ok = add_vote(table, info, name, node->holders[i]);
    if (node->holder_count)
        return ok;
    if (*node->failure)
        text_safe(words, sizeof(words), node->failure);
    else if (!node->token)
        snprintf(words, sizeof(words), "nobody: it does not know the lock");
    if (node->token)
        snprintf(token, sizeof(token), "%" PRIu64, node->token);
    return table_add(table, (const char *[]){name, words, "-", token, "-"},
                     *node->failure ? VOTE_COLUMN : -1);
}

/* Prints the nodes of a set as a table. False: no memory. */
static bool print_nodes(const hf_lock_info *info) {
    struct table table = {.file = stdout, .columns = node_columns, .column_count = NODE_COLUMNS};
    bool ok = true;
    if (!info->node_count)
        return true;
    table.width = table_terminal_size(STDOUT_FILENO, NULL);
    table.color = table.width && table_wants_color();
    if (!table.width)
        table.width = UNCUT; /* indented like everything else that inspect prints */
    printf("\n");
    for (size_t i = 0; ok && i < info->node_count; i++)
        ok = add_node(&table, info, info->nodes[i]);
    table_flush(&table);
    table_free(&table);
    return ok;
}

/* Whether the nodes that did not answer might have given somebody enough votes to be the holder. */
static bool may_be_held(const hf_lock_info *info) {
    size_t votes = look_most_votes(info)->votes;
    for (size_t i = 0; i < info->node_count; i++)
        votes += *info->nodes[i]->failure != 0;
    return votes >= info->quorum;
}

static bool print_text(const char *name, const hf_lock_info *info) {
    char safe[LOOK_NAME_SIZE], kind[40];
    printf("%s: ", text_safe(safe, sizeof(safe), name));
    if (!info) {
        printf("free, and not known to this store\n");
        return true;
    }
    if (info->holder_count)
        printf("held, %s\n", look_kind(kind, sizeof(kind), info));
    else if (info->waiter_count && info->quorum)
        printf("%s: nobody is seen to have %" PRIu32 " votes\n",
               may_be_held(info) ? "perhaps held" : "not held", info->quorum);
    else if (info->waiter_count)
        printf("about to go to the first in the queue\n");
    else
        printf("free; the last token was %" PRIu64 "\n", info->token);
    for (size_t i = 0; i < info->holder_count; i++) {
        if (i)
            printf("\n");
        print_holder(info, info->holders[i]);
    }
    print_queue(info);
    print_break(info);
    return print_nodes(info);
}

/* ---- For programs ---- */

static void print_json(const char *name, const hf_lock_info *info) {
    static const char *const nothing[] = {"kind", "capacity", "token"};
    struct json json = {.file = stdout};
    json_object(&json, NULL);
    if (info) {
        look_put_lock(&json, info);
    } else {
        json_string(&json, "name", name);
        json_bool(&json, "held", false);
        for (size_t i = 0; i < sizeof(nothing) / sizeof(*nothing); i++)
            json_string(&json, nothing[i], NULL);
        json_array(&json, "holders");
        json_array_end(&json);
        json_array(&json, "waiters");
        json_array_end(&json);
        json_string(&json, "broken", NULL);
        json_number(&json, "quorum", 0);
        json_array(&json, "nodes");
        json_array_end(&json);
    }
    json_object_end(&json);
    json_end(&json);
}

/* ---- The command ---- */

static int inspect(struct cli *cli, hf_client *client, const char *name) {
    hf_locks *locks;
    int r = hf_inspect(client, name, &locks);
    if (r < 0) {
        char what[LOOK_NAME_SIZE + 32];
        snprintf(what, sizeof(what), "cannot look at %s", name);
        return fail_error(cli, r, what);
    }
    const hf_lock_info *info = hf_locks_at(locks, 0);
    int exit_code = info && info->holder_count ? EXIT_SUCCESS : EXIT_FREE;
    if (cli->json)
        print_json(name, info);
    else if (!cli->quiet && !print_text(name, info))
        exit_code = fail_error(cli, HF_NO_MEMORY, "cannot show the nodes");
    hf_locks_free(locks);
    return exit_code;
}

static int run(struct cli *cli, int argc, char **argv) {
    const char *name;
    hf_client *client;
    int r = options_parse_words(cli, &inspect_command, NULL, argc, argv, 1, 1, &name);
    if (r < 0)
        return options_exit_code(r);
    int exit_code = fail_name(name);
    cli->lock = name;
    if (exit_code)
        return exit_code;
    r = store_open(cli, NULL, &client);
    if (r < 0)
        return fail_exit_code(r);
    exit_code = inspect(cli, client, name);
    hf_client_close(client);
    return exit_code;
}

const struct command inspect_command = {
    .name = "inspect",
    .summary = "show one lock: who holds it, who waits",
    .usage = "inspect [--json] [-q] NAME",
    .prints_json = true,
    .run = run,
    .details =
        "Shows who holds the lock (host, process, command, label, since when, how much of the\n"
        "lease is left, token), who waits, in the order of the queue, and who broke it last,\n"
        "when and why. This changes nothing.\n"
        "\n"
        "With quorum+redis: there is a row for each server: who has its vote, with which token,\n"
        "and how much of the lease is left; or why it did not answer. \"behind\" means that its\n"
        "token is smaller than the lock's.\n"
        "\n"
        "Exit code 0: the lock is held; 1: nobody holds it (it is free, or about to go to the\n"
        "first in the queue). -q prints nothing.\n"
        "\n"
        "--json prints one object: name, held, kind (exclusive, shared, permits; null for a name\n"
        "that the store does not know), capacity, token (the largest ever granted), holders and\n"
        "waiters (each with owner, host, pid, command, label, kind, permits, token, since_ms,\n"
        "left_ms, votes), broken (null, or at_ms, token, by, reason), quorum (how many votes are\n"
        "needed; 0: the store is not a quorum), nodes (each with name, failure (null: it\n"
        "answered), token, holders). Anybody with too few votes is among the waiters. Tokens are\n"
        "strings; *_ms are milliseconds, since 1970 for since_ms and at_ms.\n"
        "\n"
        "Examples:\n"
        "  holdfast inspect nightly\n"
        "  holdfast inspect -q nightly && echo 'it is still running'\n"
        "  holdfast inspect --json nightly | jq -r '.holders[0].token'\n",
};
