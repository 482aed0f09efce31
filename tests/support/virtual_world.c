#include "support/virtual_world.h"

#include "client/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More than any test does without time passing: beyond this, some timer is due and stays due. */
enum { STEPS_AT_ONCE = 1000000 };

struct virtual {
    struct world world;
    struct list link; /* in `worlds` */
    hf_client *client;
    bool rung, paused;
    bool waits; /* a call further up the stack blocks in it: it drives itself */
};

static struct list worlds = {&worlds, &worlds};
static int64_t now_us;
static int64_t host_us = INT64_C(1000) * 1000000;       /* the host has been up for a while */
static int64_t wall_us = INT64_C(1700000000) * 1000000; /* November 2023 */
static int64_t host_rate_ppm, wall_rate_ppm;
static int steps_at_once;
static uint64_t random_state = 1;

static struct virtual *virtual_of(struct world *world) {
    return container_of(world, struct virtual, world);
}

static void die(const char *why) {
    printf("# virtual world at %.6f s: %s\n", (double)now_us / 1e6, why);
    fflush(stdout);
    _Exit(1);
}

/* ---- The clocks ---- */

static void go_to(int64_t at_us) {
    int64_t passed_us = at_us - now_us;
    if (passed_us <= 0) {
        if (++steps_at_once > STEPS_AT_ONCE)
            die("what is due stays due");
        return;
    }
    steps_at_once = 0;
    now_us = at_us;
    host_us += passed_us + passed_us / 1000000 * host_rate_ppm +
               passed_us % 1000000 * host_rate_ppm / 1000000;
    wall_us += passed_us + passed_us / 1000000 * wall_rate_ppm +
               passed_us % 1000000 * wall_rate_ppm / 1000000;
}

static int64_t get_now_us(struct world *world) {
    (void)world;
    return now_us;
}

static int64_t get_host_us(struct world *world) {
    (void)world;
    return host_us;
}

static int64_t get_wall_us(struct world *world) {
    (void)world;
    return wall_us;
}

/* The same in each run, and different at each call. */
static void get_random(struct world *world, void *bytes, size_t size) {
    (void)world;
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)(map_hash_number(random_state++) >> 32);
}

/* ---- Whose turn it is ---- */

static int64_t due_us(const struct virtual *self) {
    struct heap_node *first = heap_first(&self->world.timers);
    return first ? first->at : WORLD_NEVER;
}

static bool is_runnable(const struct virtual *self) {
    return self->client && !self->paused && !self->waits;
}

/* The client whose next timer is the earliest, and not after `until_us`; NULL if there is none. */
static struct virtual *first_due(int64_t until_us) {
    struct virtual *first = NULL;
    int64_t first_us = WORLD_NEVER;
    list_each(node, &worlds) {
        struct virtual *self = container_of(node, struct virtual, link);
        if (!is_runnable(self))
            continue;
        if (self->rung)
            return self;
        if (due_us(self) < first_us) {
            first = self;
            first_us = due_us(self);
        }
    }
    return first_us <= until_us ? first : NULL;
}

static void run(struct virtual *self) {
    if (!self->rung)
        go_to(due_us(self));
    int r = hf_process(self->client);
    if (r < 0)
        die(hf_error_name(r));
}

static void wait_for(struct world *world, int64_t at_most_us) {
    struct virtual *self = virtual_of(world);
    if (at_most_us <= 0) {
        self->rung = false;
        return;
    }
    int64_t until_us = at_most_us < WORLD_NEVER - now_us ? now_us + at_most_us : WORLD_NEVER;
    self->waits = true;
    while (!self->rung) {
        int64_t own_us = due_us(self) < until_us ? due_us(self) : until_us;
        struct virtual *other = first_due(own_us - (own_us != WORLD_NEVER));
        if (other) {
            run(other);
            continue;
        }
        if (own_us == WORLD_NEVER)
            die("everybody waits for ever");
        go_to(own_us);
        break;
    }
    self->waits = false;
    self->rung = false;
}

static void ring(struct world *world) {
    virtual_of(world)->rung = true;
}

static void arm(struct world *world, int64_t at_us) {
    (void)world;
    (void)at_us; /* the heap says it too */
}

static int no_watch(struct world *world, struct world_watch *watch) {
    (void)world;
    (void)watch;
    return HF_SYSTEM;
}

static void no_unwatch(struct world *world, struct world_watch *watch) {
    (void)world;
    (void)watch;
}

static void dispatch(struct world *world) {
    (void)world; /* no watches; bells and timers are world.c's */
}

static void end(struct world *world) {
    struct virtual *self = virtual_of(world);
    list_remove(&self->link);
    free(self);
}

static const struct world_ops virtual_ops = {
    .now_us = get_now_us,
    .host_us = get_host_us,
    .wall_us = get_wall_us,
    .random = get_random,
    .arm = arm,
    .watch = no_watch,
    .unwatch = no_unwatch,
    .ring = ring,
    .wait_for = wait_for,
    .dispatch = dispatch,
    .close = end,
};

/* ---- For the test ---- */

struct world *virtual_world(void) {
    struct virtual *self = calloc(1, sizeof(*self));
    if (!self)
        die("no memory");
    world_init(&self->world, &virtual_ops);
    list_append(&worlds, &self->link);
    return &self->world;
}

hf_client *virtual_client(const char *url, const hf_client_options *options) {
    hf_client *client;
    struct world *world = virtual_world();
    if (client_open_in(world, url, options, &client) < 0)
        return NULL;
    virtual_of(world)->client = client;
    return client;
}

int64_t virtual_now_us(void) {
    return now_us;
}

void virtual_pass_us(int64_t us) {
    int64_t until_us = now_us + us;
    struct virtual *self;
    while ((self = first_due(until_us)))
        run(self);
    go_to(until_us);
}

void virtual_suspend_us(int64_t us) {
    go_to(now_us + us);
}

void virtual_step_host_us(int64_t us) {
    host_us += us;
}

void virtual_step_wall_us(int64_t us) {
    wall_us += us;
}

void virtual_set_host_rate_ppm(int64_t ppm) {
    host_rate_ppm = ppm;
}

void virtual_set_wall_rate_ppm(int64_t ppm) {
    wall_rate_ppm = ppm;
}

void virtual_pause(hf_client *client) {
    virtual_of(client->world)->paused = true;
}

void virtual_resume(hf_client *client) {
    virtual_of(client->world)->paused = false;
}
