/* The program that works under a lock in exclusion_test.py.
 *
 *     writer chain FILE    eight that fork and end after 100 to 300 us, as do their children, ...
 *     writer crew FILE     four orphans in sessions of their own, which ignore TERM
 *     writer watch FILE    prints the time (ms, CLOCK_BOOTTIME) and how much FILE grows in 30 ms
 *
 * The first two append to FILE all the time, and exit after a while. They print the pid of their
 * parent and $HOLDFAST_DEADLINE_MS. */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LIFE_S = 20, CHAINS = 8, CREW = 4, WATCH_MS = 30 };

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

static void pause_us(int64_t us) {
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

static void add_byte(int file) {
    if (write(file, ".", 1) != 1)
        _exit(1);
}

static void chain(int file, int64_t until_us) {
    for (int i = 1; i < CHAINS && fork(); i++)
        continue;
    unsigned seed = (unsigned)getpid();
    while (now_us() < until_us) {
        pid_t next = fork();
        if (next)
            _exit(next < 0);
        seed = seed * 1103515245u + 12345u;
        prctl(PR_SET_TIMERSLACK, 1);
        pause_us(100 + (seed >> 16) % 200);
        add_byte(file);
    }
}

static void crew(int file, int64_t until_us) {
    for (int i = 0; i < CREW; i++) {
        if (fork() == 0) {
            setsid();
            if (fork())
                _exit(0);
            for (; now_us() < until_us; pause_us(200))
                add_byte(file);
            _exit(0);
        }
    }
    for (; now_us() < until_us; pause_us(1000))
        continue;
}

static int64_t size_of(int file) {
    struct stat status;
    return fstat(file, &status) == 0 ? (int64_t)status.st_size : -1;
}

static void watch(int file) {
    int64_t at_us = now_us(), before = size_of(file);
    pause_us(WATCH_MS * 1000);
    printf("%" PRId64 " %" PRId64 "\n", at_us / 1000, size_of(file) - before);
}

int main(int argc, char **argv) {
    int64_t until_us = now_us() + LIFE_S * INT64_C(1000000);
    int file = argc == 3 ? open(argv[2], O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (file < 0)
        return 64;
    if (strcmp(argv[1], "watch") == 0) {
        watch(file);
        return 0;
    }
    printf("%d %s\n", getppid(), getenv("HOLDFAST_DEADLINE_MS"));
    fflush(stdout);
    signal(SIGTERM, SIG_IGN);
    if (strcmp(argv[1], "chain") == 0)
        chain(file, until_us);
    else
        crew(file, until_us);
    return 0;
}
