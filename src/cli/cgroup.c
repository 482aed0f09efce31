/* A control group for the command. */
#include "cli/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LINE_SIZE = 2 * CGROUP_PATH_SIZE, DEPTH = 16 };

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *at) {
    (void)status;
    (void)at;
    if (type == FTW_DP)
        rmdir(path);
    return 0;
}

void cgroup_remove(const char *path) {
    if (*path && rmdir(path) < 0)
        nftw(path, remove_one, DEPTH, FTW_DEPTH | FTW_PHYS);
}

/* Finds the first line of a file that `is_it` accepts, without its newline. Returns false if there
 * is none. */
static bool find_line(const char *path, bool (*is_it)(const char *line), char line[LINE_SIZE]) {
    FILE *file = fopen(path, "re");
    bool found = false;
    while (file && !found && fgets(line, LINE_SIZE, file)) {
        line[strcspn(line, "\n")] = 0;
        found = is_it(line);
    }
    if (file)
        fclose(file);
    return found;
}

static bool is_unified(const char *line) {
    return strncmp(line, "0::/", 4) == 0;
}

static bool is_mount(const char *line) {
    return strstr(line, " - cgroup2 ");
}

/* Finds the folder of our own group. Paths below the mount point are relative to the root of the
 * mount. */
static bool find_own(char ret_path[CGROUP_PATH_SIZE]) {
    char own[LINE_SIZE], mount[LINE_SIZE], root[CGROUP_PATH_SIZE], point[CGROUP_PATH_SIZE];
    if (!find_line("/proc/self/cgroup", is_unified, own) ||
        !find_line("/proc/self/mountinfo", is_mount, mount) ||
        sscanf(mount, "%*s %*s %*s %1023s %1023s", root, point) != 2)
        return false;
    const char *below = own + strlen("0::");
    size_t prefix = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(below, root, prefix) != 0)
        return false;
    int length = snprintf(ret_path, CGROUP_PATH_SIZE, "%s%s", point, below + prefix);
    return length < CGROUP_PATH_SIZE - 64; /* room for names in it */
}

static int open_in(const char *path, const char *name, int flags) {
    char whole[CGROUP_PATH_SIZE + 32];
    snprintf(whole, sizeof(whole), "%s/%s", path, name);
    return open(whole, flags | O_CLOEXEC);
}

static void name_group(char ret_path[CGROUP_PATH_SIZE], const char *folder, pid_t maker) {
    snprintf(ret_path, CGROUP_PATH_SIZE, "%s/holdfast-%d", folder, maker);
}

/* Removes the groups that processes left behind when they were killed. A group that is in use
 * cannot be removed. */
static void remove_abandoned(const char *folder) {
    DIR *groups = opendir(folder);
    struct dirent *entry;
    while (groups && (entry = readdir(groups))) {
        char path[CGROUP_PATH_SIZE];
        pid_t maker;
        if (sscanf(entry->d_name, "holdfast-%d", &maker) != 1 || kill(maker, 0) == 0 ||
            errno != ESRCH)
            continue;
        name_group(path, folder, maker);
        cgroup_remove(path);
    }
    if (groups)
        closedir(groups);
}

void cgroup_make(char ret_path[CGROUP_PATH_SIZE]) {
    char own[CGROUP_PATH_SIZE];
    *ret_path = 0;
    if (!find_own(own))
        return;
    remove_abandoned(own);
    name_group(ret_path, own, getpid());
    int kill_fd = mkdir(ret_path, 0755) == 0 ? open_in(ret_path, "cgroup.kill", O_WRONLY) : -1;
    if (kill_fd < 0) {
        rmdir(ret_path);
        *ret_path = 0;
    } else
        close(kill_fd);
}

pid_t cgroup_fork(char path[CGROUP_PATH_SIZE]) {
    int fd = *path ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    pid_t child = -1;
    if (fd >= 0) {
        struct clone_args args = {
            .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)fd};
        child = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
        if (child != 0)
            close(fd);
    }
    if (child >= 0)
        return child;
    cgroup_remove(path);
    *path = 0;
    return fork();
}

void cgroup_kill(const char *path) {
    int fd = *path ? open_in(path, "cgroup.kill", O_WRONLY) : -1;
    if (fd < 0)
        return;
    ssize_t written = write(fd, "1", 1);
    (void)written; /* processes that this misses are found in /proc */
    close(fd);
}
