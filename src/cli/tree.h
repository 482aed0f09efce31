/* The processes below one of ours: all descendants, whatever group or session they moved to.
 *
 * They are found by walking /proc. That sees everything because `run` is a subreaper: who loses a
 * parent becomes our child, and stays in the tree. */
#ifndef CLI_TREE_H
#define CLI_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Sends `signal` (0: only counts) to all descendants of `root` but `except` (0: none). Returns how many
 * live: zombies do not. Who is born meanwhile may be missed: repeat until there is none. */
size_t tree_signal(pid_t root, pid_t except, int signal);

/* Kills them until none is left, and reaps those of them that are our children. */
void tree_kill(pid_t root, pid_t except);

bool process_is_stopped(pid_t pid);

int pidfd_of(pid_t pid); /* close-on-exec; negative: there is no such process */
void pidfd_signal(int fd, int signal);

#endif
