/* world_look_up in the real world: a look-up with a time limit, whose addresses are handed out as
 * text. `done` is always called from the timer, never within a call by the owner. In it, the owner
 * may stop the search or start another. */
#include "world/real.h"

#include <assert.h>
#include <holdfast/holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ADDRESS_SIZE = 80, WHY_SIZE = 400 };

struct search {
    struct world_lookup *owner;
    struct real *real;
    struct list link; /* in the world's searches */
    struct world_timer timer;
    struct lookup *lookup;  /* NULL: it has ended */
    struct addrinfo *found; /* to be freed */
    const char *why;
    int64_t timeout_us;
    char host[];
};

/* Frees only the memory; see stream_discard_all. */
static void discard(struct search *search) {
    search->owner->state = NULL;
    list_remove(&search->link);
    if (search->lookup)
        lookup_abandon(search->lookup);
    if (search->found)
        freeaddrinfo(search->found);
    free(search);
}

void search_discard_all(struct real *real) {
    list_each_safe(node, &real->searches)
        discard(container_of(node, struct search, link));
}

void search_stop(struct world *world, struct world_lookup *owner) {
    struct search *search = owner->state;
    world_timer_drop(world, &search->timer);
    discard(search);
}

/* The addresses as text, for the caller to free; NULL: no memory. */
static char **texts_of(const struct addrinfo *found, size_t *ret_count) {
    size_t most = 0, count = 0;
    for (const struct addrinfo *one = found; one; one = one->ai_next)
        most++;
    char **texts = malloc(most * (sizeof(*texts) + ADDRESS_SIZE));
    char *text = (char *)(texts + most);
    for (const struct addrinfo *one = found; texts && one; one = one->ai_next) {
        if (getnameinfo(one->ai_addr, one->ai_addrlen, text, ADDRESS_SIZE, NULL, 0, NI_NUMERICHOST))
            continue;
        texts[count++] = text;
        text += ADDRESS_SIZE;
    }
    *ret_count = count;
    return texts;
}

static void finish(struct search *search) {
    struct world_lookup *owner = search->owner;
    size_t count = 0;
    char why[WHY_SIZE] = "";
    char **texts = search->found ? texts_of(search->found, &count) : NULL;
    if (search->lookup)
        snprintf(why, sizeof(why), "cannot look up \"%.255s\": no answer within %lld ms",
                 search->host, (long long)search->timeout_us / 1000);
    else if (!count)
        snprintf(why, sizeof(why), "cannot look up \"%.255s\": %s", search->host,
                 search->found ? "out of memory" : search->why);
    search_stop(&search->real->world, owner);
    owner->done(owner, (const char *const *)texts, count, count ? NULL : why);
    free(texts);
}

static void timer_came(struct world_timer *timer) {
    finish(container_of(timer, struct search, timer));
}

static void finish_soon(struct search *search) {
    world_timer_set(&search->real->world, &search->timer, world_now_us(&search->real->world));
}

void search_looked_up(struct real *real) {
    list_each(node, &real->searches) {
        struct search *search = container_of(node, struct search, link);
        if (search->lookup && lookup_take(search->lookup, &search->found, &search->why)) {
            search->lookup = NULL;
            finish_soon(search);
        }
    }
}

static int begin(struct search *search) {
    struct real *real = search->real;
    int r = lookup_literal(search->host, 0, &search->found);
    if (r < 0)
        return r;
    if (search->found) {
        finish_soon(search);
        return HF_OK;
    }
    world_timer_set(&real->world, &search->timer, world_now_us(&real->world) + search->timeout_us);
    return lookup_start(&real->looked_up, real->world.threads, search->host, 0, &search->lookup);
}

int search_start(struct world *world, struct world_lookup *owner, const char *host,
                 int64_t timeout_us) {
    assert(!owner->state);
    size_t length = strlen(host);
    struct search *search = calloc(1, sizeof(*search) + length + 1);
    if (!search)
        return HF_NO_MEMORY;
    search->owner = owner;
    search->real = real_of(world);
    search->timeout_us = timeout_us;
    memcpy(search->host, host, length + 1);
    if (world_timer_add(world, &search->timer, timer_came) < 0) {
        free(search);
        return HF_NO_MEMORY;
    }
    list_append(&search->real->searches, &search->link);
    owner->state = search;
    int r = begin(search);
    if (r < 0)
        search_stop(world, owner);
    return r;
}
