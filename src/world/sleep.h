/* Sleeping on a word, by futex. Unlike a condition variable, it can be woken when the sleeper may
 * already be gone, and so without the mutex: a wake-up of a word that no longer exists wakes nobody
 * or, at worst, somebody else for nothing. */
#ifndef WORLD_SLEEP_H
#define WORLD_SLEEP_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Sleeps while the word is 0, for `us` at most (WORLD_NEVER: no limit). May return early. */
void world_sleep(_Atomic uint32_t *word, int64_t us);

/* Wakes whoever sleeps on the word, which was set before. It is not read. */
void world_wake(_Atomic uint32_t *word);
void world_wake_all(_Atomic uint32_t *const *words, size_t count); /* at least one */

#endif
