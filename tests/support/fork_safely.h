/* A fork that a sanitizer survives. The allocators of AddressSanitizer and ThreadSanitizer are not
 * prepared for one: if another thread allocates at that moment, as one that is starting does, they
 * stay locked in the child, which then hangs when it allocates, frees, or looks for leaks as it
 * exits. Tests with threads that are busy on purpose use fork(), and their children do none of
 * this. */
#ifndef TESTS_SUPPORT_FORK_SAFELY_H
#define TESTS_SUPPORT_FORK_SAFELY_H

#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>

/* Whether this process's other threads sleep. One that ends just now does not. */
__attribute__((unused)) static bool others_sleep(void) {
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    bool sleep = true;
    struct dirent *entry;
    while ((entry = readdir(tasks))) {
        char path[PATH_MAX], text[256] = "";
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid())
            continue;
        snprintf(path, sizeof(path), "/proc/self/task/%s/stat", entry->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        CHECK((fd >= 0 && read(fd, text, sizeof(text) - 1) > 0) || errno == ENOENT ||
              errno == ESRCH);
        if (fd >= 0)
            close(fd);
        char *state = strrchr(text, ')');
        sleep = sleep && state && state[2] == 'S';
    }
    closedir(tasks);
    return sleep;
}

__attribute__((unused)) static pid_t fork_safely(void) {
    while (!others_sleep())
        usleep(1000);
    pid_t child = fork();
    CHECK(child >= 0);
    return child;
}

#endif
