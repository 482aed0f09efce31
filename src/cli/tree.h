/* All descendants of a process, whatever group or session they have moved to.
 *
 * They are found in /proc. Both processes of `run` are subreapers: a descendant that loses its
 * parent becomes their child and stays in the tree. So a subreaper without children (waitpid
 * returns ECHILD) has no descendants either. Nothing else proves that: processes that fork and exit
 * quickly can be missed by any search. */
#ifndef CLI_TREE_H
#define CLI_TREE_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether /proc shows our descendants: it is mounted, and by our own pid namespace. */
bool tree_is_visible(void);

/* Sends `signal` to all descendants of `root`. A process that is forked meanwhile may be missed. */
void tree_signal(pid_t root, int signal);

/* The same for the processes that `is_member` accepts and all their descendants, but not for us. */
void tree_signal_members(int signal, bool (*is_member)(pid_t pid, const void *arg),
                         const void *arg);

/* Kills our own children within microseconds, which catches processes that fork and exit quickly.
 * Their children become ours when they die. We must be a subreaper. */
void tree_kill_children(void);

/* Kills all our descendants, and returns when none is left. We must be a subreaper. */
void tree_kill(void);

bool process_is_stopped(pid_t pid);
bool process_is_ancestor(pid_t pid); /* of ours */

int pidfd_of(pid_t pid); /* close-on-exec; negative: there is no such process */
void pidfd_signal(int fd, int signal);

#endif
