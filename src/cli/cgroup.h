/* A control group (v2) for the command, below our own, if we may create one: as root, or where it
 * was delegated. The kernel kills everything in the group in one step, including processes that are
 * just being forked, so this ends even a program that forks faster than it can be killed.
 *
 * This helps but proves nothing, since a privileged descendant can leave the group. tree.h has the
 * proof that all descendants have ended. */
#ifndef CLI_CGROUP_H
#define CLI_CGROUP_H

#include <sys/types.h>

enum { CGROUP_PATH_SIZE = 1024 };

/* Creates a group named after this process. The path is "" if that is not possible. */
void cgroup_make(char ret_path[CGROUP_PATH_SIZE]);

/* Forks, with the child in the group. If the child cannot be put there, removes the group, sets the
 * path to "" and forks as usual. The child may only prepare and execute a program, because the
 * handlers of pthread_atfork have not run. */
pid_t cgroup_fork(char path[CGROUP_PATH_SIZE]);

/* These do nothing if the path is "". */
void cgroup_kill(const char *path);
void cgroup_remove(const char *path); /* and the groups below it; they must be empty */

#endif
