/* The lifeline of `holdfast acquire --for-pid`: it keeps the lock held if a script is killed while
 * something that it started goes on.
 *
 * It is a FIFO. The shell opens it for writing when it evaluates what acquire printed, and
 * everything that the shell starts inherits the descriptor, as with flock(1). The holder reads from
 * it, and sees when the last of them has ended. Processes that close the descriptor (sudo, many
 * daemons) are not noticed, nor is anything that ksh starts, which passes on no descriptor above
 * 2. */
#ifndef CLI_LIFELINE_H
#define CLI_LIFELINE_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

/* Which descriptor the shell `pid` can use: one that is free, or that belongs to the lifeline of a
 * holder that has ended. It is from 9 down to 3, since some shells support no others; -1 if there
 * is none. */
int lifeline_number(pid_t pid);

/* Where the FIFO is; `fd` is the holder's end. */
void lifeline_path(int fd, char ret[PATH_MAX]);

/* Whether anybody has the FIFO open for writing. */
bool lifeline_is_open(int fd);

/* Sends `signal` to `owner` (0: none), to every process that has the FIFO open, and to all their
 * descendants. */
void lifeline_signal(int fd, pid_t owner, int signal);

#endif
