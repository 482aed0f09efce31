/* holdfast run: runs a command while holding a lock.
 *
 * Design notes. It is two processes, because one that is killed or stopped cannot end anything:
 *
 *     shell ── front ── keeper ── the command and its descendants
 *
 *  - The front stays in the shell's job: it returns the exit code, passes signals on, and stops
 *    when the command is stopped. The keeper is in a process group of its own, so that nothing
 *    typed reaches it: it has the store's client, renews, and is the parent of the command. The
 *    command is put back into the front's group, so that pipes, Ctrl-C, Ctrl-Z and the terminal
 *    work as without holdfast.
 *  - Both are subreapers: a descendant whose parent dies becomes the keeper's child, or the front's
 *    when there is no keeper. So "no child left" means that the whole tree has gone, and nothing
 *    else does.
 *  - The command has a control group of its own, if one can be made (cgroup.h).
 *  - The keeper writes D, the deadline, to a page that both share. If the page still has the same D
 *    200 ms before it, the front ends the tree: the keeper has been stopped. If the keeper dies,
 *    the front ends the tree; if the front dies, the keeper does. Either kills without a grace
 *    period, since nobody would take over from it. PR_SET_PDEATHSIG ends the command itself even
 *    if both are killed at once.
 *  - The lock is released when the whole tree has gone, not when the command has: by the keeper,
 *    or, if that was killed, by the front, which breaks it by its token. If both were killed, the
 *    lease decides, because their deaths prove nothing about the tree. */
#include "cli/run.h"

#include "cli/metrics.h"
#include "cli/settings.h"
#include "cli/text.h"
#include "cli/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define AT(field) offsetof(struct run_settings, field)
static const struct option options[] = {
    ASK_OPTIONS(struct run_settings),
    {0, OPTION_FLAG, "skip-ok", AT(ask.skip_ok), NULL, "exit with 0 if not acquired: for cron"},
    {0, OPTION_LIST, "also", AT(also), "NAME", "also this lock, all or none; may be repeated"},
    {0, OPTION_DURATION, "grace", AT(grace_ms), "DUR",
     "from TERM to KILL when it must end (ttl/4, at most 5s)", "ttl/4, at most 5s"},
    {0, OPTION_CHOICE, "on-lost", AT(on_lost_word), "term|kill|ignore",
     "what to do to the command (term)", "term"},
    {0, OPTION_DURATION, "max-hold", AT(max_hold_ms), "DUR", "end the command after this long",
     "no limit"},
    {0, OPTION_DURATION, "warn-after", AT(warn_after_ms), "DUR",
     "warn if the command runs for longer", "never"},
    {0, OPTION_DURATION, "min-left", AT(min_left_ms), "DUR",
     "start only if this much of the lease is left", "any"},
    {'c', OPTION_TEXT, "command", AT(shell_command), "STRING", "run STRING through /bin/sh"},
    {0, OPTION_TEXT, "report", AT(report), "FILE", "write what happened to FILE, as JSON"},
    {0, OPTION_TEXT, "metrics-file", AT(metrics_file), "FILE",
     "count runs in FILE, for Prometheus' node_exporter", "none"},
    {0, OPTION_FLAG, "metrics-names", AT(metrics_names), NULL, "use the lock's name as a label",
     "no"},
    {0},
};

/* ---- Settings ---- */

static void choose_on_lost(struct run_settings *s) {
    const char *word = s->on_lost_word ? s->on_lost_word : "term";
    s->on_lost = *word == 't' ? ON_LOST_TERM : *word == 'k' ? ON_LOST_KILL : ON_LOST_IGNORE;
}

static int choose_grace(struct run_settings *s) {
    if (s->grace_ms < 0)
        s->grace_ms = ask_grace_ms(&s->ask);
    if (s->grace_ms > s->ask.ttl_ms / 2)
        return settings_refuse(s->cli, "grace",
                               "must be at most half of --ttl (the command would be ended while "
                               "its lock can still be renewed); where they come from: holdfast "
                               "config show --origin");
    return 0;
}

static int check(struct run_settings *s) {
    int r = fail_name(s->name);
    for (size_t i = 0; !r && i < s->also.count; i++)
        r = fail_name(s->also.items[i]);
    if (!r)
        r = ask_check(s->cli, &s->ask);
    choose_on_lost(s);
    if (!r && s->min_left_ms > s->ask.ttl_ms)
        r = settings_refuse(s->cli, "min-left", "must be at most --ttl (more is never left)");
    return r ? r : choose_grace(s);
}

static int choose_command(const struct command *command, struct run_settings *s, char **words) {
    static char path[] = "/bin/sh", flag[] = "-c", *shell[] = {path, flag, NULL, NULL};
    char safe[80];
    if (s->shell_command && *words)
        return fail_usage("unexpected argument '%s': -c has the whole command",
                          text_safe(safe, sizeof(safe), *words));
    if (!s->shell_command && !*words)
        return fail_usage("missing command; usage: holdfast %s", command->usage);
    shell[2] = (char *)s->shell_command;
    s->command = s->shell_command ? shell : words;
    return 0;
}

int run_check(const struct command *command, struct run_settings *s, char **words) {
    int r = check(s);
    return r ? r : choose_command(command, s, words);
}

/* Options may come before and after the name; the command follows them. */
int run_parse(const struct command *command, struct cli *cli, struct run_settings *s, int argc,
              char **argv) {
    int at = 1, used = options_parse(cli, command, s, argc - at, argv + at);
    if (used < 0)
        return used;
    at += used;
    if (at == argc) {
        fail_say("missing lock name; usage: holdfast %s", command->usage);
        return -EXIT_USAGE; /* any negative number except the one for help */
    }
    s->name = cli->lock = argv[at++];
    used = options_parse(cli, command, s, argc - at, argv + at);
    if (used < 0)
        return used;
    int r = options_finish(cli, command, s);
    return r < 0 ? r : at + used;
}

/* ---- Two processes ---- */

void run_forwarded_signals(sigset_t *ret) {
    static const int signals[] = {SIGINT,  SIGTERM,  SIGHUP,  SIGQUIT, SIGUSR1,
                                  SIGUSR2, SIGWINCH, SIGCONT, SIGTSTP};
    sigemptyset(ret);
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
        struct sigaction action;
        sigaction(signals[i], NULL, &action);
        if (action.sa_handler != SIG_IGN)
            sigaddset(ret, signals[i]);
    }
}

void run_close_stdio(void) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return;
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    if (null > STDERR_FILENO)
        close(null);
}

/* Blocks all signals until each process can handle them in its own way. The front undoes it when it
 * is done. */
static void block_signals(struct run *run) {
    static const int never[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    sigset_t all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof(never) / sizeof(*never); i++)
        sigdelset(&all, never[i]);
    sigprocmask(SIG_SETMASK, &all, &run->mask_before);
    struct sigaction normal = {.sa_handler = SIG_DFL}; /* a shell may have left it ignored */
    sigaction(SIGCHLD, &normal, &run->child_before);
}

static void restore_signals(const struct run *run) {
    sigaction(SIGCHLD, &run->child_before, NULL);
    sigprocmask(SIG_SETMASK, &run->mask_before, NULL);
}

static int cannot_start(const char *what) {
    fail_say("cannot start the command (%s: %s)", what, strerror(errno));
    return EXIT_INTERNAL;
}

static int split(struct run *run) {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets) < 0)
        return cannot_start("socketpair");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    block_signals(run);
    run->keeper = fork();
    if (run->keeper < 0) {
        int r = cannot_start("fork");
        restore_signals(run);
        close(sockets[0]);
        close(sockets[1]);
        return r;
    }
    bool is_keeper = run->keeper == 0;
    run->socket = sockets[is_keeper];
    close(sockets[!is_keeper]);
    if (is_keeper)
        _exit(keeper_main(run));
    int code = front_main(run);
    restore_signals(run);
    return code;
}

static bool may_run_again(const struct run_shared *shared) {
    return (shared->ended == RUN_LOST || shared->ended == RUN_KEEPER_GONE) && !shared->asked_to_end;
}

int run_start(const struct run_settings *s, bool *ret_again) {
    struct run run = {.settings = s, .front = getpid(), .group = getpgrp()};
    run.shared =
        mmap(NULL, sizeof(*run.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run.shared == MAP_FAILED)
        return cannot_start("mmap");
    run.shared->deadline_ms = CLOCK_NEVER;
    run.shared->child_status = -1;
    run.shared->released = HF_PENDING;
    run.shared->least_margin_ms = -1;
    if (!tree_is_visible()) {
        fail_say("cannot run a command (/proc does not show what it would start: nobody could end "
                 "it if the lock is lost); mount /proc in this pid namespace");
        return EXIT_CONFIG;
    }
    if (s->metrics_file && metrics_check(s->metrics_file))
        return EXIT_USAGE;
    int report = s->report ? report_open(s->report) : -1;
    if (s->report && report < 0)
        return EXIT_USAGE;
    int code = split(&run);
    if (report >= 0)
        report_write(report, &run, code);
    if (s->metrics_file)
        metrics_write(&run, code);
    if (ret_again)
        *ret_again = may_run_again(run.shared);
    munmap(run.shared, sizeof(*run.shared));
    return code;
}

static int run(struct cli *cli, int argc, char **argv) {
    struct run_settings s = RUN_SETTINGS_INIT(cli);
    int at = run_parse(&run_command, cli, &s, argc, argv);
    if (at < 0)
        return options_exit_code(at);
    int r = run_check(&run_command, &s, argv + at);
    return r ? r : run_start(&s, NULL);
}

const struct command run_command = {
    .name = "run",
    .summary = "run a command while holding a lock",
    .usage = "run NAME [options] [--] COMMAND [ARG...]",
    .options = options,
    .run = run,
    .details =
        "Waits for the lock NAME, runs COMMAND, and releases the lock when COMMAND and everything\n"
        "it started have ended: a daemon that COMMAND leaves behind keeps the lock. COMMAND has\n"
        "standard input, standard output and the terminal. Times are written as 500ms, 90s, 5m\n"
        "or 1h30m; a number without a unit is seconds.\n"
        "\n"
        "If the lock cannot be renewed in time, COMMAND and all its descendants get TERM, and\n"
        "then KILL before anybody else can get the lock. If it is lost in another way ('holdfast\n"
        "break', a deletion in the store), somebody else can get it at once, and COMMAND is ended\n"
        "as soon as that is noticed. --on-lost kill skips the TERM. With --on-lost ignore COMMAND\n"
        "keeps running, and the exit code is still 79.\n"
        "\n"
        "The environment of COMMAND has HOLDFAST_LOCK and HOLDFAST_TOKEN (for --also:\n"
        "HOLDFAST_LOCK_1, HOLDFAST_TOKEN_1, ...), HOLDFAST_DEADLINE_MS (how much of the lease\n"
        "was left at the start), and HOLDFAST_SHARED=1 (for --also: HOLDFAST_SHARED_1, ...) if\n"
        "others may hold the lock at the same time; the token then does not fence. The store's\n"
        "passwords are not passed on: they are removed from the environment (a variable, a\n"
        "password in HOLDFAST_URL) or closed (a descriptor).\n"
        "\n"
        "INT TERM HUP QUIT USR1 USR2 WINCH CONT are passed on to COMMAND.\n"
        "\n"
        "--metrics-file FILE adds this run to FILE, in Prometheus' text format: use a file\n"
        "*.prom in the folder of node_exporter's textfile collector. Counters continue from run\n"
        "to run, and runs that end at the same time are all counted (FILE.lock):\n"
        "holdfast_run_acquired_total, _not_acquired_total, _skipped_total (the same with exit\n"
        "code 0: --skip-ok), _failed_total, _renewals_total, _lost_total, _max_hold_total,\n"
        "_warn_after_total; sums and counts of holdfast_run_wait_seconds and _held_seconds; for\n"
        "the last run that was not skipped _last_exit_code, _last_end_timestamp_seconds,\n"
        "_last_success_timestamp_seconds and _least_margin_seconds: how close to its deadline\n"
        "the lock was renewed or released, at worst.\n"
        "Names of locks are labels only with --metrics-names (the first NAME; at most 1000 of\n"
        "them). A run whose holdfast is killed is not counted.\n"
        "\n"
        "Exit code: COMMAND's own, or 128 + the signal that ended it; 64 usage, 69 store\n"
        "unreachable, 70 internal, 75 not acquired, 77 not permitted, 78 configuration, 79 the\n"
        "lock was lost, 124 --max-hold, 126 and 127 COMMAND cannot be executed. A line on stderr\n"
        "says which.\n"
        "\n"
        "Examples:\n"
        "  holdfast run nightly -- ./report.sh             one at a time; the others wait\n"
        "  holdfast run nightly --skip-ok -n ./report.sh   from cron: skip if still running\n"
        "  holdfast run -w 5m deploy -- make deploy        wait for five minutes at most\n"
        "  holdfast run -p 1/4 gpu -- ./train              four at a time\n"
        "  holdfast run -s data -- ./read; holdfast run data -- ./write\n"
        "  holdfast run data -c 'sort < in > out'          through the shell\n"
        "  holdfast run --metrics-file /var/lib/node_exporter/cron.prom nightly ./report.sh\n",
};
