/* The front of `holdfast run`: the process that the shell sees. It passes signals to the keeper,
 * which is the parent of the command, watches the keeper and the deadline, and returns the exit
 * code. */
#include "cli/run.h"
#include "cli/text.h"
#include "cli/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BREAK_PATIENCE_MS = 3000 };

enum { KEEPER, SIGNALS, SOCKET, TIMER, DESCRIPTORS };

struct front {
    struct run *run;
    struct pollfd fds[DESCRIPTORS];
    bool frees_locks; /* in the keeper's place */
};

/* ---- Signals ---- */

static void stop(struct front *f, int number) {
    sigset_t set, before;
    f->run->shared->front_stopped = true;
    sigemptyset(&set);
    sigaddset(&set, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &set, &before); /* here we stop, until somebody continues us */
    sigprocmask(SIG_SETMASK, &before, NULL);
    f->run->shared->front_stopped = false;
}

/* A signal typed at the terminal goes to the whole group, so the command already has it. (A
 * hang-up goes only to the leader of the session, which may be us.) */
static void pass_on(struct front *f, const struct signalfd_siginfo *info) {
    if (info->ssi_signo == SIGTERM || info->ssi_signo == SIGINT || info->ssi_signo == SIGQUIT)
        f->run->shared->asked_to_end = true;
    bool typed = info->ssi_code == SI_KERNEL && info->ssi_signo != SIGHUP;
    unsigned char byte = (unsigned char)(info->ssi_signo | (typed ? RUN_TYPED : 0));
    ssize_t sent = send(f->run->socket, &byte, 1, MSG_NOSIGNAL);
    (void)sent; /* if this fails, the keeper is gone or stopped, which is noticed elsewhere */
}

/* The front stops itself after the command has stopped, by the same signal: only then may the shell
 * take the terminal back. If the command ignores the signal, the front does not stop either. A
 * notice that arrives after the command was continued is dropped. */
static void take_news(struct front *f) {
    unsigned char bytes[64];
    ssize_t count = read(f->run->socket, bytes, sizeof(bytes));
    if (count == 0)
        f->fds[SOCKET].fd = -1;
    unsigned char last = count > 0 ? bytes[count - 1] : 0;
    if (last & RUN_STOPPED && process_is_stopped(f->run->shared->child))
        stop(f, last & ~RUN_STOPPED);
}

/* A shell continues all processes of a job. If somebody continues only the front, they mean the
 * command, so the front continues it. It does not ask the keeper to: by then the command might have
 * been stopped again. */
static void take_signals(struct front *f) {
    struct signalfd_siginfo info;
    while (read(f->fds[SIGNALS].fd, &info, sizeof(info)) == sizeof(info)) {
        pid_t child = f->run->shared->child;
        if (info.ssi_signo == SIGTSTP && !child)
            stop(f, SIGTSTP);
        else if (info.ssi_signo != SIGCONT)
            pass_on(f, &info);
        else if (process_is_stopped(child))
            kill(child, SIGCONT);
    }
}

/* ---- The end ---- */

static int end_without_keeper(struct front *f, const char *why) {
    struct run_shared *shared = f->run->shared;
    bool held = shared->tokens[0] != 0;
    cgroup_kill(shared->cgroup);
    tree_kill(); /* including the keeper, if it was only stopped */
    cgroup_remove(shared->cgroup);
    shared->ended = RUN_KEEPER_GONE;
    shared->lost = held;
    char name[300];
    text_safe(name, sizeof(name), f->run->settings->name);
    if (held)
        snprintf(shared->text, sizeof(shared->text),
                 "the lock %s cannot be kept (%s); the command was ended", name, why);
    else
        snprintf(shared->text, sizeof(shared->text), "cannot wait for the lock %s (%s)", name, why);
    return held ? EXIT_LOST : EXIT_INTERNAL;
}

static int keeper_gone(struct front *f) {
    if (f->run->shared->ended)
        return f->run->shared->exit_code;
    f->frees_locks = true;
    return end_without_keeper(f, "the process that renews it was killed");
}

/* The deadline is near, and the keeper has not acted although it should have. */
static int keeper_silent(struct front *f) {
    return end_without_keeper(f, "the process that renews it is not running");
}

/* The keeper's death frees no lock, since the command could have outlived it. But the command has
 * ended, so break each hold by its token. If that fails, the lease ends the hold. */
static void free_locks(const struct run *run) {
    const struct run_settings *s = run->settings;
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    hf_client *client = NULL;
    options.command = "holdfast run";
    if (store_open_silently(s->cli, &options, &client) < 0)
        return;
    for (size_t i = 0; i <= s->also.count; i++) {
        hf_call *call = NULL;
        if (run->shared->tokens[i] &&
            hf_break_start(client, i ? s->also.items[i - 1] : s->name, run->shared->tokens[i],
                           "the process that renews it was killed; the command was ended",
                           &call) == HF_OK)
            hf_call_wait(call, BREAK_PATIENCE_MS);
        hf_call_free(call);
    }
    hf_client_close(client);
}

/* ---- The loop ---- */

static int64_t act_at_ms(const struct front *f) {
    int64_t deadline_ms = f->run->shared->deadline_ms;
    bool ignores = f->run->settings->on_lost == ON_LOST_IGNORE;
    return deadline_ms == CLOCK_NEVER || ignores ? CLOCK_NEVER : deadline_ms - RUN_MARGIN_MS;
}

/* The keeper rings when it has written the first deadline, and when the lock is free again. Later
 * deadlines are seen when the timer of an earlier one fires. The front does not wait for the keeper
 * to end, unless another one may follow it. */
static int loop(struct front *f) {
    for (;;) {
        int64_t at_ms = act_at_ms(f);
        if (clock_now_ms() >= at_ms && !f->run->shared->ended)
            return keeper_silent(f);
        clock_set_timer(f->fds[TIMER].fd, at_ms);
        if (poll(f->fds, DESCRIPTORS, -1) < 0 && errno != EINTR)
            return keeper_silent(f);
        if (f->fds[SIGNALS].revents)
            take_signals(f);
        if (f->fds[SOCKET].revents)
            take_news(f);
        if (f->fds[KEEPER].revents || (f->run->shared->ended && !f->run->settings->again))
            return keeper_gone(f);
    }
}

static int open_descriptors(struct front *f) {
    sigset_t forwarded, mask = f->run->mask_before;
    run_forwarded_signals(&forwarded);
    sigorset(&mask, &mask, &forwarded);
    sigaddset(&mask, SIGPIPE);
    int fds[DESCRIPTORS] = {
        [KEEPER] = pidfd_of(f->run->keeper),
        [SIGNALS] = signalfd(-1, &forwarded, SFD_CLOEXEC | SFD_NONBLOCK),
        [SOCKET] = f->run->socket,
        [TIMER] = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK),
    };
    for (size_t i = 0; i < DESCRIPTORS; i++) {
        if (fds[i] < 0)
            return -1;
        f->fds[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    return 0;
}

static void close_descriptors(struct front *f) {
    close(f->fds[KEEPER].fd);
    close(f->fds[SIGNALS].fd);
    close(f->fds[TIMER].fd);
    close(f->run->socket);
}

/* A lock that is taken, and a command that ended on its own, are not failures of holdfast. */
static enum say_level level_of(int end) {
    return end == RUN_NOT_ACQUIRED || end == RUN_EXITED ? SAY_WARNING : SAY_ERROR;
}

int front_main(struct run *run) {
    struct front f = {.run = run};
    int code;
    if (!run->settings->again) /* else the next command needs them */
        run_close_stdio();
    if (open_descriptors(&f) < 0) {
        fail_say("cannot start (%s)", strerror(errno));
        tree_kill(); /* the keeper, and the command if it has started already */
        cgroup_remove(run->shared->cgroup);
        return EXIT_INTERNAL;
    }
    code = loop(&f);
    if (*run->shared->text)
        say(level_of(run->shared->ended), "%s", run->shared->text);
    if (f.frees_locks)
        free_locks(run);
    close_descriptors(&f);
    return code;
}
