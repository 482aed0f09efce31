/* The keeper of `holdfast run`: it has the client of the store, waits for the lock, starts the
 * command, renews the lock, and ends the whole tree if it must. It is one loop over descriptors,
 * and nothing here blocks. */
#include "cli/run.h"
#include "cli/text.h"
#include "cli/tree.h"
#include "cli/wait_line.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    /* The keeper acts before the front does, which then finds nothing to do. */
    KILL_MARGIN_MS = RUN_MARGIN_MS + 100,
    KILL_AGAIN_MS = 10, /* doubled each time, */
    KILL_AGAIN_MOST_MS = 1000,
    RELEASE_PATIENCE_MS = 3000,
    JITTER_MS = 5, /* a deadline that is later by less is the same one */
};

enum phase {
    WAITING = 1, /* for the lock */
    RUNNING,     /* the command, or what it left */
    ENDING,      /* TERM has been sent, KILL follows */
    RELEASING,
    DONE,
};

enum { STORE, SIGNALS, FRONT, SOCKET, TIMER, DESCRIPTORS };

struct keeper {
    struct run *run;
    const struct run_settings *settings;
    struct run_shared *shared;
    struct pollfd fds[DESCRIPTORS];
    enum phase phase;
    enum run_end end; /* why it ends; 0: it does not yet */
    hf_client *client;
    hf_call *call; /* acquiring, then releasing */
    hf_hold *hold;
    struct wait_line line;
    pid_t child;         /* 0: not started, or ended */
    bool renewal_failed; /* the last one */
    int64_t acquired_ms; /* and other times of CLOCK_BOOTTIME */
    int64_t max_hold_at_ms, warn_at_ms, kill_at_ms, kill_pause_ms, release_until_ms;
    char name[300]; /* of the lock, safe to print */
};

/* ---- Messages ---- */

__attribute__((format(printf, 2, 3))) static void note(const struct keeper *k, const char *format,
                                                       ...) {
    char text[600];
    va_list args;
    if (!k->settings->cli->verbose)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    say(SAY_INFO, "%s", text);
}

/* Ends the keeper, with what the front will print and return. */
__attribute__((format(printf, 4, 5))) static void finish(struct keeper *k, enum run_end end,
                                                         int exit_code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(k->shared->text, sizeof(k->shared->text), format, args);
    va_end(args);
    k->end = end;
    k->shared->exit_code = exit_code;
    k->phase = DONE;
}

static void fail(struct keeper *k, int error, const char *why) {
    char what[400], text[900];
    snprintf(what, sizeof(what), "cannot acquire %s", k->settings->name);
    fail_text(text, sizeof(text), k->settings->cli, error, why, what);
    finish(k, RUN_FAILED, fail_exit_code(error), "%s", text);
}

/* ---- Waiting for the lock ---- */

static void not_acquired(struct keeper *k, int error, const char *why) {
    const struct run_settings *s = k->settings;
    char text[900];
    k->shared->waited_ms = clock_now_ms() - k->line.since_ms;
    int code = ask_refused(s->cli, &s->ask, k->client, s->name, error, why, text, sizeof(text));
    finish(k, RUN_NOT_ACQUIRED, code, "%s", text);
}

static int start_acquire(struct keeper *k) {
    const struct run_settings *s = k->settings;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_want wants[RUN_NAMES_MAX];
    const hf_want *list[RUN_NAMES_MAX];
    ask_fill(&s->ask, &options);
    options.min_left_ms = s->min_left_ms;
    if (!s->also.count)
        return hf_acquire_start(k->client, s->name, &options, &k->call);
    for (size_t i = 0; i <= s->also.count; i++) {
        wants[i] = (hf_want){sizeof(hf_want), i ? s->also.items[i - 1] : s->name, options.kind,
                             options.permits, options.capacity};
        list[i] = &wants[i];
    }
    return hf_acquire_all_start(k->client, list, s->also.count + 1, &options, &k->call);
}

/* Starts to acquire. This may fail at once. */
static void ask(struct keeper *k) {
    int r = start_acquire(k);
    k->phase = WAITING;
    if (r < 0)
        fail(k, r, hf_last_error());
}

static void interrupted(struct keeper *k, int signal) {
    wait_line_end(&k->line);
    k->call = hf_call_free(k->call); /* gives up the place in the queue, or the lock */
    finish(k, RUN_INTERRUPTED, EXIT_BY_SIGNAL + signal, "%s", "");
}

/* ---- The command ---- */

/* NULL: none. */
static void set_variable(const char *name, size_t number, const char *value) {
    char key[40];
    snprintf(key, sizeof(key), number ? "%s_%zu" : "%s", name, number);
    if (value)
        setenv(key, value, 1);
    else
        unsetenv(key);
}

/* Removes the variables of a name that this run does not have but an outer run may have set. */
static void unset_variables(size_t number) {
    static const char *const names[] = {"HOLDFAST_LOCK", "HOLDFAST_TOKEN", "HOLDFAST_SHARED"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        set_variable(names[i], number, NULL);
}

/* Sets the environment of the command. (Passwords were removed from it when the settings were
 * read.) */
static void set_environment(struct keeper *k) {
    const struct run_settings *s = k->settings;
    char text[40];
    for (size_t i = 0; i <= s->also.count; i++) {
        snprintf(text, sizeof(text), "%" PRIu64, hf_hold_token_at(k->hold, i));
        set_variable("HOLDFAST_LOCK", i, i ? s->also.items[i - 1] : s->name);
        set_variable("HOLDFAST_TOKEN", i, text);
        set_variable("HOLDFAST_SHARED", i, k->shared->exclusive ? NULL : "1");
    }
    for (size_t i = s->also.count + 1; i < RUN_NAMES_MAX; i++)
        unset_variables(i);
    snprintf(text, sizeof(text), "%" PRId64, hf_hold_left_ms(k->hold));
    setenv("HOLDFAST_DEADLINE_MS", text, 1);
}

/* Turns the new process into the command: back in the caller's group, with the signals as we found
 * them, and with a KILL should the keeper die. */
__attribute__((noreturn)) static void become_command(struct keeper *k, pid_t keeper) {
    setpgid(0, k->run->group);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper)
        _exit(EXIT_LOST);
    sigaction(SIGCHLD, &k->run->child_before, NULL);
    sigprocmask(SIG_SETMASK, &k->run->mask_before, NULL);
    if (k->shared->front_stopped)
        kill(getpid(),
             SIGSTOP); /* the job was stopped while it waited, and the command is part of it */
    execvp(k->settings->command[0], k->settings->command);
    k->shared->start_errno = errno;
    _exit(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN);
}

static void ring(struct keeper *k, unsigned char byte) {
    ssize_t sent = send(k->run->socket, &byte, 1, MSG_NOSIGNAL);
    (void)sent; /* if this fails, the front is gone, which is noticed elsewhere */
}

static void start_command(struct keeper *k) {
    pid_t keeper = getpid();
    set_environment(k);
    ring(k, RUN_BELL); /* before there is anything to end */
    cgroup_make(k->shared->cgroup);
    k->child = cgroup_fork(k->shared->cgroup);
    if (k->child == 0)
        become_command(k, keeper);
    if (k->child < 0) {
        k->shared->start_errno = errno;
        k->child = 0;
    }
    k->shared->child = k->child;
    run_close_stdio();
}

/* ---- The deadline ---- */

/* Publishes the deadline if it is later than the known one. The time is read first, so the result
 * is never too late. */
static void publish_deadline(struct keeper *k) {
    int64_t now_ms = clock_now_ms(), deadline_ms = now_ms + hf_hold_left_ms(k->hold);
    int64_t known_ms = k->shared->deadline_ms;
    if (known_ms == CLOCK_NEVER || deadline_ms > known_ms + JITTER_MS)
        k->shared->deadline_ms = deadline_ms;
}

static int64_t earlier(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The time at which to give up the lock, if it has not been renewed by then. */
static int64_t give_up_at_ms(const struct keeper *k) {
    int64_t before_ms = k->settings->on_lost == ON_LOST_KILL ? 0 : k->settings->grace_ms;
    if (before_ms < KILL_MARGIN_MS)
        before_ms = KILL_MARGIN_MS;
    return k->shared->deadline_ms - before_ms;
}

/* Kills the tree from kill_at_ms on. When a process dies, its orphans become our children, so those
 * are killed at once. */
static void kill_tree(struct keeper *k, bool died) {
    int64_t now_ms = clock_now_ms();
    if (now_ms < k->kill_at_ms && !(died && k->kill_pause_ms))
        return;
    if (died)
        tree_kill_children();
    else {
        cgroup_kill(k->shared->cgroup);
        tree_signal(getpid(), SIGKILL);
    }
    k->kill_pause_ms = died || !k->kill_pause_ms
                           ? KILL_AGAIN_MS
                           : earlier(2 * k->kill_pause_ms, KILL_AGAIN_MOST_MS);
    k->kill_at_ms = now_ms + k->kill_pause_ms;
}

/* Sends TERM now, and KILL at `kill_at_ms` or before the deadline, whichever is first. This is
 * final. */
static void begin_ending(struct keeper *k, enum run_end end, int64_t kill_at_ms) {
    kill_at_ms = earlier(kill_at_ms, k->shared->deadline_ms - KILL_MARGIN_MS);
    if (k->phase == ENDING) {
        k->kill_at_ms = earlier(k->kill_at_ms, kill_at_ms);
        return;
    }
    k->phase = ENDING;
    k->end = end;
    k->kill_at_ms = kill_at_ms;
    if (clock_now_ms() >= kill_at_ms)
        return;
    tree_signal(getpid(), SIGTERM);
    tree_signal(getpid(), SIGCONT); /* a stopped process could not act on the TERM */
}

static void ignore_loss(struct keeper *k) {
    say(SAY_WARNING, "the lock %s was lost; the command goes on (--on-lost ignore)", k->name);
    k->shared->lost = true;
    k->shared->deadline_ms = CLOCK_NEVER;
}

/* The lock is given up before its deadline, to leave the command time to end. */
static void note_expiry(struct keeper *k) {
    char error[sizeof(k->shared->cause_text)];
    strcpy(k->shared->cause, "expired");
    memcpy(error, k->shared->cause_text, sizeof(error));
    snprintf(k->shared->cause_text, sizeof(k->shared->cause_text), "not renewed in time%s%s",
             *error ? ": " : "", error);
}

/* Checks the lock while the tree is alive. */
static void watch_lock(struct keeper *k) {
    int64_t now_ms = clock_now_ms();
    if (k->shared->lost)
        return;
    bool held = hf_check(k->hold, 0) == HF_OK;
    if (held && k->end != RUN_LOST)
        publish_deadline(k);
    bool ignores = k->settings->on_lost == ON_LOST_IGNORE;
    if (ignores && !held)
        ignore_loss(k);
    else if (!ignores && (!held || now_ms >= give_up_at_ms(k))) {
        bool at_once = k->settings->on_lost == ON_LOST_KILL;
        k->shared->lost = true;
        if (held)
            note_expiry(k);
        begin_ending(k, RUN_LOST, at_once ? now_ms : now_ms + k->settings->grace_ms);
    }
}

/* --warn-after, printed once. */
static void warn(struct keeper *k) {
    char time[32];
    k->warn_at_ms = CLOCK_NEVER;
    k->shared->warned = true;
    if (!k->settings->cli->quiet)
        say(SAY_WARNING, "%s has been held for %s (--warn-after); the command goes on", k->name,
            text_duration(time, sizeof(time), k->settings->warn_after_ms));
}

/* Checks whether the command has run for too long, also after a loss that was ignored. */
static void watch_time(struct keeper *k) {
    int64_t now_ms = clock_now_ms();
    if (now_ms >= k->warn_at_ms)
        warn(k);
    if (now_ms >= k->max_hold_at_ms)
        begin_ending(k, RUN_MAX_HOLD, now_ms + k->settings->grace_ms);
}

/* ---- Acquired, released ---- */

static void acquired(struct keeper *k) {
    const struct run_settings *s = k->settings;
    k->hold = hf_call_take_hold(k->call);
    k->call = hf_call_free(k->call);
    k->acquired_ms = clock_now_ms();
    k->shared->waited_ms = k->acquired_ms - k->line.since_ms;
    for (size_t i = 0; i <= s->also.count; i++)
        k->shared->tokens[i] = hf_hold_token_at(k->hold, i);
    k->shared->exclusive = hf_hold_is_exclusive(k->hold);
    k->max_hold_at_ms = s->max_hold_ms < 0 ? CLOCK_NEVER : k->acquired_ms + s->max_hold_ms;
    k->warn_at_ms = s->warn_after_ms < 0 ? CLOCK_NEVER : k->acquired_ms + s->warn_after_ms;
    publish_deadline(k);
    k->phase = RUNNING;
    note(k, "acquired %s (token %" PRIu64 ")", k->name, hf_hold_token(k->hold));
    if (hf_check(k->hold, KILL_MARGIN_MS) == HF_OK)
        start_command(k);
    else
        k->shared->lost = true; /* we were stopped, or the store is slow: little time is left */
}

static void watch_acquire(struct keeper *k) {
    int status = hf_call_status(k->call);
    if (status == HF_PENDING) {
        wait_line_step(&k->line);
        return;
    }
    wait_line_end(&k->line);
    if (status == HF_OK)
        acquired(k);
    else if (ask_is_refusal(status))
        not_acquired(k, status, hf_call_error(k->call));
    else
        fail(k, status, hf_call_error(k->call));
}

static void start_release(struct keeper *k) {
    k->phase = RELEASING;
    k->shared->deadline_ms = CLOCK_NEVER;
    k->shared->held_ms = clock_now_ms() - k->acquired_ms;
    k->release_until_ms = clock_now_ms() + RELEASE_PATIENCE_MS;
    int r = hf_release_start(k->hold, &k->call);
    if (r < 0)
        k->shared->released = r;
    cgroup_remove(k->shared->cgroup);
}

/* ---- How it ended ---- */

static int child_code(const struct keeper *k) {
    int status = k->shared->child_status;
    return status == -1          ? EXIT_INTERNAL
           : WIFSIGNALED(status) ? EXIT_BY_SIGNAL + WTERMSIG(status)
                                 : WEXITSTATUS(status);
}

static void conclude_unstarted(struct keeper *k) {
    char command[200];
    int error = k->shared->start_errno;
    text_safe(command, sizeof(command), k->settings->command[0]);
    finish(k, RUN_CANNOT_START, error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN,
           "%s: cannot run %s (%s)%s", k->name, command, strerror(error),
           error == ENOENT   ? "; is it installed, and in PATH?"
           : error == EACCES ? "; is it executable?"
                             : "");
}

/* Ctrl-C and a closed pipe are normal ends and need no message. */
static void conclude_exited(struct keeper *k) {
    int status = k->shared->child_status, signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    int released = k->shared->released;
    bool quiet = k->settings->cli->quiet;
    if (released < 0 && !quiet)
        finish(
            k, RUN_EXITED, child_code(k),
            "the command has ended; the store has not confirmed that %s is free (%s); it will be "
            "free when its lease ends",
            k->name, hf_error_string(released));
    else if (signal && signal != SIGINT && signal != SIGPIPE && !quiet)
        finish(k, RUN_EXITED, child_code(k), "%s: the command was ended by signal %d (%s)", k->name,
               signal, strsignal(signal));
    else
        finish(k, RUN_EXITED, child_code(k), "%s", "");
}

static void conclude_lost(struct keeper *k) {
    char safe[500], why[512] = "";
    if (*k->shared->cause_text)
        snprintf(why, sizeof(why), " (%s)", text_safe(safe, sizeof(safe), k->shared->cause_text));
    if (k->end == RUN_LOST)
        finish(k, RUN_LOST, EXIT_LOST, "the lock %s was lost%s; the command was ended", k->name,
               why);
    else
        finish(k, RUN_LOST, EXIT_LOST, "the lock %s was lost%s %s", k->name, why,
               k->shared->child_status == -1
                   ? "before the command could be started"
                   : "while the command ran; others may have held it meanwhile");
    k->shared->lost = true;
}

static void conclude(struct keeper *k) {
    char time[32];
    bool ignored_loss = k->shared->lost && k->settings->on_lost == ON_LOST_IGNORE;
    if (k->end == RUN_MAX_HOLD && !ignored_loss)
        finish(k, RUN_MAX_HOLD, EXIT_MAX_HOLD, "%s: the command was ended after %s (--max-hold)",
               k->name, text_duration(time, sizeof(time), k->settings->max_hold_ms));
    else if (k->end == RUN_LOST || k->shared->lost || k->shared->released == HF_LOST)
        conclude_lost(k);
    else if (k->end == RUN_FRONT_GONE)
        finish(k, RUN_FRONT_GONE, EXIT_INTERNAL, "%s", "");
    else if (k->shared->start_errno)
        conclude_unstarted(k);
    else
        conclude_exited(k);
}

static void watch_release(struct keeper *k) {
    int status = k->call ? hf_call_status(k->call) : k->shared->released;
    if (status == HF_PENDING && clock_now_ms() < k->release_until_ms)
        return;
    hf_process(k->client); /* the event of a loss says why */
    k->shared->released = status == HF_PENDING ? HF_UNKNOWN : status;
    k->call = hf_call_free(k->call);
    if (!k->shared->released)
        note(k, "released %s", k->name);
    conclude(k);
}

/* ---- Processes ---- */

static void child_changed(struct keeper *k, int status) {
    if (WIFSTOPPED(status)) {
        ring(k, (unsigned char)(RUN_STOPPED | WSTOPSIG(status)));
        return;
    }
    k->shared->child_status = status;
    k->shared->child = k->child = 0;
}

/* We are the subreaper, so no child left means that the whole tree has ended. Returns true if a
 * process has ended. */
static bool reap(struct keeper *k) {
    int status;
    bool died = false;
    pid_t pid, child = k->child;
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | __WALL)) > 0) {
        died |= !WIFSTOPPED(status);
        if (pid == k->child)
            child_changed(k, status);
    }
    if (pid < 0 && errno == ECHILD)
        start_release(k);
    else if (child && !k->child)
        note(k, "the command has ended; %s stays held until everything it started has ended",
             k->name);
    return died;
}

static void step_tree(struct keeper *k) {
    bool died = reap(k);
    if (k->phase != RUNNING && k->phase != ENDING)
        return;
    watch_lock(k);
    if (k->phase == RUNNING)
        watch_time(k);
    if (k->phase == ENDING)
        kill_tree(k, died);
}

static void step(struct keeper *k) {
    enum phase before;
    do {
        before = k->phase;
        switch (k->phase) {
        case WAITING:
            watch_acquire(k);
            break;
        case RUNNING:
        case ENDING:
            step_tree(k);
            break;
        case RELEASING:
            watch_release(k);
            break;
        case DONE:
            break;
        }
    } while (k->phase != before);
}

/* ---- Signals and the front ---- */

static void take_signal(struct keeper *k, int signal, bool typed) {
    bool ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
    if (k->phase == WAITING) {
        if (ends)
            interrupted(k, signal);
    } else if (k->phase == RUNNING || k->phase == ENDING) {
        if (typed)
            return;
        if (k->child)
            kill(k->child, signal);
        else
            tree_signal(getpid(), signal);
    }
}

static void take_own_signals(struct keeper *k) {
    struct signalfd_siginfo info;
    while (read(k->fds[SIGNALS].fd, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo != SIGCHLD)
            take_signal(k, (int)info.ssi_signo, false);
    }
}

static void take_passed_on(struct keeper *k) {
    unsigned char bytes[64];
    ssize_t count = read(k->run->socket, bytes, sizeof(bytes));
    if (count == 0)
        k->fds[SOCKET].fd = -1;
    for (ssize_t i = 0; i < count; i++)
        take_signal(k, bytes[i] & ~RUN_TYPED, bytes[i] & RUN_TYPED);
}

/* Kills at once: if we were killed during a grace period, nobody would be left to end the tree. */
static void front_gone(struct keeper *k) {
    k->fds[FRONT].fd = -1;
    if (k->phase == WAITING)
        interrupted(k, SIGHUP);
    else if (k->phase == RUNNING || k->phase == ENDING)
        begin_ending(k, RUN_FRONT_GONE, clock_now_ms());
}

/* ---- The loop ---- */

static int64_t next_while_running_ms(const struct keeper *k) {
    int64_t at_ms = earlier(k->max_hold_at_ms, k->warn_at_ms);
    if (k->shared->lost)
        return at_ms;
    bool ignores = k->settings->on_lost == ON_LOST_IGNORE;
    return earlier(at_ms, ignores ? k->shared->deadline_ms : give_up_at_ms(k));
}

static int64_t next_ms(const struct keeper *k) {
    switch (k->phase) {
    case WAITING:
        return k->line.next_ms;
    case RUNNING:
        return next_while_running_ms(k);
    case ENDING:
        return k->kill_at_ms;
    case RELEASING:
        return k->release_until_ms;
    case DONE:
        break;
    }
    return CLOCK_NEVER;
}

static void loop(struct keeper *k) {
    for (step(k); k->phase != DONE; step(k)) {
        clock_set_timer(k->fds[TIMER].fd, next_ms(k));
        poll(k->fds, DESCRIPTORS, -1);
        if (k->fds[STORE].revents)
            hf_process(k->client);
        if (k->fds[SIGNALS].revents)
            take_own_signals(k);
        if (k->fds[SOCKET].revents)
            take_passed_on(k);
        if (k->fds[FRONT].revents && k->phase != DONE)
            front_gone(k);
    }
}

/* ---- Beginning ---- */

static int open_descriptors(struct keeper *k) {
    sigset_t taken;
    run_forwarded_signals(&taken);
    sigaddset(&taken, SIGCHLD);
    int fds[DESCRIPTORS] = {
        [STORE] = hf_fd(k->client),
        [SIGNALS] = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK),
        [FRONT] = pidfd_of(k->run->front),
        [SOCKET] = k->run->socket,
        [TIMER] = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK),
    };
    for (size_t i = 0; i < DESCRIPTORS; i++) {
        if (fds[i] < 0)
            return -1;
        k->fds[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    }
    return getppid() == k->run->front ? 0 : -1; /* else the pidfd is another process's */
}

/* Failed renewals are repeated until the deadline. Without -v the user only hears of a loss. */
static void note_renewal(struct keeper *k, const hf_event *event) {
    char name[300], left[32] = "";
    text_safe(name, sizeof(name), event->name);
    if (k->hold) /* else we are still waiting for another name */
        text_left(left, sizeof(left), hf_hold_left_ms(k->hold));
    if (event->type == HF_EVENT_RENEWAL_FAILED)
        note(k, "cannot renew %s (%s); trying again%s%s", name, hf_error_string(event->error),
             *left ? ", " : "", left);
    else if (k->renewal_failed)
        note(k, "renewed %s again", name);
    k->renewal_failed = event->type == HF_EVENT_RENEWAL_FAILED;
}

/* Remembers why the lock was lost, or how its last renewal failed. */
static void note_cause(struct keeper *k, const hf_event *event) {
    struct run_shared *shared = k->shared;
    bool failed = event->type == HF_EVENT_RENEWAL_FAILED && !shared->lost;
    if (event->type == HF_EVENT_RENEWED && !shared->lost)
        *shared->cause_text = 0;
    if (failed)
        snprintf(shared->cause_text, sizeof(shared->cause_text), "%s%s%s",
                 hf_error_string(event->error), *event->text ? ": " : "", event->text);
    if (event->type != HF_EVENT_LOST)
        return;
    snprintf(shared->cause, sizeof(shared->cause), "%s", event->cause);
    snprintf(shared->cause_text, sizeof(shared->cause_text), "%s", event->text);
}

/* Collects what only the library knows, for --metrics-file, --report and -v. */
static void on_event(const hf_event *event, void *arg) {
    struct keeper *k = arg;
    struct run_shared *shared = k->shared;
    int64_t least_ms = shared->least_margin_ms;
    if (event->type == HF_EVENT_RENEWED)
        shared->renewals++;
    if (event->type == HF_EVENT_RENEWED || event->type == HF_EVENT_RENEWAL_FAILED)
        note_renewal(k, event);
    note_cause(k, event);
    if (event->least_margin_ms >= 0 && (least_ms < 0 || event->least_margin_ms < least_ms))
        shared->least_margin_ms = event->least_margin_ms;
}

static int begin(struct keeper *k) {
    const char *command = strrchr(k->settings->command[0], '/');
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    options.command = k->settings->shell_command ? "sh -c"
                      : command                  ? command + 1
                                                 : k->settings->command[0];
    ask_fill_client(&k->settings->ask, &options);
    if (k->settings->reached)
        options.store_wait_ms = HF_FOREVER;
    options.guard_pid = HF_LEASE_ONLY; /* if front and keeper are killed, the command may go on */
    options.on_event = on_event;
    options.on_event_arg = k;
    int r = store_open_silently(k->settings->cli, &options, &k->client);
    if (r < 0) {
        fail(k, r, hf_last_error());
        return -1;
    }
    if (open_descriptors(k) < 0) {
        finish(k, RUN_FAILED, EXIT_INTERNAL, "cannot start (%s)", strerror(errno));
        return -1;
    }
    wait_line_start(&k->line, k->settings->cli, k->settings->name, k->run->group, k->client);
    ask(k);
    return 0;
}

int keeper_main(struct run *run) {
    struct keeper k = {.run = run, .settings = run->settings, .shared = run->shared};
    text_safe(k.name, sizeof(k.name), run->settings->name);
    setpgid(0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (begin(&k) == 0)
        loop(&k);
    if (run->shared->released == HF_OK) { /* nobody needs to wait until the client is closed */
        run->shared->ended = k.end;
        ring(&k, RUN_BELL);
    }
    hf_call_free(k.call);
    hf_hold_free(k.hold);
    hf_client_close(k.client);
    run->shared->ended = k.end;
    return EXIT_SUCCESS;
}
