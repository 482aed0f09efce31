/* The processes below one of ours. */
#include "cli/tree.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
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
    unsigned long long start; /* identifies it, even if the pid is reused */
    bool dead, stopped, below;
};

struct processes {
    struct process *items;
    size_t count, room;
};

/* Which processes get which signal. */
struct aim {
    int signal;
    pid_t root;                                    /* those below it, and … */
    bool (*is_member)(pid_t pid, const void *arg); /* … these; NULL: none */
    const void *arg;
};

int pidfd_of(pid_t pid) {
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

void pidfd_signal(int fd, int signal) {
    syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0);
}

/* ---- Looking ---- */

/* The beginning of a file in /proc, as a string; false when it cannot be read. */
static bool read_text(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t length = read(fd, text, size - 1);
    close(fd);
    text[length > 0 ? length : 0] = 0;
    return length > 0;
}

/* /proc must show the pid that we know, and no other. */
bool tree_is_visible(void) {
    char text[4096], expected[32];
    snprintf(expected, sizeof(expected), "\nNSpid:\t%d\n", getpid());
    return read_text("/proc/self/status", text, sizeof(text)) && strstr(text, expected);
}

/* Reads /proc/PID/stat. The name of the command may contain anything, so the fields are counted
 * from the last ')'. A process whose first thread has ended while others run is also shown as Z,
 * but with more than one thread. */
static bool read_process(pid_t pid, struct process *ret) {
    char path[40], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (!read_text(path, text, sizeof(text)))
        return false;
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

bool process_is_ancestor(pid_t pid) {
    struct process process = {.parent = getppid()};
    while (process.parent != pid && process.parent > 0 && read_process(process.parent, &process))
        ;
    return process.parent == pid;
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

static int by_pid(const void *a, const void *b) {
    pid_t left = ((const struct process *)a)->pid, right = ((const struct process *)b)->pid;
    return (left > right) - (left < right);
}

static bool is_below(const struct processes *all, pid_t pid, pid_t root) {
    struct process key = {.pid = pid};
    if (pid == root || !all->count)
        return pid == root;
    const struct process *found =
        bsearch(&key, all->items, all->count, sizeof(*all->items), by_pid);
    return found && found->below;
}

/* ---- Ending ---- */

/* Uses a pidfd, and checks afterwards that it is still the process that was seen. */
static void signal_process(const struct process *seen, int signal) {
    struct process now = {0};
    int fd = pidfd_of(seen->pid);
    if (fd < 0)
        return;
    if (read_process(seen->pid, &now) && now.start == seen->start)
        pidfd_signal(fd, signal);
    close(fd);
}

static bool is_aimed_at(const struct processes *all, const struct process *process,
                        const struct aim *aim) {
    return is_below(all, process->parent, aim->root) ||
           (aim->is_member && aim->is_member(process->pid, aim->arg));
}

/* Signals the process if it is found to be one of those aimed at. Returns true if that is new. */
static bool reach(const struct processes *all, struct process *process, const struct aim *aim) {
    if (process->below || process->pid == getpid() || !is_aimed_at(all, process, aim))
        return false;
    process->below = true;
    if (!process->dead)
        signal_process(process, aim->signal);
    return true;
}

/* Processes are signalled as soon as they are found: one that forks and exits every 100 us would be
 * gone once everything has been read. /proc lists pids in order, so children mostly come after
 * their parents. */
static void read_all(struct processes *all, const struct aim *aim) {
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    while (proc && (entry = readdir(proc))) {
        struct process process = {0};
        if (!isdigit((unsigned char)entry->d_name[0]) ||
            !read_process((pid_t)strtol(entry->d_name, NULL, 10), &process))
            continue;
        reach(all, &process, aim);
        if (!add(all, &process))
            break;
    }
    if (proc)
        closedir(proc);
}

static void signal_all(const struct aim *aim) {
    struct processes all = {0};
    read_all(&all, aim);
    if (all.count)
        qsort(all.items, all.count, sizeof(*all.items), by_pid);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < all.count; i++)
            changed |= reach(&all, &all.items[i], aim);
    }
    free(all.items);
}

void tree_signal(pid_t root, int signal) {
    signal_all(&(struct aim){.signal = signal, .root = root});
}

void tree_signal_members(int signal, bool (*is_member)(pid_t pid, const void *arg),
                         const void *arg) {
    signal_all(&(struct aim){signal, -1, is_member, arg});
}

/* The kernel has a list of our children; without that list, all of /proc is searched. A pid belongs
 * to the child until it is reaped, which only we do. If the list is too long for the buffer, it may
 * be cut within a pid, which then has no space after it. */
void tree_kill_children(void) {
    char path[64], text[1 << 14] = "", *at = text, *end;
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
    if (!read_text(path, text, sizeof(text)) && access(path, F_OK) < 0)
        tree_signal(getpid(), SIGKILL);
    for (long pid; (pid = strtol(at, &end, 10)) > 0 && *end == ' '; at = end)
        kill((pid_t)pid, SIGKILL);
}

/* When a process dies, its orphans become our children, so those are killed at once. */
void tree_kill(void) {
    bool died = false;
    for (int pause_ms = 0;;) {
        if (died)
            tree_kill_children();
        else
            tree_signal(getpid(), SIGKILL);
        pid_t pid;
        died = false;
        while ((pid = waitpid(-1, NULL, WNOHANG | __WALL)) > 0)
            died = true;
        if (pid < 0 && errno == ECHILD)
            return;
        pause_ms = died ? 0 : pause_ms < BACKOFF_MAX_MS ? 2 * pause_ms + 1 : BACKOFF_MAX_MS;
        poll(NULL, 0, pause_ms);
    }
}
