/* Resolving a name. That can take long and cannot be cancelled, so each look-up has its own thread,
 * which nobody waits for.
 *
 * Design notes. A look-up has two owners, the thread and the stream or search that wants it; the
 * last one to finish frees it. The mutex decides who that is. It also ensures that the bell is rung
 * only while the stream or search exists, and with it the world and its bell. A forked child does
 * not have the thread, and the mutex may be in any state: the child frees the look-up without
 * locking it. */
#include "world/epoch.h"
#include "world/real.h"

#include <errno.h>
#include <holdfast/holdfast.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct lookup {
    uint64_t epoch;
    struct world_bell *bell;
    uint16_t port;
    pthread_mutex_t mutex; /* for what follows, up to the name */
    bool ended, abandoned;
    struct addrinfo *found;
    int failure, error; /* of getaddrinfo, and errno with EAI_SYSTEM */
    char host[];
};

/* AI_ADDRCONFIG is not asked for: on a host without a network it makes even localhost fail. */
static int get_addresses(const char *host, uint16_t port, int flags, struct addrinfo **ret_found) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
    char service[8];
    snprintf(service, sizeof(service), "%u", (unsigned)port);
    *ret_found = NULL;
    return getaddrinfo(host, service, &hints, ret_found);
}

int lookup_literal(const char *host, uint16_t port, struct addrinfo **ret_found) {
    int failure = get_addresses(host, port, AI_NUMERICHOST, ret_found);
    if (failure)
        *ret_found = NULL;
    return failure == EAI_MEMORY ? HF_NO_MEMORY : HF_OK;
}

static void free_lookup(struct lookup *lookup) {
    if (lookup->found)
        freeaddrinfo(lookup->found);
    free(lookup);
}

static void free_finally(struct lookup *lookup) {
    pthread_mutex_destroy(&lookup->mutex);
    free_lookup(lookup);
}

static void *look_up(void *arg) {
    struct lookup *lookup = arg;
    struct addrinfo *found;
    int failure = get_addresses(lookup->host, lookup->port, 0, &found);
    int error = errno;
    pthread_mutex_lock(&lookup->mutex);
    lookup->found = failure ? NULL : found;
    lookup->failure = failure;
    lookup->error = error;
    lookup->ended = true;
    bool abandoned = lookup->abandoned;
    if (!abandoned)
        world_bell_ring(lookup->bell);
    pthread_mutex_unlock(&lookup->mutex);
    if (abandoned)
        free_finally(lookup);
    return NULL;
}

/* With all signals blocked: they belong to the program's threads. */
static int start_thread(struct lookup *lookup) {
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, look_up, lookup);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        errno = error;
        return HF_SYSTEM;
    }
    pthread_detach(thread);
    return HF_OK;
}

int lookup_start(struct world_bell *bell, bool threads, const char *host, uint16_t port,
                 struct lookup **ret_lookup) {
    size_t length = strlen(host);
    struct lookup *lookup = calloc(1, sizeof(*lookup) + length + 1);
    if (!lookup)
        return HF_NO_MEMORY;
    lookup->epoch = world_epoch_start();
    lookup->bell = bell;
    lookup->port = port;
    memcpy(lookup->host, host, length + 1);
    pthread_mutex_init(&lookup->mutex, NULL);
    int r = lookup->epoch ? HF_OK : HF_SYSTEM;
    if (!r && threads)
        r = start_thread(lookup);
    else if (!r)
        look_up(lookup);
    if (r < 0)
        free_finally(lookup);
    else
        *ret_lookup = lookup;
    return r;
}

bool lookup_take(struct lookup *lookup, struct addrinfo **ret_found, const char **ret_why) {
    pthread_mutex_lock(&lookup->mutex);
    bool ended = lookup->ended;
    pthread_mutex_unlock(&lookup->mutex);
    if (!ended)
        return false;
    *ret_found = lookup->found;
    *ret_why =
        lookup->failure == EAI_SYSTEM ? strerror(lookup->error) : gai_strerror(lookup->failure);
    lookup->found = NULL;
    free_finally(lookup);
    return true;
}

void lookup_abandon(struct lookup *lookup) {
    if (lookup->epoch != world_epoch()) {
        free_lookup(lookup);
        return;
    }
    pthread_mutex_lock(&lookup->mutex);
    lookup->abandoned = true;
    bool ended = lookup->ended;
    pthread_mutex_unlock(&lookup->mutex);
    if (ended)
        free_finally(lookup);
}
