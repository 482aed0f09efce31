#include "crew.h"

#include "result.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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

static bool leaves(struct crew *crew, int index) {
    return crew->leaves ? crew->leaves(crew, index) : atomic_load(&crew->stop);
}

static void *work(void *arg) {
    const struct member *member = arg;
    struct crew *crew = member->crew;
    char name[NAME_SIZE];
    snprintf(name, sizeof(name), "%s-%d", crew->names, crew->one_name ? -1 : member->index);
    long pairs = 0;
    pthread_barrier_wait(&crew->start);
    int64_t now = result_now_ns();
    do {
        int64_t began = now;
        crew->pair(crew, member->index, name);
        now = result_now_ns();
        result_time(now - began);
        pairs++;
    } while (!leaves(crew, member->index));
    crew->pairs[member->index] = pairs;
    return NULL;
}

double crew_slice(void *arg) {
    struct crew *crew = arg;
    static struct member members[CREW_MAX];
    pthread_barrier_init(&crew->start, NULL, (unsigned)crew->count + 1);
    atomic_store(&crew->stop, false);
    atomic_store(&crew->last, -1);
    crew->changes = 0;
    for (int i = 0; i < crew->count; i++) {
        members[i] = (struct member){.crew = crew, .index = i};
        if (pthread_create(&members[i].thread, NULL, work, &members[i]))
            result_die("thread", strerror(errno));
    }
    pthread_barrier_wait(&crew->start);
    int64_t began = result_now_ns();
    result_sleep_us(result_slice_ns(crew->slice_ms ? crew->slice_ms : SLICE_MS) / 1000);
    atomic_store(&crew->stop, true);
    for (int i = 0; i < crew->count; i++)
        pthread_join(members[i].thread, NULL);
    pthread_barrier_destroy(&crew->start);
    double seconds = (double)(result_now_ns() - began) / 1e9;
    long pairs = 0;
    for (int i = 0; i < crew->count; i++)
        pairs += crew->pairs[i];
    return (double)(crew->one_name ? crew->changes : pairs) / seconds;
}

double crew_least_to_most(const struct crew *crew) {
    long least = crew->pairs[0], most = least;
    for (int i = 1; i < crew->count; i++) {
        least = crew->pairs[i] < least ? crew->pairs[i] : least;
        most = crew->pairs[i] > most ? crew->pairs[i] : most;
    }
    return (double)least / (double)most;
}
