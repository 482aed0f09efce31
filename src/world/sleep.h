/* Sleeping on a word, by futex. Unlike with a condition variable, the sleeper may already be gone
 * when it is woken, so the waker needs no mutex: a wake-up of a word that no longer exists wakes
 * nobody or, at worst, another thread for nothing. */
#ifndef WORLD_SLEEP_H
#define WORLD_SLEEP_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Sleeps while the word is 0, for `us` at most (WORLD_NEVER: no limit). May return early. */
void world_sleep(_Atomic uint32_t *word, int64_t us);

/* Wakes the thread that sleeps on the word. Set the word before; this does not read it. */
void world_wake(_Atomic uint32_t *word);
void world_wake_all(_Atomic uint32_t *const *words, size_t count); /* at least one */

#endif
