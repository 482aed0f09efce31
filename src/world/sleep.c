#include "world/sleep.h"

#include "world/world.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void world_sleep(_Atomic uint32_t *word, int64_t us) {
    struct timespec limit = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, us == WORLD_NEVER ? NULL : &limit, NULL, 0);
}

void world_wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
