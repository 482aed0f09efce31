/* holdfast elect: runs a command on the leader, which is the process that holds the lock.
 *
 * A term is a run (run.h) with all its safeguards: the command ends before anybody else can lead.
 * After a loss the next term begins, with a new keeper and a new client. So what a term leaves
 * behind, such as a connection that hangs, does not affect the next. */
#include "cli/json.h"
#include "cli/look.h"
#include "cli/run.h"
#include "cli/text.h"

#include <inttypes.h>
#include <string.h>

enum { OBSERVE_MS = 10000 };

struct elect_settings {
    struct run_settings run; /* first: run_parse needs it there */
    bool observe;
};

#define AT(field) offsetof(struct elect_settings, field)
static const struct option options[] = {
    {0, OPTION_TEXT, "value", AT(run.ask.label), "TEXT",
     "what observers see beside the leader (its address, say)"},
    {0, OPTION_DURATION, "ttl", AT(run.ask.ttl_ms), "DUR", "the lease, which is renewed (30s)",
     "30s"},
    {0, OPTION_DURATION, "grace", AT(run.grace_ms), "DUR",
     "from TERM to KILL when it must end (ttl/4, at most 5s)", "ttl/4, at most 5s"},
    {0, OPTION_DURATION, "store-wait", AT(run.ask.store_wait_ms), "DUR",
     "how long to wait for a store that has never answered (10s)", "10s"},
    {'c', OPTION_TEXT, "command", AT(run.shell_command), "STRING", "run STRING through /bin/sh"},
    {0, OPTION_FLAG, "observe", AT(observe), NULL, "print who leads, whenever it changes"},
    {0},
};

/* ---- Leading ---- */

static int lead(struct run_settings *s) {
    char name[LOOK_NAME_SIZE];
    bool again = true;
    int code;
    s->again = true;
    for (;;) {
        code = run_start(s, &again);
        if (!again)
            return code;
        s->reached = true;
        if (!s->cli->quiet)
            say(SAY_INFO, "campaigning for %s again", text_safe(name, sizeof(name), s->name));
    }
}

/* ---- Observing ---- */

static void put_json(const char *name, const hf_leader *leader) {
    struct json json = {.file = stdout};
    json_object(&json, NULL);
    json_number(&json, "at_ms", look_wall_ms());
    json_string(&json, "name", name);
    json_token(&json, "token", leader->token);
    json_string(&json, "value", leader->token ? leader->value : NULL);
    json_string(&json, "host", leader->token ? leader->host : NULL);
    json_number(&json, "pid", leader->pid);
    json_number(&json, "since_ms", leader->since_ms);
    json_object_end(&json);
    json_end(&json);
}

static void put_text(const hf_leader *leader) {
    char when[32], who[LOOK_PARTY_SIZE];
    hf_party party = {.size = sizeof(party),
                      .host = leader->host,
                      .command = "",
                      .label = leader->value,
                      .owner = "",
                      .pid = leader->pid,
                      .token = leader->token};
    look_time(when, sizeof(when), look_wall_ms());
    if (leader->token)
        printf("%s %s · token %" PRIu64 "\n", when, look_party(who, sizeof(who), &party),
               leader->token);
    else
        printf("%s no leader\n", when);
}

static int put(const struct cli *cli, const char *name, const hf_leader *leader) {
    if (cli->json)
        put_json(name, leader);
    else
        put_text(leader);
    return say_flush(0);
}

static bool is_away(int error) {
    return error == HF_UNREACHABLE || error == HF_UNKNOWN;
}

static int follow(const struct cli *cli, hf_client *client, const char *name) {
    hf_leader leader = HF_LEADER_INIT;
    char text[900];
    bool away = false;
    int r = hf_observe(client, name, 0, 0, &leader), code = 0;
    if (r == HF_OK || r == HF_TIMEOUT)
        code = put(cli, name, &leader);
    while (!code && (r == HF_OK || r == HF_TIMEOUT || is_away(r))) {
        if (is_away(r) && !away && !cli->quiet) {
            fail_text(text, sizeof(text), cli, r, hf_last_error(), "cannot see who leads");
            say(SAY_WARNING, "%s; trying again", text);
        }
        away = is_away(r);
        r = hf_observe(client, name, leader.token, OBSERVE_MS, &leader);
        if (r == HF_OK)
            code = put(cli, name, &leader);
    }
    return code ? code : fail_error(cli, r, "cannot observe the leader");
}

static int observe(const struct cli *cli, const char *name) {
    hf_client *client = NULL;
    int r = fail_name(name);
    if (r)
        return r;
    r = store_open(cli, NULL, &client);
    if (r < 0)
        return fail_exit_code(r);
    r = follow(cli, client, name);
    hf_client_close(client);
    return r;
}

/* ---- The command ---- */

static int run(struct cli *cli, int argc, char **argv) {
    struct elect_settings s = {.run = RUN_SETTINGS_INIT(cli)};
    int at = run_parse(&elect_command, cli, &s.run, argc, argv);
    if (at < 0)
        return options_exit_code(at);
    if (s.observe && (argv[at] || s.run.shell_command))
        return fail_usage("--observe runs no command");
    if (s.observe)
        return observe(cli, s.run.name);
    int r = run_check(&elect_command, &s.run, argv + at);
    return r ? r : lead(&s.run);
}

const struct command elect_command = {
    .name = "elect",
    .summary = "run a command on the leader, and only there",
    .usage = "elect NAME [options] [--] COMMAND [ARG...] | elect NAME --observe [--json]",
    .options = options,
    .prints_json = true,
    .run = run,
    .details =
        "The leader is the holder of the lock NAME. Start this on every host that may lead:\n"
        "one runs COMMAND, the others wait and print who leads. If leadership cannot be renewed "
        "in\n"
        "time, COMMAND and all its descendants get TERM, and then KILL before anybody else can\n"
        "lead. If it is lost in another way ('holdfast break', a deletion in the store), somebody\n"
        "else can lead at once, and COMMAND is ended as soon as that is noticed. Then elect\n"
        "campaigns again.\n"
        "\n"
        "If COMMAND ends on its own, elect resigns and exits with COMMAND's exit code, whatever\n"
        "that is: let a supervisor start it again. TERM, INT and QUIT go to COMMAND, and elect\n"
        "does not campaign again after them; it resigns when COMMAND has ended. Once the store\n"
        "has been reached, elect waits for it without a limit.\n"
        "\n"
        "COMMAND has the environment that 'holdfast run' gives it: HOLDFAST_TOKEN fences what the\n"
        "leader writes.\n"
        "\n"
        "--observe prints who leads now, and again whenever that changes, until it is stopped. A\n"
        "store that pushes reports changes at once; others are polled every second. An observer\n"
        "only knows who led a moment ago. --json: one object on a line, with at_ms, name, token "
        "(a\n"
        "string), value, host, pid and since_ms; token is null if nobody leads.\n"
        "\n"
        "Exit code: COMMAND's own, or 128 + the signal that ended it; 64 usage, 69 store\n"
        "unreachable, 70 internal, 77 not permitted, 78 configuration, 79 leadership was lost\n"
        "after elect was asked to end, 126 and 127 COMMAND cannot be executed.\n"
        "\n"
        "Examples:\n"
        "  holdfast elect scheduler --value \"$(hostname):8080\" -- ./scheduler\n"
        "  holdfast elect scheduler --ttl 10s -c 'ip addr add 10.0.0.9/24 dev eth0; sleep inf'\n"
        "  holdfast elect scheduler --observe\n",
};
