/* The lifeline of `holdfast acquire --for-pid`. */
#include "cli/lifeline.h"

#include "cli/holder.h"
#include "cli/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NUMBER_FIRST = 9, NUMBER_LAST = 3 };

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* Reads a symbolic link, such as that of a descriptor in /proc. */
static bool read_link(const char *path, char ret[PATH_MAX]) {
    ssize_t length = readlink(path, ret, PATH_MAX - 1);
    ret[length > 0 ? length : 0] = 0;
    return length > 0;
}

/* A FIFO that nobody reads cannot be opened for writing. */
static bool has_reader(const char *path) {
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0 || errno != ENXIO;
}

void lifeline_path(int fd, char ret[PATH_MAX]) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    read_link(path, ret);
}

static bool is_lifeline(const char *link) {
    return ends_with(link, HOLDER_FIFO_END) || ends_with(link, HOLDER_FIFO_END " (deleted)");
}

int lifeline_number(pid_t pid) {
    char path[64], link[PATH_MAX];
    for (int number = NUMBER_FIRST; number >= NUMBER_LAST; number--) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, number);
        if (read_link(path, link) ? is_lifeline(link) && !has_reader(path) : errno == ENOENT)
            return number;
    }
    return -1;
}

bool lifeline_is_open(int fd) {
    char ignored[64];
    ssize_t count;
    do
        count = read(fd, ignored, sizeof(ignored));
    while (count > 0);
    return count < 0;
}

/* ---- Who has it open ---- */

struct crew {
    pid_t owner;
    char fifo[PATH_MAX];
};

static bool has_open(pid_t pid, const char *fifo) {
    char path[PATH_MAX], link[PATH_MAX];
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while (folder && !found && (entry = readdir(folder))) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, entry->d_name);
        found = read_link(path, link) && strcmp(link, fifo) == 0;
    }
    if (folder)
        closedir(folder);
    return found;
}

static bool is_crew(pid_t pid, const void *arg) {
    const struct crew *crew = arg;
    return pid == crew->owner || has_open(pid, crew->fifo);
}

void lifeline_signal(int fd, pid_t owner, int signal) {
    struct crew crew = {.owner = owner};
    lifeline_path(fd, crew.fifo);
    tree_signal_members(signal, is_crew, &crew);
}
