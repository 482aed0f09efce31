/* A disk that stalls, for a program that this is preloaded into: while the file
 * $HOLDFAST_TEST_STALL exists, every write to a write-ahead log waits. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int is_log(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof(path));
    return length > 4 && memcmp(path + length - 4, "-wal", 4) == 0;
}

static void stall(int fd) {
    const char *file = getenv("HOLDFAST_TEST_STALL");
    while (file && is_log(fd) && access(file, F_OK) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

/* This is pwrite64: the compiler is set to support files of any size. */
ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) {
    stall(fd);
    return syscall(SYS_pwrite64, fd, bytes, size, at);
}
