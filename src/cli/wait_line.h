/* The line shown while waiting: who has the lock, since when, and our place in the queue; or why
 * the store cannot be reached. On a terminal it is one line, updated every second; elsewhere it is
 * printed at the start and then rarely. */
#ifndef CLI_WAIT_LINE_H
#define CLI_WAIT_LINE_H

#include "cli/cli.h"

#include <sys/types.h>

struct wait_line {
    const char *name; /* of the lock */
    pid_t group;      /* whose terminal it is */
    hf_client *client;
    hf_call *look; /* in flight, or NULL */
    int64_t since_ms, next_ms, pause_ms;
    bool terminal, drawn;
};

void wait_line_start(struct wait_line *line, const struct cli *cli, const char *name, pid_t group,
                     hf_client *client);
void wait_line_step(struct wait_line *line); /* call it when something happened, or at next_ms */
void wait_line_end(struct wait_line *line);

/* "held by web3 pid 411 (deploy.sh) for 4m10s · 2nd of 5 · lease 8s left", or "". */
void wait_line_describe(char *ret, size_t size, const hf_lock_info *info);

#endif
