#include "world/sleep.h"

#include "check.h"
#include "world/world.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

TEST(nobody_sleeps_on_a_word_that_is_set) {
    _Atomic uint32_t word = 1;
    world_sleep(&word, WORLD_NEVER);
}

TEST(a_sleep_ends_after_its_time) {
    _Atomic uint32_t word = 0;
    int64_t until_us = now_us() + 20000;
    while (now_us() < until_us) /* it may end early */
        world_sleep(&word, until_us - now_us());
    CHECK_EQ_INT(word, 0);
}

static void *sleep_on(void *arg) {
    _Atomic uint32_t *word = arg;
    while (!atomic_load(word))
        world_sleep(word, WORLD_NEVER);
    return NULL;
}

TEST(a_sleeper_is_woken_whether_it_sleeps_yet_or_not) {
    for (int i = 0; i < 200; i++) {
        _Atomic uint32_t word = 0;
        pthread_t sleeper;
        CHECK_EQ_INT(pthread_create(&sleeper, NULL, sleep_on, (void *)&word), 0);
        atomic_store(&word, 1);
        world_wake(&word);
        pthread_join(sleeper, NULL);
    }
}

TEST(sleepers_are_woken_together_whether_they_sleep_yet_or_not) {
    enum { SLEEPERS = 5 };
    for (int i = 0; i < 200; i++) {
        _Atomic uint32_t word[SLEEPERS] = {0}, *words[SLEEPERS];
        pthread_t sleeper[SLEEPERS];
        for (int j = 0; j < SLEEPERS; j++) {
            words[j] = &word[j];
            CHECK_EQ_INT(pthread_create(&sleeper[j], NULL, sleep_on, (void *)words[j]), 0);
        }
        if (i % 2)
            sched_yield();
        for (int j = 0; j < SLEEPERS; j++)
            atomic_store(words[j], 1);
        world_wake_all(words, SLEEPERS);
        for (int j = 0; j < SLEEPERS; j++)
            pthread_join(sleeper[j], NULL);
    }
}
