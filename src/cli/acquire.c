/* holdfast acquire: for scripts that lock in one place and unlock in another. It leaves a process
 * in the background that holds the lock, and prints what the shell needs to find it. */
#include "cli/holder.h"
#include "cli/lifeline.h"
#include "cli/options.h"
#include "cli/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define AT(field) offsetof(struct holder_settings, field)
static const struct option options[] = {
    ASK_OPTIONS(struct holder_settings),
    {0, OPTION_NUMBER, "for-pid", AT(for_pid), "PID",
     "keep it until this process and what it started have ended"},
    {0, OPTION_DURATION, "for", AT(for_ms), "DUR", "release after this long without a renew"},
    {0, OPTION_CHOICE, "on-lost", AT(on_lost), "term|kill|ignore", "what to do to PID (term)",
     "term"},
    {0},
};

static int check(struct holder_settings *s) {
    if (s->for_pid < 0 && s->for_ms < 0)
        return fail_usage("missing --for-pid $$ (until this shell ends) or --for 10m "
                          "(until then, unless renewed)");
    int r = fail_name(s->name);
    if (!r)
        r = holder_check_for(s->for_ms);
    return r ? r : ask_check(s->cli, &s->ask);
}

/* Opens a pidfd of --for-pid (-1 if not given) and, if that process can evaluate what we print,
 * chooses the descriptor that it will open. Returns 0 or the exit code. */
static int find_owner(struct holder_settings *s, int *ret_fd) {
    pid_t pid = (pid_t)s->for_pid;
    *ret_fd = s->lifeline = -1;
    if (s->for_pid < 0)
        return 0;
    *ret_fd = pidfd_of(pid);
    if (*ret_fd < 0)
        return fail_usage("there is no process %lld (--for-pid)", (long long)s->for_pid);
    if (!process_is_ancestor(pid))
        return 0;
    s->lifeline = lifeline_number(pid);
    if (s->lifeline >= 0)
        return 0;
    fail_say("process %d has no free descriptor from 3 to 9 (what it starts must inherit one, to "
             "keep the lock if the process is killed); close one, or use holdfast run",
             pid);
    return EXIT_CONFIG;
}

/* Waits for the holder to report its exit code. A holder that was killed reports none. */
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

/* eval succeeds if there is nothing to evaluate, so print something that fails. If that cannot be
 * written, the exit code still says it. */
static int fail_for_eval(int code) {
    if (code && (printf("(exit %d)\n", code) < 0 || fflush(stdout) != 0)) {
        __fpurge(stdout);
        clearerr(stdout);
    }
    return code;
}

static int run(struct cli *cli, int argc, char **argv) {
    struct holder_settings s = {
        .cli = cli, .ask = ASK_INIT, .for_pid = -1, .for_ms = -1, .on_lost = "term"};
    int for_fd, r = options_parse_words(cli, &acquire_command, &s, argc, argv, 1, 1, &s.name);
    cli->lock = s.name;
    signal(SIGPIPE, SIG_IGN); /* if nobody reads what is printed, the lock must be released */
    if (r < 0)
        return fail_for_eval(options_exit_code(r));
    r = check(&s);
    if (r)
        return fail_for_eval(r);
    close_range(STDERR_FILENO + 1, ~0U, 0); /* the lifeline of another lock may be among them */
    r = find_owner(&s, &for_fd);
    return fail_for_eval(r ? r : start(&s, for_fd));
}

const struct command acquire_command = {
    .name = "acquire",
    .summary = "for scripts: acquire a lock and keep it in the background",
    .usage = "acquire NAME [--for-pid PID] [--for DUR] [options]",
    .options = options,
    .run = run,
    .details =
        "Waits for the lock and leaves a process behind that holds and renews it, until\n"
        "  - you call holdfast release, as the same user and with the same HOLDFAST_HOLD;\n"
        "  - the process PID and everything that it started have ended (--for-pid);\n"
        "  - DUR (at least 1s) has passed since acquire or the last holdfast renew (--for);\n"
        "  - the lock is lost: PID and what it started get TERM a quarter of the lease (at most\n"
        "    5s) before the deadline, and with --on-lost kill also KILL.\n"
        "One of --for-pid and --for is needed; with both, the first to end releases the lock.\n"
        "\n"
        "So if a script is killed, the step that it had started still keeps the lock. It is\n"
        "recognised by a descriptor: the shell opens one when it evaluates the output (the first\n"
        "free one from 9 down to 3), and everything it starts inherits it. Not covered: programs\n"
        "that close their descriptors, such as sudo and many daemons; ksh, which passes none on;\n"
        "and a process PID that does not evaluate the output. If the process that acquire leaves\n"
        "behind is killed, the lock is lost when its lease ends, and nobody is notified.\n"
        "holdfast run covers all of this.\n"
        "\n"
        "Prints commands for the shell, which set HOLDFAST_HOLD, HOLDFAST_LOCK, HOLDFAST_TOKEN "
        "and\n"
        "HOLDFAST_SHARED (1: the token does not fence), and open that descriptor. On failure it\n"
        "prints \"(exit CODE)\", so that eval fails too. If the shell does not find holdfast, "
        "there\n"
        "is nothing to evaluate, and eval succeeds: check the exit code first, as below. A script\n"
        "that takes a second lock must keep the first value of HOLDFAST_HOLD to release the first\n"
        "one.\n"
        "\n"
        "Exit code: 64 usage, 69 store unreachable, 75 not acquired (or the code of -E),\n"
        "77 not permitted, 78 configuration.\n"
        "\n"
        "Examples:\n"
        "  lock=$(holdfast acquire deploy --for-pid $$) && eval \"$lock\" || exit\n"
        "  holdfast acquire deploy --for 10m > lock.env && . ./lock.env || exit\n"
        "  lock=$(holdfast acquire db --for-pid $$) && eval \"$lock\" || exit; db=$HOLDFAST_HOLD\n"
        "  ...; holdfast release $db\n",
};
