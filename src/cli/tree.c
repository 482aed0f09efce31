/* The processes below one of ours. */
#include "cli/tree.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BACKOFF_MAX_MS = 50 };

struct process {
    pid_t pid, parent;
    unsigned long long start; /* with the pid, what tells it from a later process of that pid */
    bool dead, stopped, below;
};

struct processes {
    struct process *items;
    size_t count, room;
};

int pidfd_of(pid_t pid) {
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

void pidfd_signal(int fd, int signal) {
    syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0);
}

/* ---- Looking ---- */

/* Reads /proc/PID/stat. The command in it may contain anything, so the fields count from its last ')'. A
 * process whose first thread ended while others go on shows as Z too, but with more threads than one. */
static bool read_process(pid_t pid, struct process *ret) {
    char path[40], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t length = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (length <= 0)
        return false;
    text[length] = 0;
    const char *fields = strrchr(text, ')');
    char state;
    long threads;
    ret->pid = pid;
    if (!fields || sscanf(fields,
                          ") %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld "
                          "%*d %llu",
                          &state, &ret->parent, &threads, &ret->start) != 4)
        return false;
    ret->dead = (state == 'Z' || state == 'X') && threads <= 1;
    ret->stopped = state == 'T';
    return true;
}

bool process_is_stopped(pid_t pid) {
    struct process process = {0};
    return pid > 0 && read_process(pid, &process) && process.stopped;
}

static bool add(struct processes *all, const struct process *process) {
    if (all->count == all->room) {
        size_t room = all->room ? 2 * all->room : 256;
        struct process *items = realloc(all->items, room * sizeof(*items));
        if (!items)
            return false;
        all->items = items;
        all->room = room;
    }
    all->items[all->count++] = *process;
    return true;
}

static void read_all(struct processes *all) {
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    while (proc && (entry = readdir(proc))) {
        struct process process = {0};
        if (isdigit((unsigned char)entry->d_name[0]) &&
            read_process((pid_t)strtol(entry->d_name, NULL, 10), &process) && !add(all, &process))
            break;
    }
    if (proc)
        closedir(proc);
}

static int by_pid(const void *a, const void *b) {
    pid_t left = ((const struct process *)a)->pid, right = ((const struct process *)b)->pid;
    return (left > right) - (left < right);
}

static bool is_below(const struct processes *all, pid_t pid, pid_t root) {
    struct process key = {.pid = pid};
    if (pid == root)
        return true;
    const struct process *found =
        bsearch(&key, all->items, all->count, sizeof(*all->items), by_pid);
    return found && found->below;
}

static void mark_below(struct processes *all, pid_t root) {
    if (all->count)
        qsort(all->items, all->count, sizeof(*all->items), by_pid);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < all->count; i++) {
            struct process *process = &all->items[i];
            if (!process->below && is_below(all, process->parent, root))
                process->below = changed = true;
        }
    }
}

/* ---- Ending ---- */

/* Through a pidfd, behind which a look makes sure that it is still the process that was seen. */
static void signal_process(const struct process *seen, int signal) {
    struct process now = {0};
    int fd = pidfd_of(seen->pid);
    if (fd < 0)
        return;
    if (read_process(seen->pid, &now) && now.start == seen->start)
        pidfd_signal(fd, signal);
    close(fd);
}

size_t tree_signal(pid_t root, pid_t except, int signal) {
    struct processes all = {0};
    size_t living = 0;
    read_all(&all);
    mark_below(&all, root);
    for (size_t i = 0; i < all.count; i++) {
        const struct process *process = &all.items[i];
        if (!process->below || process->dead || process->pid == except)
            continue;
        living++;
        if (signal)
            signal_process(process, signal);
    }
    free(all.items);
    return living;
}

/* Twice none, since a process can be born behind the reader's back and its parent then die. */
void tree_kill(pid_t root, pid_t except) {
    int pause_ms = 1, none = 0;
    while (none < 2) {
        none = tree_signal(root, except, SIGKILL) ? 0 : none + 1;
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
        if (!none) {
            poll(NULL, 0, pause_ms);
            pause_ms = pause_ms < BACKOFF_MAX_MS ? 2 * pause_ms : BACKOFF_MAX_MS;
        }
    }
}
