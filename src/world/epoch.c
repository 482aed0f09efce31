#include "world/epoch.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

/* The kernel wipes this page in a forked child. It lives for as long as the process. */
static _Atomic(_Atomic uint64_t *) page;

/* The last epoch given out. A child inherits it, so it never repeats one of its ancestors'. */
static _Atomic uint64_t last_epoch;

uint64_t world_epoch(void) {
    _Atomic uint64_t *current = atomic_load_explicit(&page, memory_order_acquire);
    return current ? atomic_load_explicit(current, memory_order_relaxed) : 0;
}

static _Atomic uint64_t *map_page(void) {
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *fresh = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED)
        return NULL;
    if (madvise(fresh, size, MADV_WIPEONFORK) < 0) {
        munmap(fresh, size);
        return NULL;
    }
    _Atomic uint64_t *none = NULL;
    if (!atomic_compare_exchange_strong(&page, &none, fresh)) {
        munmap(fresh, size);
        return none; /* another thread was first */
    }
    return fresh;
}

uint64_t world_epoch_start(void) {
    _Atomic uint64_t *current = atomic_load(&page);
    if (!current)
        current = map_page();
    if (!current)
        return 0;
    uint64_t none = 0;
    uint64_t next = atomic_fetch_add(&last_epoch, 1) + 1;
    return atomic_compare_exchange_strong(current, &none, next) ? next : none;
}
