/* A wall clock that tests set, for a server that loads this with LD_PRELOAD: gettimeofday, time and
 * clock_gettime of CLOCK_REALTIME are shifted as the file HOLDFAST_CLOCK_FILE says, now and
 * whenever it changes. Redis takes TIME and all expiry from gettimeofday. Monotonic clocks are
 * unchanged.
 *
 * The file is an array of int64: how many changes there are, then three numbers for each: shift_us,
 * since_us (CLOCK_MONOTONIC), ppm. The last one is in effect: the shift is shift_us at since_us and
 * grows by ppm from there. A change is written before it is counted and never modified again, so
 * nobody reads half of one.
 *
 * The kernel is asked directly: looking up libc's functions with dlsym can allocate, and an
 * allocator may itself ask for the time (which breaks libfaketime with Debian's Redis). */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct clock_file {
    _Atomic int64_t count;
    struct change {
        int64_t shift_us, since_us, ppm;
    } changes[];
};

static const struct clock_file *file;

__attribute__((constructor)) static void open_file(void) {
    const char *path = getenv("HOLDFAST_CLOCK_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    struct stat about;
    if (fd < 0 || fstat(fd, &about) < 0 || about.st_size < (off_t)sizeof(*file))
        goto failed;
    void *mapped = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        goto failed;
    close(fd);
    file = mapped;
    return;
failed:
    perror("HOLDFAST_CLOCK_FILE");
    _exit(127);
}

static int64_t kernel_us(clockid_t clock) {
    struct timespec now;
    syscall(SYS_clock_gettime, clock, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

static int64_t shifted_us(void) {
    int64_t count = file ? atomic_load(&file->count) : 0;
    if (!count)
        return kernel_us(CLOCK_REALTIME);
    const struct change *last = &file->changes[count - 1];
    int64_t passed_us = kernel_us(CLOCK_MONOTONIC) - last->since_us;
    return kernel_us(CLOCK_REALTIME) + last->shift_us + passed_us * last->ppm / 1000000;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    int64_t us = shifted_us();
    *now = (struct timeval){.tv_sec = us / 1000000, .tv_usec = us % 1000000};
    return 0;
}

time_t time(time_t *ret) {
    time_t now = shifted_us() / 1000000;
    if (ret)
        *ret = now;
    return now;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
        return (int)syscall(SYS_clock_gettime, clock, now);
    int64_t us = shifted_us();
    *now = (struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    return 0;
}
