/* The clock of deadlines. It keeps running while the host is suspended. */
#ifndef CLI_CLOCK_H
#define CLI_CLOCK_H

#include <stdint.h>
#include <sys/timerfd.h>
#include <time.h>

#define CLOCK_NEVER INT64_MAX

static inline int64_t clock_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Makes a timerfd of CLOCK_BOOTTIME readable at `at_ms`: at once if that is past, never if it is
 * CLOCK_NEVER. */
static inline void clock_set_timer(int fd, int64_t at_ms) {
    struct itimerspec timer = {0};
    if (at_ms != CLOCK_NEVER) {
        int64_t at = at_ms > 0 ? at_ms : 1;
        timer.it_value.tv_sec = at / 1000;
        timer.it_value.tv_nsec = at % 1000 * 1000000;
    }
    timerfd_settime(fd, TFD_TIMER_ABSTIME, &timer, NULL);
}

#endif
