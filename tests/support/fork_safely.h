/* A fork that a sanitizer survives. The allocators of AddressSanitizer and ThreadSanitizer are not
 * prepared for a fork: if another thread allocates at that moment, as a thread does when it starts,
 * they stay locked in the child, which then hangs when it allocates, frees, or checks for leaks on
 * exit. Tests whose threads are busy on purpose use fork(), and their children do none of this. */
#ifndef TESTS_SUPPORT_FORK_SAFELY_H
#define TESTS_SUPPORT_FORK_SAFELY_H

#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* How often this process's other threads have gone to sleep, if they all sleep; -1 if one does not.
 * A thread that is just ending counts as awake. */
__attribute__((unused)) static int64_t sleeps_of_others(void) {
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    int64_t sleeps = 0;
    struct dirent *entry;
    while ((entry = readdir(tasks))) {
        char path[PATH_MAX], text[4096] = "";
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid())
            continue;
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        CHECK((fd >= 0 && read(fd, text, sizeof(text) - 1) > 0) || errno == ENOENT ||
              errno == ESRCH);
        if (fd >= 0)
            close(fd);
        const char *count = strstr(text, "\nvoluntary_ctxt_switches:");
        bool is_asleep = count && strstr(text, "\nState:\tS");
        sleeps = is_asleep && sleeps >= 0 ? sleeps + atoll(strchr(count, ':') + 1) : -1;
    }
    closedir(tasks);
    return sleeps;
}

/* For tests whose other threads keep waking up, but allocate nothing when they do. */
__attribute__((unused)) static pid_t fork_while_asleep(void) {
    while (sleeps_of_others() < 0)
        usleep(1000);
    pid_t child = fork();
    CHECK(child >= 0);
    return child;
}

/* Waits until the others stay asleep: threads that only wait for each other, or for a server's next
 * message, do not count. */
__attribute__((unused)) static pid_t fork_safely(void) {
    enum { LOOKS = 5, PAUSE_US = 5000 };
    int64_t before = -1;
    for (int same = 0; same < LOOKS;) {
        usleep(PAUSE_US);
        int64_t now = sleeps_of_others();
        same = now >= 0 && now == before ? same + 1 : 0;
        before = now;
    }
    return fork_while_asleep();
}

#endif
