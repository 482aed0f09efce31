#include "sim/redis/pool.h"

#include "sim/redis/bytes.h"

#include <stdlib.h>
#include <string.h>

enum { STEP = 16, SMALL_MOST = 512, SIZES = SMALL_MOST / STEP, PAGE_SIZE = 64 * 1024 };

struct free_block {
    struct free_block *next;
};

struct page {
    struct page *next;
    _Alignas(STEP) char bytes[PAGE_SIZE];
};

struct pool {
    struct free_block *freed[SIZES]; /* blocks of STEP bytes, of twice that, and so on */
    struct page *pages;
    size_t used; /* of the first page */
};

struct pool *pool_new(void) {
    struct pool *pool = bytes_allocate(NULL, sizeof(*pool));
    *pool = (struct pool){.used = PAGE_SIZE};
    return pool;
}

void pool_free(struct pool *pool) {
    while (pool->pages) {
        struct page *page = pool->pages;
        pool->pages = page->next;
        free(page);
    }
    free(pool);
}

static size_t list_of(size_t size) {
    return (size - 1) / STEP;
}

static void *take_small(struct pool *pool, size_t size) {
    size_t list = list_of(size), rounded = (list + 1) * STEP;
    struct free_block *block = pool->freed[list];
    if (block) {
        pool->freed[list] = block->next;
        return block;
    }
    if (PAGE_SIZE - pool->used < rounded) {
        struct page *page = bytes_allocate(NULL, sizeof(*page));
        page->next = pool->pages;
        pool->pages = page;
        pool->used = 0;
    }
    pool->used += rounded;
    return pool->pages->bytes + pool->used - rounded;
}

static void give_back(struct pool *pool, void *block, size_t size) {
    if (!block)
        return;
    if (size > SMALL_MOST) {
        free(block);
        return;
    }
    struct free_block *freed = block;
    freed->next = pool->freed[list_of(size)];
    pool->freed[list_of(size)] = freed;
}

void *pool_allocate(void *pool, void *block, size_t old_size, size_t new_size) {
    bool was_small = block && old_size <= SMALL_MOST, is_small = new_size <= SMALL_MOST;
    if (new_size == 0) {
        give_back(pool, block, old_size);
        return NULL;
    }
    if (block && !was_small && !is_small)
        return bytes_allocate(block, new_size);
    if (was_small && is_small && list_of(old_size) == list_of(new_size))
        return block;
    void *moved = is_small ? take_small(pool, new_size) : bytes_allocate(NULL, new_size);
    if (block)
        memcpy(moved, block, old_size < new_size ? old_size : new_size);
    give_back(pool, block, old_size);
    return moved;
}
