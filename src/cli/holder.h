/* The background process of `holdfast acquire`, and how `renew` and `release` talk to it. It holds
 * the lock until `holdfast release`, until the process of --for-pid and everything that it started
 * have ended, or until the time of --for is up.
 *
 * Each holder listens on a unix socket, named by the id of the hold, in a folder that only its user
 * can enter: $XDG_RUNTIME_DIR/holdfast, else /run/holdfast (root) or ~/.local/state/holdfast/run.
 * The FIFO of lifeline.h is beside it. */
#ifndef CLI_HOLDER_H
#define CLI_HOLDER_H

#include "cli/ask.h"
#include "cli/cli.h"

#include <sys/types.h>

#define HOLDER_ID_SIZE 17
#define HOLDER_FIFO_END ".lifeline"

struct holder_settings {
    const struct cli *cli;
    struct ask ask;
    const char *name, *on_lost;
    int64_t for_pid, for_ms; /* -1: not given */
    int lifeline; /* the descriptor that the shell opens; -1: nobody evaluates our output */
};

/* Acquires the lock, prints the commands for the shell, writes its exit code (one byte) to
 * `answer_fd`, and then holds the lock in a session of its own. `for_fd` is a pidfd of
 * settings->for_pid, or -1. */
int holder_main(const struct holder_settings *settings, int for_fd, int answer_fd);

enum holder_verb { HOLDER_RENEW = 1, HOLDER_RELEASE };

struct holder_request {
    int64_t for_ms; /* RENEW: -1 leaves it as it was */
    enum holder_verb verb;
};

struct holder_reply {
    int64_t left_ms; /* of the lease */
    uint64_t token;
    int error; /* hf_error */
};

/* Sends a request to the holder of the hold `id`. Returns HF_OK, HF_NOT_YOURS if there is none, or
 * HF_SYSTEM or HF_DENIED with errno set. */
int holder_ask(const char *id, const struct holder_request *request,
               struct holder_reply *ret_reply);

/* Prints why the lock is not held or the holder cannot be reached. Returns the exit code. */
int holder_failed(const struct cli *cli, int error);

/* Opens the socket that a holder listens on. Negative, with errno set, on failure. */
int holder_listen(const char *id);

/* Creates the FIFO and opens it for reading. Negative, with errno set, on failure. */
int holder_make_fifo(const char *id);
void holder_unlink(const char *id); /* the socket and the FIFO */

/* The id on the command line, or $HOLDFAST_HOLD. Prints an error and returns NULL if neither is
 * valid. */
const char *holder_id(const char *word);

/* Whether --for (-1: not given) is a time in which a script can do anything. Returns 0, or prints
 * an error and returns the exit code. */
int holder_check_for(int64_t for_ms);

#endif
