#include "world/sleep.h"

#include "world/world.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void world_sleep(_Atomic uint32_t *word, int64_t us) {
    struct timespec limit = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, us == WORLD_NEVER ? NULL : &limit, NULL, 0);
}

void world_wake(_Atomic uint32_t *word) {
    world_wake_all(&word, 1);
}

/* Moves the sleepers of the other words to the first one, and then wakes all with one call. With a
 * call for each word, the kernel might let each sleeper run before the caller gets to the next:
 * twice as many switches. */
void world_wake_all(_Atomic uint32_t *const *words, size_t count) {
    for (size_t i = 1; i < count; i++)
        syscall(SYS_futex, words[i], FUTEX_REQUEUE_PRIVATE, 0, 1UL, words[0], 0);
    syscall(SYS_futex, words[0], FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
