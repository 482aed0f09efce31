/* The lifeline of `holdfast acquire --for-pid`: how the lock outlives a script that is killed while
 * something that it started goes on.
 *
 * It is a FIFO. The shell opens it for writing when it evaluates what acquire printed, and everything
 * that the shell starts inherits the descriptor, as it does with flock(1). The holder has the other end:
 * it has nobody to wait for when nobody has the FIFO open. Those who close their descriptors (sudo,
 * many daemons) are not seen, nor is what ksh starts, which passes on no descriptor above 2. */
#ifndef CLI_LIFELINE_H
#define CLI_LIFELINE_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

/* Which descriptor the shell `pid` can use for it: one that is free, or still belongs to a lifeline whose
 * holder has ended. From 9 down to 3, as some shells know no others; -1: there is none. */
int lifeline_number(pid_t pid);

/* Where the FIFO is; `fd` is the holder's end. */
void lifeline_path(int fd, char ret[PATH_MAX]);

/* Whether anybody has the FIFO open for writing. */
bool lifeline_is_open(int fd);

/* Sends `signal` to `owner` (0: there is none), to everybody who has the FIFO open, and to all their
 * descendants. */
void lifeline_signal(int fd, pid_t owner, int signal);

#endif
