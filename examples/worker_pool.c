/* A pool of workers of which only so many may do something expensive at once: nine workers, three
 * permits. Each takes one of three permits around its call to a slow service; a heavier job would
 * take more (`permits` above 1). To prove that three are really inside at once, a worker inside
 * waits for two others; a counter shows that there are never four. */
#include <holdfast/holdfast.h>
#include <pthread.h>
#include <stdio.h>

enum { WORKERS = 9, PERMITS = 3 };

static hf_client *client;
static pthread_barrier_t three_inside;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int inside, most_inside, served;

static void count_inside(int change) {
    pthread_mutex_lock(&mutex);
    inside += change;
    if (inside > most_inside)
        most_inside = inside;
    served += change < 0;
    pthread_mutex_unlock(&mutex);
}

static void call_slow_service(void) {
    count_inside(+1);
    pthread_barrier_wait(&three_inside);
    count_inside(-1);
}

static void *worker(void *arg) {
    (void)arg;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.kind = HF_PERMITS;
    options.permits = 1;
    options.capacity = PERMITS;
    hf_hold *hold;
    if (hf_acquire(client, "slow-service", &options, &hold) < 0) {
        fprintf(stderr, "%s\n", hf_last_error());
        return NULL;
    }
    call_slow_service();
    hf_release(hold);
    hf_hold_free(hold);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t workers[WORKERS];
    if (hf_client_open(argc > 1 ? argv[1] : "memory:", NULL, &client) < 0) {
        fprintf(stderr, "%s\n", hf_last_error());
        return 1;
    }
    pthread_barrier_init(&three_inside, NULL, PERMITS);
    for (int i = 0; i < WORKERS; i++)
        if (pthread_create(&workers[i], NULL, worker, NULL))
            return 1;
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i], NULL);
    pthread_barrier_destroy(&three_inside);
    hf_client_close(client);
    printf("%d workers were served, at most %d at once\n", served, most_inside);
    return served == WORKERS && most_inside == PERMITS ? 0 : 1;
}
