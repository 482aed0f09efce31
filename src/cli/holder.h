/* The background process of `holdfast acquire`: it has the lock until `holdfast release`, the process that
 * it is for and what that started have ended, or its time is up; and how `renew` and `release` talk to it.
 *
 * Each holder listens on a unix socket, named by the id of the hold, in a folder that only its user can
 * enter: $XDG_RUNTIME_DIR/holdfast, else /run/holdfast (root) or ~/.local/state/holdfast/run. The FIFO of
 * lifeline.h is beside it. */
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

/* Acquires, prints the shell's assignments, writes its exit code (one byte) to `answer_fd`, and then stays
 * with the lock, in a session of its own. `for_fd` is the pidfd of settings->for_pid, or -1. */
int holder_main(const struct holder_settings *settings, int for_fd, int answer_fd);

enum holder_verb { HOLDER_RENEW = 1, HOLDER_RELEASE };

struct holder_request {
    int64_t for_ms; /* RENEW: -1: as it was */
    enum holder_verb verb;
};

struct holder_reply {
    int64_t left_ms; /* of the lease */
    uint64_t token;
    int error; /* hf_error */
};

/* Asks the holder of the hold `id`. HF_OK, HF_NOT_YOURS if there is none, or HF_SYSTEM or HF_DENIED with
 * errno set. */
int holder_ask(const char *id, const struct holder_request *request,
               struct holder_reply *ret_reply);

/* Says why the lock is not held, or the holder cannot be asked; the exit code for it. */
int holder_failed(const struct cli *cli, int error);

/* The socket that a holder listens on; negative with errno set. */
int holder_listen(const char *id);

/* Makes the FIFO and opens it for reading; negative with errno set. */
int holder_make_fifo(const char *id);
void holder_unlink(const char *id); /* both */

/* The word of the command line, or $HOLDFAST_HOLD; says so if there is neither (NULL). */
const char *holder_id(const char *word);

#endif
