/* See process.h. */
#include "process.h"

#include "result.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COMMANDS = 5 };

extern char **environ;

double process_command_slice(void *arg) {
    char *const *words = arg;
    int count = result_scale(COMMANDS, 1);
    int64_t began = result_now_ns();
    for (int i = 0; i < count; i++) {
        pid_t child;
        int64_t start = result_now_ns();
        int status, error = posix_spawnp(&child, words[0], NULL, NULL, words, environ);
        if (error || waitpid(child, &status, 0) < 0 || status != 0)
            result_die(words[0], error ? strerror(error) : "it failed");
        result_time(result_now_ns() - start);
    }
    return (double)(result_now_ns() - began) / 1e6 / count;
}

/* ---- Peers ---- */

struct peer {
    int fd;
    FILE *from;
    pid_t pid;
};

struct peer *peer_start(const char *const *words) {
    int ends[2];
    posix_spawn_file_actions_t actions;
    struct peer *peer = calloc(1, sizeof(*peer));
    if (!peer || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        result_die(words[0], strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    int error = posix_spawnp(&peer->pid, words[0], &actions, NULL, (char *const *)words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error)
        result_die(words[0], strerror(error));
    peer->fd = ends[0];
    peer->from = fdopen(ends[0], "r");
    return peer;
}

void peer_end(struct peer *peer) {
    shutdown(peer->fd, SHUT_WR); /* it ends when nothing more comes */
    waitpid(peer->pid, NULL, 0);
    fclose(peer->from);
    free(peer);
}

double peer_slice(void *arg) {
    const struct peer_slice *slice = arg;
    char *line = NULL, *at, *end;
    size_t room = 0;
    dprintf(slice->peer->fd, "%s %s %d %d\n", slice->measure, slice->what, slice->count,
            (int)(result_slice_ns(slice->ms) / 1000000));
    if (getline(&line, &room, slice->peer->from) < 0)
        result_die(slice->what, "the peer has ended");
    double value = strtod(line, &at);
    for (double us; us = strtod(at, &end), end != at; at = end)
        result_time((int64_t)(us * 1000));
    free(line);
    return value;
}

double peer_slice_us(void *arg) {
    peer_slice(arg);
    return result_median_us();
}
