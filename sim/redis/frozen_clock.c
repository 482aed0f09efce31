/* A wall clock that stands still, for a server that loads this with LD_PRELOAD. gettimeofday,
 * time and clock_gettime(CLOCK_REALTIME) return the number of microseconds that the file
 * HOLDFAST_CLOCK_FILE contains, or the kernel's time while that is 0. Redis takes TIME and all
 * expiry from gettimeofday. Monotonic clocks keep running. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const _Atomic int64_t *frozen_us;

__attribute__((constructor)) static void open_file(void) {
    const char *path = getenv("HOLDFAST_CLOCK_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        perror("HOLDFAST_CLOCK_FILE");
        _exit(127);
    }
    close(fd);
    frozen_us = mapped;
}

static int64_t wall_us(void) {
    int64_t us = frozen_us ? atomic_load(frozen_us) : 0;
    struct timespec now;
    if (us)
        return us;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    int64_t us = wall_us();
    *now = (struct timeval){.tv_sec = us / 1000000, .tv_usec = us % 1000000};
    return 0;
}

time_t time(time_t *ret) {
    time_t now = wall_us() / 1000000;
    if (ret)
        *ret = now;
    return now;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
        return (int)syscall(SYS_clock_gettime, clock, now);
    int64_t us = wall_us();
    *now = (struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    return 0;
}
