/* holdfast acquire: for scripts that lock in one place and unlock in another. It leaves a process in the
 * background that holds the lock, and prints what the shell needs to find it. */
#include "cli/holder.h"
#include "cli/options.h"
#include "cli/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define AT(field) offsetof(struct holder_settings, field)
static const struct option options[] = {
    ASK_OPTIONS(struct holder_settings),
    {0, OPTION_NUMBER, "for-pid", AT(for_pid), "PID", "keep it until this process ends"},
    {0, OPTION_DURATION, "ttl", AT(ttl_ms), "DUR", "release after this long without a renew"},
    {0, OPTION_CHOICE, "on-lost", AT(on_lost), "term|kill|ignore", "what to do to PID (term)",
     "term"},
    {0},
};

static int check(const struct holder_settings *s) {
    if (s->for_pid < 0 && s->ttl_ms < 0)
        return fail_usage("missing --for-pid $$ (until this shell ends) or --ttl 10m "
                          "(until then, unless renewed)");
    return ask_check(s->cli, &s->ask);
}

/* The answer of the holder: its exit code, or none if it was killed. */
static int await(pid_t holder, int fd) {
    unsigned char code;
    ssize_t count;
    do
        count = read(fd, &code, 1);
    while (count < 0 && errno == EINTR);
    if (count == 1)
        return code;
    int status = 0;
    waitpid(holder, &status, 0);
    return WIFSIGNALED(status) ? EXIT_BY_SIGNAL + WTERMSIG(status) : EXIT_INTERNAL;
}

static int start(const struct holder_settings *s, int for_fd) {
    int answer[2];
    pid_t parent = getpid();
    if (pipe2(answer, O_CLOEXEC) < 0) {
        fail_say("cannot start (%s)", strerror(errno));
        return EXIT_INTERNAL;
    }
    pid_t holder = fork();
    if (holder == 0) {
        close(answer[0]);
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* while it waits, it ends with us */
        _exit(getppid() == parent ? holder_main(s, for_fd, answer[1]) : EXIT_INTERNAL);
    }
    close(answer[1]);
    if (holder < 0) {
        fail_say("cannot start (%s)", strerror(errno));
        return EXIT_INTERNAL;
    }
    return await(holder, answer[0]);
}

/* A shell that evaluates nothing believes that all is well: it gets something to evaluate. */
static int fail_for_eval(const struct cli *cli, int code) {
    if (code && !cli->json)
        printf("(exit %d)\n", code);
    return code;
}

static int run(struct cli *cli, int argc, char **argv) {
    struct holder_settings s = {
        .cli = cli, .ask = ASK_INIT, .for_pid = -1, .ttl_ms = -1, .on_lost = "term"};
    int for_fd = -1;
    int r = options_parse_words(cli, &acquire_command, &s, argc, argv, 1, 1, &s.name);
    if (r < 0)
        return fail_for_eval(cli, options_exit_code(r));
    r = check(&s);
    if (r)
        return fail_for_eval(cli, r);
    if (s.for_pid >= 0 && (for_fd = pidfd_of((pid_t)s.for_pid)) < 0) {
        fail_say("there is no process %lld (--for-pid)", (long long)s.for_pid);
        return fail_for_eval(cli, EXIT_USAGE);
    }
    return fail_for_eval(cli, start(&s, for_fd));
}

const struct command acquire_command = {
    .name = "acquire",
    .summary = "for scripts: acquire a lock and keep it in the background",
    .usage = "acquire NAME (--for-pid PID | --ttl DUR) [options]",
    .options = options,
    .run = run,
    .details =
        "Waits for the lock and leaves a process behind that holds and renews it, until\n"
        "  - you call holdfast release, as the same user and with the same HOLDFAST_HOLD;\n"
        "  - the process PID has ended (--for-pid);\n"
        "  - DUR has passed since acquire or the last holdfast renew (--ttl);\n"
        "  - the lock is lost: PID and its descendants then get TERM about 5s before the\n"
        "    deadline, and with --on-lost kill also KILL. Descendants that were reparented\n"
        "    away from PID are not found: use holdfast run where that matters.\n"
        "\n"
        "Prints assignments for the shell: HOLDFAST_HOLD, HOLDFAST_LOCK, HOLDFAST_TOKEN and\n"
        "HOLDFAST_SHARED (1: the token does not fence). On failure it prints \"(exit CODE)\",\n"
        "so that eval fails too.\n"
        "\n"
        "Exit code: 64 usage, 69 store unreachable, 75 not acquired (or the code of -E),\n"
        "77 not permitted, 78 configuration.\n"
        "\n"
        "Examples:\n"
        "  eval \"$(holdfast acquire deploy --for-pid $$)\" || exit\n"
        "  holdfast acquire deploy --ttl 10m > lock.env; . ./lock.env; ...; holdfast release\n",
};
