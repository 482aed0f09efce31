#include "cli/watch_known.h"

#include "cli/clock.h"

#include <stdlib.h>
#include <string.h>

/* ---- Locks ---- */

static void lock_free(struct known_lock *lock) {
    for (size_t i = 0; i < lock->count; i++)
        free(lock->parties[i]);
    free((void *)lock->parties);
    free(lock);
}

void known_free(struct known *known) {
    for (size_t i = 0; i < known->count; i++)
        lock_free(known->locks[i]);
    free((void *)known->locks);
    *known = (struct known){0};
}

/* The index of the first name that is not before this one. */
static size_t place_of(const struct known *known, const char *name) {
    size_t low = 0, high = known->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(known->locks[middle]->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct known_lock *known_find(const struct known *known, const char *name) {
    size_t place = place_of(known, name);
    bool found = place < known->count && strcmp(known->locks[place]->name, name) == 0;
    return found ? known->locks[place] : NULL;
}

/* The array of pointers with room for one more; NULL: no memory, and it is unchanged. */
static void *with_room(void *array, size_t count, size_t *room) {
    size_t more = *room ? 2 * *room : 8;
    if (count < *room)
        return array;
    void *larger = realloc(array, more * sizeof(void *));
    if (larger)
        *room = more;
    return larger;
}

struct known_lock *known_get(struct known *known, const hf_lock_info *info) {
    struct known_lock *lock = known_find(known, info->name);
    size_t size = strlen(info->name) + 1;
    if (!lock) {
        lock = calloc(1, sizeof(*lock) + size);
        void *locks = lock ? with_room((void *)known->locks, known->count, &known->room) : NULL;
        if (!locks) {
            free(lock);
            return NULL;
        }
        known->locks = locks;
        memcpy(lock->name, info->name, size);
        size_t place = place_of(known, lock->name);
        memmove((void *)&known->locks[place + 1], (void *)&known->locks[place],
                (known->count++ - place) * sizeof(void *));
        known->locks[place] = lock;
    }
    lock->info = (hf_lock_info){.name = lock->name, .kind = info->kind, .capacity = info->capacity};
    return lock;
}

void known_remove(struct known *known, size_t index) {
    lock_free(known->locks[index]);
    memmove((void *)&known->locks[index], (void *)&known->locks[index + 1],
            (--known->count - index) * sizeof(void *));
}

/* ---- Parties ---- */

struct known_party *known_party(struct known_lock *lock, const char *owner) {
    for (size_t i = 0; i < lock->count; i++) {
        size_t at = (lock->at + i) % lock->count;
        if (strcmp(lock->parties[at]->info.owner, owner) == 0) {
            lock->at = at + 1;
            return lock->parties[at];
        }
    }
    return NULL;
}

static const char *keep(char **end, const char *text) {
    char *kept = *end;
    *end = stpcpy(kept, text) + 1;
    return kept;
}

struct known_party *known_add(struct known_lock *lock, const hf_party *party, bool holds) {
    size_t size = strlen(party->owner) + strlen(party->host) + strlen(party->command) +
                  strlen(party->label) + 4;
    struct known_party *added = calloc(1, sizeof(*added) + size);
    void *parties = added ? with_room((void *)lock->parties, lock->count, &lock->room) : NULL;
    if (!parties) {
        free(added);
        return NULL;
    }
    char *end = added->strings;
    added->info = *party;
    added->info.owner = keep(&end, party->owner);
    added->info.host = keep(&end, party->host);
    added->info.command = keep(&end, party->command);
    added->info.label = keep(&end, party->label);
    added->holds = holds;
    added->updated_ms = clock_now_ms();
    lock->parties = parties;
    lock->parties[lock->count++] = added;
    return added;
}

void known_drop(struct known_lock *lock, const struct known_party *party) {
    size_t at = 0;
    while (lock->parties[at] != party)
        at++;
    free(lock->parties[at]);
    memmove((void *)&lock->parties[at], (void *)&lock->parties[at + 1],
            (--lock->count - at) * sizeof(void *));
}
