/* Requesting a lock. */
#include "cli/ask.h"

#include "cli/settings.h"
#include "cli/text.h"
#include "cli/wait_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_PATIENCE_MS = 300, TTL_LEAST_MS = 1000, GRACE_MOST_MS = 5000 };

int64_t ask_grace_ms(const struct ask *ask) {
    return ask->ttl_ms / 4 < GRACE_MOST_MS ? ask->ttl_ms / 4 : GRACE_MOST_MS;
}

static int check_ttl(const struct cli *cli, struct ask *ask) {
    int64_t most_ms = cli->max_lease_ms;
    char time[32];
    if (ask->ttl_ms < 0)
        ask->ttl_ms = most_ms < HF_DEFAULT_LEASE_MS ? most_ms : HF_DEFAULT_LEASE_MS;
    if (ask->ttl_ms < TTL_LEAST_MS)
        return settings_refuse(cli, "ttl",
                               "must be at least 1s (a shorter lease leaves no time to end a "
                               "command whose lock is lost)");
    if (ask->ttl_ms > most_ms)
        return settings_refuse(cli, "ttl",
                               "must be at most %s (--max-lease); it is the lease, which is "
                               "renewed while the lock is held",
                               text_duration(time, sizeof(time), most_ms));
    return 0;
}

int ask_check(const struct cli *cli, struct ask *ask) {
    if (cli->quiet && cli->verbose)
        return fail_usage("-q and -v exclude each other");
    if (ask->no_wait && ask->wait_ms >= 0)
        return fail_usage("-n and -w exclude each other");
    if (ask->shared && ask->permits.whole)
        return fail_usage("-s and -p exclude each other");
    if (ask->exit_code > 255)
        return fail_usage("--exit-code must be 0 to 255");
    if (ask->skip_ok && ask->exit_code >= 0)
        return fail_usage("--skip-ok and -E exclude each other");
    int r = check_ttl(cli, ask);
    if (!r && !cli->quiet && cli->url && strncmp(cli->url, "memory:", 7) == 0)
        say(SAY_WARNING, "a memory: lock excludes nobody here (other processes do not share it); "
                         "use another store: holdfast stores");
    return r;
}

static hf_kind kind_of(const struct ask *ask) {
    if (ask->shared)
        return HF_SHARED;
    return ask->permits.whole ? HF_PERMITS : HF_EXCLUSIVE;
}

/* Does nothing, but having a callback to run makes hf_fd readable when a thread of the library
 * learns of the loss. The loops then check the lock. */
static void wake_loop(hf_hold *hold, void *arg) {
    (void)hold;
    (void)arg;
}

void ask_fill_client(const struct ask *ask, hf_client_options *options) {
    if (ask->store_wait_ms >= 0)
        options->store_wait_ms = ask->store_wait_ms;
}

void ask_fill(const struct ask *ask, hf_acquire_options *options) {
    options->on_lost = wake_loop;
    options->kind = kind_of(ask);
    if (ask->permits.whole) {
        options->permits = ask->permits.part;
        options->capacity = ask->permits.whole;
    }
    options->wait_ms = ask->no_wait ? 0 : ask->wait_ms < 0 ? HF_FOREVER : ask->wait_ms;
    options->lease_ms = ask->ttl_ms;
    options->label = ask->label;
}

bool ask_is_refusal(int error) {
    return error == HF_BUSY || error == HF_TIMEOUT || error == HF_SHORT;
}

static void describe_holder(hf_client *client, const char *name, char *ret, size_t size) {
    hf_call *look;
    *ret = 0;
    if (hf_inspect_start(client, name, &look) < 0)
        return;
    hf_call_wait(look, LOOK_PATIENCE_MS);
    hf_locks *locks = hf_call_take_locks(look);
    if (locks && hf_locks_count(locks) && hf_locks_at(locks, 0)->holder_count)
        wait_line_describe(ret, size, hf_locks_at(locks, 0));
    hf_locks_free(locks);
    hf_call_free(look);
}

int ask_refused(const struct cli *cli, const struct ask *ask, hf_client *client, const char *name,
                int error, const char *why, char *ret_text, size_t size) {
    bool silent = cli->quiet || (ask->skip_ok && !cli->verbose);
    char holder[400] = "", what[300];
    *ret_text = 0;
    if (!silent) {
        if (error != HF_SHORT)
            describe_holder(client, name, holder, sizeof(holder));
        snprintf(what, sizeof(what), "did not acquire %s", name);
        fail_text(ret_text, size, cli, error, *holder ? holder : why, what);
    }
    return ask->skip_ok          ? EXIT_SUCCESS
           : ask->exit_code >= 0 ? (int)ask->exit_code
                                 : EXIT_NOT_ACQUIRED;
}
