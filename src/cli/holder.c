/* The background process of `holdfast acquire`. */
#include "cli/holder.h"

#include "cli/clock.h"
#include "cli/lifeline.h"
#include "cli/text.h"
#include "cli/wait_line.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { KILL_MARGIN_MS = 300, ANSWER_PATIENCE_MS = 1000 };

enum { STORE, LISTENER, OWNER, LIFELINE, TIMER, SIGNALS, DESCRIPTORS };

struct holder {
    const struct holder_settings *settings;
    struct pollfd fds[DESCRIPTORS];
    hf_client *client;
    hf_hold *hold;
    int64_t for_ms, ends_ms; /* when the time of --for is up; CLOCK_NEVER: not given */
    int64_t grace_ms;        /* TERM comes this long before the deadline */
    int lifeline;            /* our end of it; -1: there is none */
    bool warned, done;
    char id[HOLDER_ID_SIZE];
};

/* ---- Acquiring ---- */

static int refused(struct holder *h, int error, const char *why) {
    const struct holder_settings *s = h->settings;
    char text[2048], what[300];
    int code;
    if (ask_is_refusal(error)) {
        code = ask_refused(s->cli, &s->ask, h->client, s->name, error, why, text, sizeof(text));
    } else {
        code = fail_exit_code(error);
        snprintf(what, sizeof(what), "cannot acquire %s", s->name);
        fail_text(text, sizeof(text), s->cli, error, why, what);
    }
    if (*text)
        say(ask_is_refusal(error) ? SAY_WARNING : SAY_ERROR, "%s", text);
    return code;
}

/* Waits for the call and shows the waiting line meanwhile. Returns 0 or an hf_error. */
static int wait_for(struct holder *h, hf_call *call) {
    struct wait_line line;
    int status;
    wait_line_start(&line, h->settings->cli, h->settings->name, getpgrp(), h->client);
    for (;;) {
        int64_t left_ms = line.next_ms == CLOCK_NEVER ? HF_FOREVER : line.next_ms - clock_now_ms();
        status = hf_call_wait(call, left_ms < 0 && line.next_ms != CLOCK_NEVER ? 0 : left_ms);
        if (status != HF_PENDING)
            break;
        wait_line_step(&line);
        if (line.look && hf_call_wait(line.look, ANSWER_PATIENCE_MS) != HF_PENDING)
            wait_line_step(&line); /* shows what the look found */
    }
    wait_line_end(&line);
    return status;
}

static int acquire(struct holder *h) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_call *call = NULL;
    ask_fill(&h->settings->ask, &options);
    int r = hf_acquire_start(h->client, h->settings->name, &options, &call);
    int status = r < 0 ? r : wait_for(h, call);
    int code = EXIT_SUCCESS;
    if (status < 0)
        code = refused(h, status, r < 0 ? hf_last_error() : hf_call_error(call));
    else
        h->hold = hf_call_take_hold(call);
    hf_call_free(call);
    return code;
}

/* ---- Answering ---- */

static void end(struct holder *h, struct holder_reply *reply) {
    if (h->done)
        return;
    int r = hf_release(h->hold);
    if (reply)
        reply->error = r;
    if (h->lifeline >= 0)
        close(h->lifeline); /* before we reply: the shell may then reuse its descriptor */
    h->lifeline = -1;
    h->done = true;
}

static void answer(struct holder *h, int fd) {
    struct holder_request request;
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    if (poll(&readable, 1, ANSWER_PATIENCE_MS) < 1 ||
        recv(fd, &request, sizeof(request), 0) != sizeof(request))
        return;
    struct holder_reply reply = {.token = hf_hold_token(h->hold)};
    reply.error = hf_check(h->hold, 0);
    if (request.verb == HOLDER_RELEASE)
        end(h, &reply);
    else if (reply.error == HF_OK && h->for_ms >= 0) {
        h->for_ms = request.for_ms >= 0 ? request.for_ms : h->for_ms;
        h->ends_ms = clock_now_ms() + h->for_ms;
    }
    reply.left_ms = hf_hold_left_ms(h->hold);
    ssize_t sent = send(fd, &reply, sizeof(reply), MSG_NOSIGNAL);
    (void)sent; /* the caller may be gone */
}

static void take_request(struct holder *h) {
    int fd = accept4(h->fds[LISTENER].fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    answer(h, fd);
    close(fd);
}

/* ---- Losing ---- */

static bool owner_lives(const struct holder *h) {
    return h->fds[OWNER].fd >= 0;
}

/* Signals the process that the lock is for, and everything that it started. */
static void signal_owner(struct holder *h, int signal) {
    lifeline_signal(h->lifeline, owner_lives(h) ? (pid_t)h->settings->for_pid : 0, signal);
}

static bool kills(const struct holder *h) {
    return strcmp(h->settings->on_lost, "kill") == 0;
}

/* Sends TERM when the lease is about to end or the lock is lost, and KILL before the deadline if
 * asked to. */
static void watch_lock(struct holder *h) {
    int64_t left_ms = hf_hold_left_ms(h->hold);
    bool warns = h->settings->for_pid > 0 && strcmp(h->settings->on_lost, "ignore") != 0;
    if (warns && !h->warned && left_ms <= h->grace_ms) {
        h->warned = true;
        signal_owner(h, SIGTERM);
    }
    if (warns && kills(h) && left_ms <= KILL_MARGIN_MS)
        signal_owner(h, SIGKILL);
    if (hf_check(h->hold, 0) != HF_OK)
        h->done = true;
}

static int64_t next_ms(struct holder *h) {
    int64_t left_ms = hf_hold_left_ms(h->hold), now_ms = clock_now_ms();
    int64_t watch_ms = left_ms > h->grace_ms      ? left_ms - h->grace_ms
                       : left_ms > KILL_MARGIN_MS ? left_ms - KILL_MARGIN_MS
                                                  : left_ms;
    return now_ms + watch_ms < h->ends_ms ? now_ms + watch_ms : h->ends_ms;
}

/* ---- The loop ---- */

/* The lock stays held while anybody has the lifeline open. From now on, poll reports its end. */
static void owner_ended(struct holder *h) {
    close(h->fds[OWNER].fd);
    h->fds[OWNER].fd = -1;
    h->fds[LIFELINE].fd = h->lifeline;
}

static bool is_over(struct holder *h) {
    bool was_for = h->settings->for_pid >= 0;
    return h->fds[SIGNALS].revents || clock_now_ms() >= h->ends_ms ||
           (was_for && !owner_lives(h) && (h->lifeline < 0 || !lifeline_is_open(h->lifeline)));
}

static void loop(struct holder *h) {
    while (!h->done) {
        clock_set_timer(h->fds[TIMER].fd, next_ms(h));
        poll(h->fds, DESCRIPTORS, -1);
        hf_process(h->client);
        if (h->fds[LISTENER].revents)
            take_request(h);
        if (h->fds[OWNER].revents)
            owner_ended(h);
        if (is_over(h))
            end(h, NULL);
        if (!h->done)
            watch_lock(h);
    }
}

/* ---- Beginning ---- */

static int open_descriptors(struct holder *h, int for_fd) {
    unsigned char bytes[8];
    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        return -1;
    for (size_t i = 0; i < sizeof(bytes); i++)
        sprintf(h->id + 2 * i, "%02x", bytes[i]);
    int fds[DESCRIPTORS] = {
        [STORE] = hf_fd(h->client),
        [LISTENER] = holder_listen(h->id),
        [OWNER] = for_fd, /* -1: poll ignores it */
        [LIFELINE] = -1,  /* watched once the owner has ended */
        [SIGNALS] = -1,   /* opened once we have left the caller */
        [TIMER] = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK),
    };
    for (size_t i = 0; i < DESCRIPTORS; i++)
        h->fds[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    h->lifeline = h->settings->lifeline < 0 ? -1 : holder_make_fifo(h->id);
    if (h->settings->lifeline >= 0 && h->lifeline < 0)
        return -1;
    return fds[STORE] < 0 || fds[LISTENER] < 0 || fds[TIMER] < 0 ? -1 : 0;
}

/* The last command opens the lifeline: if that fails, so does the shell's eval. */
static void print_lifeline(const struct holder *h) {
    char path[PATH_MAX];
    lifeline_path(h->lifeline, path);
    char *quoted = text_shell_quoted(path);
    printf("exec %d>%s\n", h->settings->lifeline, quoted ? quoted : "''");
    free(quoted);
}

/* Prints what the shell needs. Returns 0, or an exit code if that cannot be written. */
static int print_variables(const struct holder *h) {
    char *name = text_shell_quoted(h->settings->name);
    printf("HOLDFAST_HOLD=%s; HOLDFAST_LOCK=%s; HOLDFAST_TOKEN=%" PRIu64 "; HOLDFAST_SHARED=%d; "
           "export HOLDFAST_HOLD HOLDFAST_LOCK HOLDFAST_TOKEN HOLDFAST_SHARED\n",
           h->id, name ? name : "''", hf_hold_token(h->hold), !hf_hold_is_exclusive(h->hold));
    free(name);
    if (h->lifeline >= 0)
        print_lifeline(h);
    return say_flush(EXIT_SUCCESS);
}

/* Detaches from the caller's terminal, group and pipes, so that nobody waits for us. */
static void leave(struct holder *h) {
    sigset_t term;
    prctl(PR_SET_PDEATHSIG, 0);
    setsid();
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    h->fds[SIGNALS].fd = signalfd(-1, &term, SFD_CLOEXEC | SFD_NONBLOCK);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; null >= 0 && fd <= STDERR_FILENO; fd++)
        dup2(null, fd);
    if (null > STDERR_FILENO)
        close(null);
    if (chdir("/") < 0)
        return; /* harmless: a file system stays busy */
}

static int begin(struct holder *h, int for_fd) {
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    options.command = "holdfast acquire";
    ask_fill_client(&h->settings->ask, &options);
    options.guard_pid = HF_LEASE_ONLY; /* the work goes on if we are killed */
    int r = store_open(h->settings->cli, &options, &h->client);
    if (r < 0)
        return fail_exit_code(r);
    if (open_descriptors(h, for_fd) < 0) {
        fail_say(
            "cannot listen for renew and release (%s); does XDG_RUNTIME_DIR belong to you, and "
            "is its holdfast/ closed to others?",
            strerror(errno));
        return EXIT_CONFIG;
    }
    int code = acquire(h);
    h->for_ms = h->settings->for_ms;
    h->ends_ms = h->for_ms < 0 ? CLOCK_NEVER : clock_now_ms() + h->for_ms;
    return code;
}

int holder_main(const struct holder_settings *settings, int for_fd, int answer_fd) {
    struct holder h = {.settings = settings, .lifeline = -1};
    h.grace_ms = ask_grace_ms(&settings->ask);
    unsigned char code = (unsigned char)begin(&h, for_fd);
    if (h.hold && (code = (unsigned char)print_variables(&h))) {
        hf_release(h.hold);
        h.hold = hf_hold_free(h.hold);
    }
    if (h.hold)
        leave(&h);
    ssize_t told = write(answer_fd, &code, 1); /* now the caller may end */
    close(answer_fd);
    if (told == 1 && h.hold)
        loop(&h);
    if (*h.id)
        holder_unlink(h.id);
    hf_hold_free(h.hold);
    hf_client_close(h.client);
    return EXIT_SUCCESS;
}
