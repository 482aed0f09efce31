/* holdfast break: an operator ends somebody else's hold.
 *
 * The token identifies the hold that the operator looked at. If the lock has been released and
 * taken again since, nothing happens. */
#include "cli/look.h"
#include "cli/options.h"
#include "cli/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_DECLINED = 1, REASON_MAX = 255 };

struct settings {
    int64_t token; /* -1: not given */
    const char *reason;
    bool yes;
};

#define AT(field) offsetof(struct settings, field)
static const struct option options[] = {
    {0, OPTION_NUMBER, "token", AT(token), "N", "the hold to break: inspect shows its token"},
    {0, OPTION_TEXT, "reason", AT(reason), "TEXT", "why; inspect shows it (at most 255 bytes)"},
    {'y', OPTION_FLAG, "yes", AT(yes), NULL, "do not ask"},
    {0},
};

/* ---- Who is who ---- */

/* Who others will see as having broken the lock: "holdfast break by eve". */
static void name_oneself(char *ret, size_t size) {
    const struct passwd *user = getpwuid(getuid());
    if (user)
        snprintf(ret, size, "holdfast break by %s", user->pw_name);
    else
        snprintf(ret, size, "holdfast break by uid %u", (unsigned)getuid());
}

/* "held by web3 pid 411 (deploy.sh) for 4m10s", safe on a terminal. */
static void describe(char *ret, size_t size, const hf_party *holder) {
    char who[LOOK_PARTY_SIZE], time[32] = "";
    if (holder->since_ms)
        text_duration(time, sizeof(time), look_wall_ms() - holder->since_ms);
    snprintf(ret, size, "held by %s%s%s", look_party(who, sizeof(who), holder),
             *time ? " for " : "", time);
}

/* The name as it can be typed in a shell, safe to print. */
static void typed(char *ret, size_t size, const char *name) {
    bool plain = *name && *name != '-';
    for (const char *c = name; *c; c++)
        plain = plain && (isalnum((unsigned char)*c) || strchr("._/:@%+=,-", *c));
    char *quoted = plain ? NULL : text_shell_quoted(name);
    text_safe(ret, size, quoted ? quoted : name);
    free(quoted);
}

/* ---- When there is no such hold ---- */

static int say_no_token(const char *name, const hf_lock_info *info) {
    char safe[LOOK_NAME_SIZE], word[LOOK_NAME_SIZE], who[LOOK_PARTY_SIZE];
    const hf_party *holder = info ? look_first_holder(info) : NULL;
    text_safe(safe, sizeof(safe), name);
    typed(word, sizeof(word), name);
    if (!holder)
        return fail_usage("--token is missing, and nobody holds %s: there is nothing to break",
                          safe);
    describe(who, sizeof(who), holder);
    return fail_usage("--token is missing: it says which hold you mean; %s is %s; if you mean that "
                      "one: holdfast break %s --token %" PRIu64,
                      safe, who, word, holder->token);
}

static int say_no_such_hold(const char *name, const hf_lock_info *info, uint64_t token) {
    char safe[LOOK_NAME_SIZE], word[LOOK_NAME_SIZE], who[LOOK_PARTY_SIZE];
    const hf_party *holder = info ? look_first_holder(info) : NULL;
    text_safe(safe, sizeof(safe), name);
    typed(word, sizeof(word), name);
    if (!holder) {
        fail_say("did not break %s (nobody holds it); nothing to do", safe);
        return fail_exit_code(HF_NOT_YOURS);
    }
    describe(who, sizeof(who), holder);
    fail_say("did not break %s (nobody holds it with token %" PRIu64
             ": it is %s with token %" PRIu64
             "); if you mean that one: holdfast break %s --token %" PRIu64,
             safe, token, who, holder->token, word, holder->token);
    return fail_exit_code(HF_NOT_YOURS);
}

/* ---- Asking ---- */

static bool read_yes(void) {
    char line[16] = "";
    if (!fgets(line, sizeof(line), stdin)) {
        fputc('\n', stderr); /* nobody typed one */
        return false;
    }
    return strcasecmp(line, "y\n") == 0 || strcasecmp(line, "yes\n") == 0;
}

static int ask(const char *name, const hf_party *holder) {
    char safe[LOOK_NAME_SIZE], who[LOOK_PARTY_SIZE], left[32];
    describe(who, sizeof(who), holder);
    fprintf(stderr,
            "%s is %s, lease %s.\n"
            "The holder may still be working. It is notified, but may go on until its lease ends.\n"
            "Until then its writes are refused only where tokens are checked.\n"
            "Break it? [y/N] ",
            text_safe(safe, sizeof(safe), name), who,
            text_left(left, sizeof(left), holder->left_ms));
    if (read_yes())
        return EXIT_SUCCESS;
    fail_say("%s was not broken", safe);
    return EXIT_DECLINED;
}

/* ---- Breaking ---- */

static void say_done(struct cli *cli, const hf_lock_info *info, const hf_party *holder) {
    if (cli->json) {
        struct json json = {.file = stdout};
        json_object(&json, NULL);
        json_bool(&json, "broken", true);
        json_string(&json, "name", info->name);
        json_token(&json, "token", holder->token);
        look_put_party(&json, "holder", info, holder);
        json_object_end(&json);
        json_end(&json);
    } else if (!cli->quiet) {
        char safe[LOOK_NAME_SIZE], who[LOOK_PARTY_SIZE], left[32];
        describe(who, sizeof(who), holder);
        printf("broke %s, which was %s; the holder is notified, but may go on for up to %s\n",
               text_safe(safe, sizeof(safe), info->name), who,
               text_duration(left, sizeof(left), holder->left_ms));
    }
}

static int look_at(struct cli *cli, hf_client *client, const char *name, hf_locks **ret_locks) {
    char what[LOOK_NAME_SIZE];
    int r = hf_inspect(client, name, ret_locks);
    snprintf(what, sizeof(what), "cannot look at %s", name);
    return r < 0 ? fail_error(cli, r, what) : EXIT_SUCCESS;
}

/* If the hold has ended since it was looked at, the message describes the current one. */
static int break_now(struct cli *cli, hf_client *client, const char *name,
                     const struct settings *settings) {
    hf_locks *locks;
    char what[LOOK_NAME_SIZE];
    uint64_t token = (uint64_t)settings->token;
    int r = hf_break(client, name, token, settings->reason);
    snprintf(what, sizeof(what), "did not break %s", name);
    if (r == HF_OK)
        return EXIT_SUCCESS;
    if (r != HF_NOT_YOURS || hf_inspect(client, name, &locks) < 0)
        return fail_error(cli, r, what);
    int exit_code = say_no_such_hold(name, hf_locks_at(locks, 0), token);
    hf_locks_free(locks);
    return exit_code;
}

static int break_hold(struct cli *cli, hf_client *client, const struct settings *settings,
                      const hf_lock_info *info, const hf_party *holder) {
    int exit_code = settings->yes ? EXIT_SUCCESS : ask(info->name, holder);
    if (!exit_code)
        exit_code = break_now(cli, client, info->name, settings);
    if (exit_code)
        return exit_code;
    say_done(cli, info, holder);
    return EXIT_SUCCESS;
}

static int break_it(struct cli *cli, hf_client *client, const char *name,
                    const struct settings *settings) {
    hf_locks *locks;
    int exit_code = look_at(cli, client, name, &locks);
    if (exit_code)
        return exit_code;
    const hf_lock_info *info = hf_locks_at(locks, 0);
    uint64_t token = (uint64_t)settings->token;
    const hf_party *holder = info ? look_holder_with(info, token) : NULL;
    if (settings->token < 0)
        exit_code = say_no_token(name, info);
    else if (!holder)
        exit_code = say_no_such_hold(name, info, token);
    else
        exit_code = break_hold(cli, client, settings, info, holder);
    hf_locks_free(locks);
    return exit_code;
}

static int check(const struct settings *settings) {
    if (settings->reason && strlen(settings->reason) > REASON_MAX)
        return fail_usage("--reason has %zu bytes (at most %d are kept); shorten it",
                          strlen(settings->reason), REASON_MAX);
    if (settings->token == 0)
        return fail_usage("--token cannot be 0 (no hold has it); try: holdfast inspect NAME");
    bool can_ask = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    if (settings->token > 0 && !settings->yes && !can_ask)
        return fail_usage("cannot ask for confirmation (there is no terminal); if you are sure, "
                          "add --yes");
    return EXIT_SUCCESS;
}

static int run(struct cli *cli, int argc, char **argv) {
    struct settings settings = {.token = -1};
    hf_client_options client_options = HF_CLIENT_OPTIONS_INIT;
    char self[300];
    const char *name;
    hf_client *client;
    int r = options_parse_words(cli, &break_command, &settings, argc, argv, 1, 1, &name);
    if (r < 0)
        return options_exit_code(r);
    int exit_code = fail_name(name);
    cli->lock = name;
    if (!exit_code)
        exit_code = check(&settings);
    if (exit_code)
        return exit_code;
    name_oneself(self, sizeof(self));
    client_options.command = self;
    r = store_open(cli, &client_options, &client);
    if (r < 0)
        return fail_exit_code(r);
    exit_code = break_it(cli, client, name, &settings);
    hf_client_close(client);
    return exit_code;
}

const struct command break_command = {
    .name = "break",
    .summary = "for operators: end somebody else's hold",
    .usage = "break NAME --token N [--reason TEXT] [--yes]",
    .prints_json = true,
    .options = options,
    .run = run,
    .details =
        "Ends the hold of NAME that has exactly this token. Nothing happens if that hold has been\n"
        "released, or somebody else has the lock. On a terminal it shows who holds the lock and\n"
        "asks; elsewhere it needs --yes.\n"
        "\n"
        "The holder is notified at once that its lock is lost. `holdfast run` then ends its\n"
        "command, after its grace period at the latest. A holder that cannot be notified notices\n"
        "at its next renewal, or when its lease ends if it cannot reach the store either: break\n"
        "says how long that may take. Meanwhile somebody else may get the lock. The next token is\n"
        "larger, so a resource that checks tokens refuses what the old holder still writes. The\n"
        "store records when, by whom and why; holdfast inspect NAME shows it.\n"
        "\n"
        "Exit code 0: broken; 1: you said no; 79: nobody holds it with that token.\n"
        "\n"
        "Examples:\n"
        "  holdfast inspect nightly\n"
        "  holdfast break nightly --token 1785676992000001 --reason 'db1 is gone, OPS-17'\n"
        "  holdfast break nightly --token 1785676992000001 --yes\n",
};
