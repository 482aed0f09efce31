/* An orderly end on SIGTERM or Ctrl-C. The program holds one lock and waits for two that another
 * client has. The signal arrives through a signalfd in the same poll loop as everything else. The
 * program then cancels whatever waits, and releases its lock. So it leaves nothing in the store
 * that others would have to wait for: neither a lock nor a place in a queue. */
#include <holdfast/holdfast.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { WAITING = 2 };
static const char *const wanted[WAITING] = {"tape-1", "tape-2"};

/* Blocked before the first thread is started, so that no thread takes the signal away. */
static int open_signals(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    if (pthread_sigmask(SIG_BLOCK, &signals, NULL))
        return -1;
    return signalfd(-1, &signals, SFD_CLOEXEC);
}

static bool wait_for_signal(hf_client *client, int signals) {
    struct pollfd fds[] = {{.fd = signals, .events = POLLIN},
                           {.fd = hf_fd(client), .events = POLLIN}};
    struct signalfd_siginfo info;
    while (poll(fds, 2, -1) > 0) {
        hf_process(client);
        hf_call *call = hf_call_next(client);
        if (call) {
            fprintf(stderr, "an acquire ended too early: %s\n", hf_call_error(call));
            return false;
        }
        if (fds[0].revents)
            return read(signals, &info, sizeof(info)) == sizeof(info);
    }
    return false;
}

/* Ends the waiting acquires, and takes them; true if each ended as it should. */
static bool shut_down(hf_client *client, hf_hold *hold) {
    bool right = hf_client_cancel(client) == HF_OK;
    hf_call *call;
    while ((call = hf_call_next(client))) {
        printf("a waiting acquire: %s\n", hf_call_error(call));
        right = right && hf_call_status(call) == HF_CANCELLED;
        hf_call_free(call);
    }
    right = right && hf_release(hold) == HF_OK;
    hf_hold_free(hold);
    return right;
}

static bool nobody_waits(hf_client *other, const char *name) {
    hf_locks *locks;
    if (hf_inspect(other, name, &locks) < 0)
        return false;
    bool nobody = hf_locks_count(locks) == 0 || hf_locks_at(locks, 0)->waiter_count == 0;
    hf_locks_free(locks);
    return nobody;
}

int main(int argc, char **argv) {
    const char *url = argc > 1 ? argv[1] : "memory:shutdown";
    hf_client *client, *other;
    hf_hold *hold, *others[WAITING], *again;
    hf_call *call;
    int signals = open_signals();
    bool right = signals >= 0 && hf_client_open(url, NULL, &client) == HF_OK &&
                 hf_client_open(url, NULL, &other) == HF_OK &&
                 hf_acquire(client, "backup", NULL, &hold) == HF_OK;
    for (int i = 0; right && i < WAITING; i++)
        right = hf_acquire(other, wanted[i], NULL, &others[i]) == HF_OK &&
                hf_acquire_start(client, wanted[i], NULL, &call) == HF_OK &&
                hf_call_queue(call, NULL) == HF_OK;
    if (!right) {
        fprintf(stderr, "%s\n", hf_last_error());
        return 1;
    }

    printf("one lock is held, two are waited for; send SIGTERM to %d\n", getpid());
    fflush(stdout);
    right = wait_for_signal(client, signals);
    right = right && shut_down(client, hold);
    close(signals);
    for (int i = 0; i < WAITING; i++) {
        right = right && nobody_waits(other, wanted[i]);
        hf_hold_free(others[i]);
    }
    hf_acquire_options try_once = HF_ACQUIRE_OPTIONS_INIT;
    try_once.wait_ms = 0;
    right = right && hf_acquire(other, "backup", &try_once, &again) == HF_OK;
    printf("%s\n", right ? "nothing was left behind" : "something was left behind");
    if (right)
        hf_hold_free(again);
    hf_client_close(client);
    hf_client_close(other);
    return right ? 0 : 1;
}
