/* Which processes are alive. A pid proves something only to processes in the same pid namespace,
 * which see the same pids, and in the same time namespace: the start time of a process, which
 * reveals a reused pid, is shown in the reader's time. If /proc belongs to another pid namespace,
 * or is missing, nothing can be proved, and only leases decide. */
#include "base/error.h"
#include "store/sqlite/sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The beginning of a small file, as a string; false when it cannot be read. */
static bool read_text(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, text, size - 1);
    close(fd);
    text[got > 0 ? got : 0] = 0;
    return got > 0;
}

static uint64_t space_of(const char *path) {
    struct stat space;
    return stat(path, &space) == 0 ? space.st_ino : 0;
}

/* The 22nd field; the second, the command in parentheses, may contain anything. 0: no such
 * process. */
static uint64_t start_time(int64_t pid) {
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%" PRId64 "/stat", pid);
    if (!read_text(path, text, sizeof(text)))
        return 0;
    char *field = strrchr(text, ')');
    for (int i = 2; field && i < 22; i++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field, NULL, 10) : 0;
}

/* Whether /proc shows our own pid namespace: then it has one pid for us, the one that we know. */
static bool proc_is_ours(int64_t pid) {
    char text[4096], expected[32];
    if (!read_text("/proc/self/status", text, sizeof(text)))
        return false;
    snprintf(expected, sizeof(expected), "\nNSpid:\t%" PRId64 "\n", pid);
    return strstr(text, expected) != NULL;
}

/* How far the clock of this time namespace is ahead of the host's. The kernel shows the offsets of
 * the namespace that our children will be in; if that is another one, ours cannot be known. */
static int read_clock_offset(int64_t *ret_us, char **ret_text) {
    char text[256];
    uint64_t time_space = space_of("/proc/self/ns/time");
    *ret_us = 0;
    if (!time_space && space_of("/proc/self/ns/pid"))
        return HF_OK; /* a kernel without time namespaces */
    if (!time_space || !read_text("/proc/self/timens_offsets", text, sizeof(text))) {
        *ret_text = error_format("cannot find out which clock this process shares with others; "
                                 "is /proc mounted?");
        return HF_SYSTEM;
    }
    if (time_space != space_of("/proc/self/ns/time_for_children")) {
        *ret_text = error_format("the children of this process will be in another time namespace, "
                                 "so it is not known which clock it shares with others");
        return HF_SYSTEM;
    }
    const char *line = strstr(text, "boottime");
    char *end;
    if (line) {
        int64_t seconds = strtoll(line + strlen("boottime"), &end, 10);
        *ret_us = seconds * 1000000 + strtoll(end, NULL, 10) / 1000;
    }
    return HF_OK;
}

static int read_guard(int64_t pid, struct process *self, char **ret_text) {
    self->guard_pid = pid;
    self->guard_started = pid > 0 ? start_time(pid) : 0;
    if (pid <= 0 || self->guard_started)
        return HF_OK;
    *ret_text = error_format("guard_pid is %" PRId64 ", but there is no such process", pid);
    return HF_BAD_ARGUMENT;
}

int process_read_facts(const struct store_identity *who, struct host_facts *ret, char **ret_text) {
    *ret = (struct host_facts){.self.pid = who->pid};
    int r = read_clock_offset(&ret->clock_offset_us, ret_text);
    if (r < 0 || !proc_is_ours(who->pid))
        return r;
    ret->self.started = start_time(who->pid);
    uint64_t pid_space = space_of("/proc/self/ns/pid");
    if (ret->self.started && pid_space) {
        ret->self.pid_space = pid_space;
        /* 1 if the kernel has no time namespaces: all processes are in the same one. */
        uint64_t time_space = space_of("/proc/self/ns/time");
        ret->self.time_space = time_space ? time_space : 1;
    }
    return read_guard(who->guard_pid, &ret->self, ret_text);
}

bool process_is_same(const struct process *a, const struct process *b) {
    return a->pid == b->pid && a->started == b->started && a->pid_space == b->pid_space &&
           a->time_space == b->time_space;
}

/* Whether its death, as we see it, ends its claims. */
static bool is_evidence(const struct host_facts *facts, const struct process *who) {
    return who->pid_space && who->pid_space == facts->self.pid_space &&
           who->time_space == facts->self.time_space && who->guard_pid != HF_LEASE_ONLY &&
           !process_is_same(who, &facts->self);
}

/* A descriptor of the process; -1 if none has that pid, or the pid now belongs to another. If /proc
 * hides the process (another user's, with hidepid), we cannot tell: the descriptor is then of
 * whatever process has the pid, which ends no earlier than the one we mean. */
static int open_exactly(int64_t pid, uint64_t started, int *ret_error) {
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    *ret_error = fd < 0 ? errno : 0;
    uint64_t shown = fd >= 0 ? start_time(pid) : 0;
    if (shown && shown != started) {
        close(fd);
        *ret_error = ESRCH;
        return -1;
    }
    return fd;
}

/* A zombie has ended as far as locks go: its descriptor is readable. (The state in /proc would not
 * do: a process whose first thread has ended shows as a zombie while others run.) */
static bool has_ended(int64_t pid, uint64_t started) {
    int error;
    int fd = open_exactly(pid, started, &error);
    if (fd < 0)
        return error == ESRCH;
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    bool dead = poll(&ended, 1, 0) == 1;
    close(fd);
    return dead;
}

bool process_is_dead(const struct host_facts *facts, const struct process *who) {
    return is_evidence(facts, who) && has_ended(who->pid, who->started) &&
           (!who->guard_pid || has_ended(who->guard_pid, who->guard_started));
}

int process_open(const struct host_facts *facts, const struct process *who) {
    int error;
    if (!is_evidence(facts, who))
        return -1;
    if (who->guard_pid && has_ended(who->pid, who->started))
        return open_exactly(who->guard_pid, who->guard_started, &error);
    return open_exactly(who->pid, who->started, &error);
}
