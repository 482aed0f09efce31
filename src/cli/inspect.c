/* holdfast inspect: everything about one lock. */
#include "cli/look.h"
#include "cli/options.h"
#include "cli/text.h"

#include <inttypes.h>
#include <stdlib.h>

enum { EXIT_FREE = 1 };

/* ---- For people ---- */

static void print_since(int64_t since_ms) {
    char when[32], ago[32];
    if (since_ms)
        printf(" since %s (%s)", look_time(when, sizeof(when), since_ms),
               text_duration(ago, sizeof(ago), look_wall_ms() - since_ms));
}

static void print_holder(const hf_lock_info *info, const hf_party *holder) {
    char host[LOOK_NAME_SIZE], words[LOOK_NAME_SIZE], left[32];
    printf("  holder   %s pid %lld",
           *holder->host ? text_safe(host, sizeof(host), holder->host) : "?",
           (long long)holder->pid);
    print_since(holder->since_ms);
    printf("\n");
    if (*holder->command)
        printf("  command  %s\n", text_safe(words, sizeof(words), holder->command));
    if (*holder->label)
        printf("  label    %s\n", text_safe(words, sizeof(words), holder->label));
    if (info->kind == HF_PERMITS)
        printf("  permits  %u\n", (unsigned)holder->weight);
    printf("  lease    %s\n", text_left(left, sizeof(left), holder->left_ms));
    printf("  token    %" PRIu64 "\n", holder->token);
}

static void print_queue(const hf_lock_info *info) {
    char who[LOOK_PARTY_SIZE];
    if (!info->waiter_count)
        return;
    printf("\n  queue    %zu waiting\n", info->waiter_count);
    for (size_t i = 0; i < info->waiter_count; i++) {
        printf("  %6zu   %s", i + 1, look_party(who, sizeof(who), info->waiters[i]));
        print_since(info->waiters[i]->since_ms);
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

static void print_text(const char *name, const hf_lock_info *info) {
    char safe[LOOK_NAME_SIZE], kind[40];
    printf("%s: ", text_safe(safe, sizeof(safe), name));
    if (!info) {
        printf("free, and not known to this store\n");
        return;
    }
    if (info->holder_count)
        printf("held, %s\n", look_kind(kind, sizeof(kind), info));
    else if (info->waiter_count)
        printf("about to be taken by the first in the queue\n");
    else
        printf("free; the last token was %" PRIu64 "\n", info->token);
    for (size_t i = 0; i < info->holder_count; i++) {
        if (i)
            printf("\n");
        print_holder(info, info->holders[i]);
    }
    print_queue(info);
    print_break(info);
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
    else if (!cli->quiet)
        print_text(name, info);
    hf_locks_free(locks);
    return look_flush(exit_code);
}

static int run(struct cli *cli, int argc, char **argv) {
    const char *name;
    hf_client *client;
    int r = options_parse_words(cli, &inspect_command, NULL, argc, argv, 1, 1, &name);
    if (r < 0)
        return options_exit_code(r);
    r = store_open(cli, NULL, &client);
    if (r < 0)
        return fail_exit_code(r);
    int exit_code = inspect(cli, client, name);
    hf_client_close(client);
    return exit_code;
}

const struct command inspect_command = {
    .name = "inspect",
    .summary = "everything about one lock: who holds it, who waits",
    .usage = "inspect [--json] [-q] NAME",
    .run = run,
    .details =
        "Tells who holds the lock (host, process, command, label, since when, how much of the "
        "lease is left,\n"
        "token), who waits, in the order of the queue, and who broke it last, when and why. "
        "Looking changes\n"
        "nothing.\n"
        "\n"
        "Exit code 0: the lock is held; 1: nobody holds it (it is free, or about to be taken by "
        "the first\n"
        "of the queue). With -q that is all.\n"
        "\n"
        "--json prints one object: name, held, kind (mutex, rw, permits; null for a name that the "
        "store\n"
        "does not know), capacity, token (the largest that was ever granted), holders and waiters "
        "(each with\n"
        "owner, host, pid, command, label, kind, permits, token, since_ms, left_ms), broken (null, "
        "or at_ms,\n"
        "token, by, reason). Tokens are strings; *_ms are milliseconds, since 1970 for since_ms "
        "and at_ms.\n"
        "\n"
        "Examples:\n"
        "  holdfast inspect nightly\n"
        "  holdfast inspect -q nightly && echo 'it is still running'\n"
        "  holdfast inspect --json nightly | jq -r '.holders[0].token'\n",
};
