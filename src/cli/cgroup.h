/* A control group (v2) of the command's own, where we may make one: below ours, as root or where it
 * was delegated. The kernel kills all that are in it in one step, those being born included, so
 * that even a program that forks faster than it can be killed has an end.
 *
 * It is a help and no proof: a descendant that may can leave the group. What tells that all have
 * ended is in tree.h. */
#ifndef CLI_CGROUP_H
#define CLI_CGROUP_H

#include <sys/types.h>

enum { CGROUP_PATH_SIZE = 1024 };

/* Makes a group, named after this process; "": there can be none here. */
void cgroup_make(char ret_path[CGROUP_PATH_SIZE]);

/* fork, with the child in the group. Where that fails the group is removed, and the path "". The
 * child may only prepare and execute a program: the handlers of pthread_atfork have not run. */
pid_t cgroup_fork(char path[CGROUP_PATH_SIZE]);

/* These do nothing if the path is "". */
void cgroup_kill(const char *path);
void cgroup_remove(const char *path); /* with those that were made in it; nobody is in them */

#endif
