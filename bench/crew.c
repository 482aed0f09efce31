#include "crew.h"

#include "compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SLICE_MS = 200, NAME_SIZE = 64 };

struct member {
    struct crew *crew;
    int index;
    pthread_t thread;
};

void crew_holds(struct crew *crew, int index) {
    if (crew->one_name && atomic_exchange(&crew->last, index) != index)
        crew->changes++;
}

static void *work(void *arg) {
    const struct member *member = arg;
    struct crew *crew = member->crew;
    char name[NAME_SIZE];
    snprintf(name, sizeof(name), "%s-%d", crew->names, crew->one_name ? -1 : member->index);
    long pairs = 0;
    pthread_barrier_wait(&crew->start);
    do {
        crew->pair(crew, member->index, name);
        pairs++;
    } while (!atomic_load(&crew->stop));
    atomic_fetch_add(&crew->pairs, pairs);
    return NULL;
}

double crew_slice(void *arg) {
    struct crew *crew = arg;
    static struct member members[CREW_MAX];
    pthread_barrier_init(&crew->start, NULL, (unsigned)crew->count + 1);
    atomic_store(&crew->stop, false);
    atomic_store(&crew->last, -1);
    atomic_store(&crew->pairs, 0);
    crew->changes = 0;
    for (int i = 0; i < crew->count; i++) {
        members[i] = (struct member){.crew = crew, .index = i};
        if (pthread_create(&members[i].thread, NULL, work, &members[i])) {
            fprintf(stderr, "bench: no thread\n");
            exit(1);
        }
    }
    pthread_barrier_wait(&crew->start);
    int64_t began = compare_now_ns();
    nanosleep(&(struct timespec){.tv_nsec = SLICE_MS * 1000000L}, NULL);
    atomic_store(&crew->stop, true);
    for (int i = 0; i < crew->count; i++)
        pthread_join(members[i].thread, NULL);
    pthread_barrier_destroy(&crew->start);
    double seconds = (double)(compare_now_ns() - began) / 1e9;
    return (double)(crew->one_name ? crew->changes : atomic_load(&crew->pairs)) / seconds;
}
