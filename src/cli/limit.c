/* holdfast limit: waits until the rate of a name permits it, then runs a command or ends.
 *
 * A caller that was let through gives nothing back, so there is nothing to do once the command
 * runs: this process becomes the command. While it waits, a second thread shows the waiting line
 * and handles the signals, so that an interrupted wait gives up its place in the queue at once. */
#include "cli/ask.h"
#include "cli/clock.h"
#include "cli/json.h"
#include "cli/text.h"
#include "cli/wait_line.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    STEP_MS = 50,         /* between two looks at what was asked for, and two cancellations */
    STEP_MOST_MS = 60000, /* if there is nothing to do but wait for a signal */
    WINDOW_LEAST_MS = 10, /* a shorter one could pass within a round trip to the store */
    WINDOW_MOST_MS = 24 * 3600 * 1000, /* the longest max_lease that there can be */
};

struct limit_settings {
    struct cli *cli;
    struct ask ask;
    const char *name, *rate;
    bool fixed;
    hf_limit_options limit;
    char **command; /* NULL at its end; empty: there is none */
};

#define AT(field) offsetof(struct limit_settings, field)
static const struct option options[] = {
    {0, OPTION_TEXT, "rate", AT(rate), "N/DUR", "let N through in any time of DUR: 20/60s"},
    {0, OPTION_FLAG, "fixed", AT(fixed), NULL,
     "count in fixed windows: cheaper, but up to 2N around an edge"},
    {'n', OPTION_FLAG, "no-wait", AT(ask.no_wait), NULL, "do not wait"},
    {'w', OPTION_DURATION, "wait", AT(ask.wait_ms), "DUR",
     "wait at most this long (default: no limit)", "no limit"},
    {0, OPTION_DURATION, "store-wait", AT(ask.store_wait_ms), "DUR",
     "without -w: wait this long for an unavailable store (10s)", "10s"},
    {'E', OPTION_NUMBER, "exit-code", AT(ask.exit_code), "CODE",
     "exit code if not let through (75)"},
    {0, OPTION_TEXT, "label", AT(ask.label), "TEXT", "what operators see beside the name"},
    {0},
};

/* ---- Settings ---- */

static int parse_rate(struct limit_settings *s) {
    char safe[80], *end;
    errno = 0;
    unsigned long rate = strtoul(s->rate, &end, 10);
    bool is_rate = s->rate[0] >= '0' && s->rate[0] <= '9' && *end == '/' && !errno && rate > 0 &&
                   rate < INT32_MAX && text_parse_duration(end + 1, &s->limit.window_ms) == 0;
    text_safe(safe, sizeof(safe), s->rate);
    if (!is_rate)
        return fail_usage(
            "--rate cannot be '%s' (it must be N/DUR; 20/60s lets twenty through in a "
            "minute)",
            safe);
    if (s->limit.window_ms < WINDOW_LEAST_MS || s->limit.window_ms > WINDOW_MOST_MS)
        return fail_usage("--rate cannot be '%s' (a window is 10ms to 24h)", safe);
    if (rate > HF_LIMIT_RATE_MAX && !s->fixed)
        return fail_usage("--rate cannot be '%s' (more than %d in a window need --fixed)", safe,
                          HF_LIMIT_RATE_MAX);
    s->limit.rate = (uint32_t)rate;
    return 0;
}

/* A permit lasts for the whole window, so the longest lease must be at least that long. This does
 * not affect clients of other names. */
static int check(struct limit_settings *s) {
    int r = fail_name(s->name);
    if (!r)
        r = s->rate ? parse_rate(s)
                    : fail_usage("missing --rate; usage: holdfast %s", limit_command.usage);
    if (!r)
        r = ask_check(s->cli, &s->ask);
    s->limit.wait_ms = s->ask.no_wait ? 0 : s->ask.wait_ms < 0 ? HF_FOREVER : s->ask.wait_ms;
    s->limit.label = s->ask.label;
    s->limit.fixed = s->fixed;
    if (s->cli->max_lease_ms < s->limit.window_ms)
        s->cli->max_lease_ms = s->limit.window_ms;
    return r;
}

/* Options may come before and after the name; the command follows them. */
static int parse(struct cli *cli, struct limit_settings *s, int argc, char **argv) {
    int at = 1, used = options_parse(cli, &limit_command, s, argc - at, argv + at);
    if (used < 0)
        return used;
    at += used;
    if (at == argc) {
        fail_say("missing name; usage: holdfast %s", limit_command.usage);
        return -EXIT_USAGE; /* any negative number except the one for help */
    }
    s->name = cli->lock = argv[at++];
    used = options_parse(cli, &limit_command, s, argc - at, argv + at);
    if (used < 0)
        return used;
    s->command = argv + at + used;
    return options_finish(cli, &limit_command, s);
}

/* ---- Waiting ---- */

struct attendant {
    const struct limit_settings *settings;
    hf_client *client;
    sigset_t signals; /* that end the wait, and `over` */
    int over, signal; /* the one that ends the thread; the one that ended the wait, or 0 */
};

static int next_signal(const struct attendant *a, const struct wait_line *line) {
    bool busy = a->signal || line->look;
    int64_t left_ms = busy ? STEP_MS : line->next_ms - clock_now_ms();
    left_ms = left_ms < 0 ? 0 : left_ms > STEP_MOST_MS ? STEP_MOST_MS : left_ms;
    struct timespec wait = {.tv_sec = left_ms / 1000, .tv_nsec = left_ms % 1000 * 1000000};
    return sigtimedwait(&a->signals, NULL, &wait);
}

static void *attend(void *arg) {
    struct attendant *a = arg;
    const struct limit_settings *s = a->settings;
    struct wait_line line;
    wait_line_start(&line, s->cli, s->name, getpgrp(), a->client);
    for (int signal; (signal = next_signal(a, &line)) != a->over;) {
        if (signal > 0)
            a->signal = signal;
        if (a->signal)
            hf_client_cancel(a->client); /* again and again: the wait may not have begun yet */
        else
            wait_line_step(&line);
    }
    wait_line_end(&line);
    return NULL;
}

/* The signals that end us, unless they are ignored. */
static void choose_signals(struct attendant *a) {
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigemptyset(&a->signals);
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        struct sigaction action;
        sigaction(ends[i], NULL, &action);
        if (action.sa_handler != SIG_IGN)
            sigaddset(&a->signals, ends[i]);
    }
    a->over = SIGRTMIN;
    sigaddset(&a->signals, a->over);
}

/* Returns what hf_limit returns; does not return if a signal ended the wait. */
static int wait_for_turn(const struct limit_settings *s, hf_client *client, int64_t *ret_wait_ms) {
    struct attendant a = {.settings = s, .client = client};
    sigset_t before;
    pthread_t thread;
    choose_signals(&a);
    pthread_sigmask(SIG_BLOCK, &a.signals, &before);
    bool attended = pthread_create(&thread, NULL, attend, &a) == 0;
    if (!attended)
        pthread_sigmask(SIG_SETMASK, &before, NULL); /* signals then have their usual effect */
    int r;
    do
        r = hf_limit(client, s->name, &s->limit, ret_wait_ms);
    while (r == HF_SHORT && s->limit.wait_ms == HF_FOREVER); /* the answer came too late */
    if (attended) {
        pthread_kill(thread, a.over);
        pthread_join(thread, NULL);
    }
    if (a.signal) {
        hf_client_close(client); /* gives up the place in the queue */
        raise(a.signal);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r;
}

/* A fixed window has no queue: the callers that ask first after its end are let through. */
static int wait_for_window(const struct limit_settings *s, hf_client *client,
                           int64_t *ret_wait_ms) {
    hf_limit_options once = s->limit;
    int64_t waited_ms = 0;
    once.wait_ms = 0;
    for (;;) {
        int r = hf_limit(client, s->name, &once, ret_wait_ms);
        int64_t left_ms = s->limit.wait_ms == HF_FOREVER ? INT64_MAX : s->limit.wait_ms - waited_ms;
        if (r != HF_BUSY || left_ms <= 0)
            return r;
        int64_t pause_ms = *ret_wait_ms < left_ms ? *ret_wait_ms : left_ms;
        nanosleep(&(struct timespec){pause_ms / 1000, pause_ms % 1000 * 1000000}, NULL);
        waited_ms += pause_ms;
    }
}

/* ---- The end ---- */

static void print_json(const struct limit_settings *s, bool passed, int64_t wait_ms) {
    struct json json = {.file = stdout};
    json_object(&json, NULL);
    json_string(&json, "name", s->name);
    json_bool(&json, "passed", passed);
    json_number(&json, "wait_ms", wait_ms);
    json_object_end(&json);
    json_end(&json);
}

/* To whole seconds, for people. Rounding down would be too early. */
static int64_t round_up(int64_t ms) {
    return ms < 1000 ? ms : (ms + 999) / 1000 * 1000;
}

static int refused(const struct limit_settings *s, int64_t wait_ms) {
    char name[300], window[32], wait[32];
    if (s->cli->json)
        print_json(s, false, wait_ms);
    if (!s->cli->quiet)
        say(SAY_WARNING, "%s: %u in %s have been let through; try again in %s",
            text_safe(name, sizeof(name), s->name), (unsigned)s->limit.rate,
            text_duration(window, sizeof(window), s->limit.window_ms),
            text_duration(wait, sizeof(wait), round_up(wait_ms)));
    return s->ask.exit_code >= 0 ? (int)s->ask.exit_code : EXIT_NOT_ACQUIRED;
}

static int become(char **command) {
    char safe[200];
    execvp(command[0], command);
    int error = errno;
    fail_say("cannot run %s (%s)%s", text_safe(safe, sizeof(safe), command[0]), strerror(error),
             error == ENOENT   ? "; is it installed, and in PATH?"
             : error == EACCES ? "; is it executable?"
                               : "");
    return error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
}

static int ask_for_turn(const struct limit_settings *s) {
    hf_client_options client_options = HF_CLIENT_OPTIONS_INIT;
    hf_client *client;
    int64_t wait_ms = s->limit.window_ms;
    client_options.command = "holdfast limit";
    ask_fill_client(&s->ask, &client_options);
    int r = store_open(s->cli, &client_options, &client);
    if (r < 0)
        return fail_exit_code(r);
    r = s->fixed ? wait_for_window(s, client, &wait_ms) : wait_for_turn(s, client, &wait_ms);
    int code = EXIT_SUCCESS;
    if (ask_is_refusal(r))
        code = refused(s, wait_ms);
    else if (r < 0)
        code = fail_error(s->cli, r, "not let through");
    else if (s->cli->json)
        print_json(s, true, 0);
    hf_client_close(client);
    code = say_flush(code);
    return r == HF_OK && !code && *s->command ? become(s->command) : code;
}

static int run(struct cli *cli, int argc, char **argv) {
    struct limit_settings s = {.cli = cli, .ask = ASK_INIT, .limit = HF_LIMIT_OPTIONS_INIT};
    int r = parse(cli, &s, argc, argv);
    if (r < 0)
        return options_exit_code(r);
    r = check(&s);
    return r ? r : ask_for_turn(&s);
}

const struct command limit_command = {
    .name = "limit",
    .summary = "limit how often something may start",
    .usage = "limit NAME --rate N/DUR [options] [--] [COMMAND [ARG...]]",
    .options = options,
    .prints_json = true,
    .run = run,
    .details =
        "Waits until fewer than N have been let through in the last DUR, in the order in which\n"
        "callers asked, and then becomes COMMAND or exits with 0. At most N are let through in\n"
        "any time of length DUR, by the clock of the store. Nothing is given back when COMMAND\n"
        "ends or is killed: this limits how often it starts, not how many run at once (for that,\n"
        "see run -p). Use the same rate for a name everywhere; another number is refused until\n"
        "DUR has passed.\n"
        "\n"
        "If it is not let through (-n, or -w and its time is up), a line on stderr says how long\n"
        "to wait. --json prints an object: name, passed, wait_ms.\n"
        "\n"
        "--fixed counts in windows of DUR, each of which begins with the first caller after the\n"
        "last one ended. That is a single counter, but up to 2N are let through around the end\n"
        "of a window, and callers are not served in order.\n"
        "\n"
        "Without --fixed it needs permits that last as long as their leases: sqlite, Redis,\n"
        "PostgreSQL, MySQL; with --fixed, counters. A store that forgets its data lets up to N\n"
        "more through.\n"
        "\n"
        "Exit code: COMMAND's own; 64 usage, 69 store unreachable, 75 not let through (or the "
        "code\n"
        "of -E), 77 not permitted, 78 configuration, 126 and 127 COMMAND cannot be executed.\n"
        "\n"
        "Examples:\n"
        "  holdfast limit mail --rate 20/60s -- ./send.sh     wait your turn, then send\n"
        "  holdfast limit api --rate 5/1s -n || exit          at once or not at all\n"
        "  holdfast limit alert --rate 1/1h -n -E 0 -- ./alert.sh\n",
};
