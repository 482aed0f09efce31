/* See loads.h. */
#include "loads.h"

#include "redis_raw.h"
#include "result.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 32, AT_ONCE = 500 };

static const char common[] = "turns";

static void must(int result, const char *what) {
    if (result < 0)
        result_die(what, hf_last_error());
}

static void *new_own(size_t size) {
    void *own = calloc(1, size);
    if (!own)
        result_die("member", strerror(errno));
    return own;
}

/* ---- Pairs ---- */

static hf_hold *take(hf_client *client, const char *name) {
    hf_hold *hold;
    must(hf_acquire(client, name, NULL, &hold), "acquire");
    return hold;
}

static void give(hf_hold *hold) {
    must(hf_release(hold), "release");
    hf_hold_free(hold);
}

static void name_number(int number, char ret_name[NAME_SIZE]) {
    snprintf(ret_name, NAME_SIZE, "name-%d", number);
}

void load_pair_of_many_names(struct fleet_member *member) {
    char name[NAME_SIZE];
    member->random ^= member->random << 13;
    member->random ^= member->random >> 7;
    member->random ^= member->random << 17;
    name_number((int)(member->random % (uint64_t)member->plan->count), name);
    give(take(member->client, name));
}

void load_pair_of_own_name(struct fleet_member *member) {
    char name[NAME_SIZE];
    name_number(member->index, name);
    give(take(member->client, name));
}

void load_turn(struct fleet_member *member) {
    hf_hold *hold = take(member->client, common);
    fleet_note_holder(member);
    give(hold);
}

/* ---- Many names ---- */

/* Calls `each` for all of the plan's names, some at a time. */
static void in_batches(struct fleet_member *member,
                       void (*each)(struct fleet_member *member, int begin, int count)) {
    for (int begin = 0; begin < member->plan->count; begin += AT_ONCE) {
        int left = member->plan->count - begin;
        each(member, begin, left < AT_ONCE ? left : AT_ONCE);
    }
}

static void visit(struct fleet_member *member, int begin, int count) {
    for (int i = begin; i < begin + count; i++) {
        char name[NAME_SIZE];
        name_number(i, name);
        give(take(member->client, name));
    }
}

static void visit_in_pipeline(struct fleet_member *member, int begin, int count) {
    struct raw_lock locks[AT_ONCE] = {0};
    for (int i = 0; i < count; i++) {
        char name[NAME_SIZE];
        name_number(begin + i, name);
        locks[i] = raw_lock(name, 1);
    }
    raw_pipelined_pairs(member->own, locks, (size_t)count);
    for (int i = 0; i < count; i++)
        raw_lock_free(&locks[i]);
}

/* Several in flight are faster than one after the other. */
static void hold(struct fleet_member *member, int begin, int count) {
    hf_hold **holds = member->own;
    hf_call *calls[AT_ONCE];
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = LOAD_LEASE_MS;
    for (int i = 0; i < count; i++) {
        char name[NAME_SIZE];
        name_number(begin + i, name);
        must(hf_acquire_start(member->client, name, &options, &calls[i]), "acquire");
    }
    for (int i = 0; i < count; i++) {
        must(hf_call_wait(calls[i], HF_FOREVER), "acquire");
        holds[begin + i] = hf_call_take_hold(calls[i]);
        hf_call_free(calls[i]);
    }
}

void load_visit_names(struct fleet_member *member) {
    in_batches(member, visit);
}

void load_visit_redis_names(struct fleet_member *member) {
    redisContext *to = raw_connect();
    freeReplyObject(redisCommand(to, "SELECT %s", strrchr(member->plan->url, '/') + 1));
    member->own = to;
    in_batches(member, visit_in_pipeline);
    redisFree(to);
}

void load_hold_names(struct fleet_member *member) {
    member->own = new_own((size_t)member->plan->count * sizeof(hf_hold *));
    in_batches(member, hold);
}

/* (Freeing a hold releases it, without waiting.) */
void load_release_names(struct fleet_member *member) {
    hf_hold **holds = member->own;
    for (int i = 0; i < member->plan->count; i++)
        hf_hold_free(holds[i]);
    free(holds);
}

/* ---- Bare ---- */

struct bare {
    redisContext *to, *from;
    struct raw_lock lock;
};

static struct bare *bare_connect(struct fleet_member *member, const char *name) {
    struct bare *bare = new_own(sizeof(*bare));
    bare->to = raw_connect();
    bare->lock = raw_lock(name, (unsigned)member->index + 1);
    member->own = bare;
    return bare;
}

void load_bare_own_name(struct fleet_member *member) {
    char name[NAME_SIZE];
    name_number(member->index, name);
    bare_connect(member, name);
}

void load_bare_common_name(struct fleet_member *member) {
    struct bare *bare = bare_connect(member, common);
    bare->from = raw_subscribe(bare->lock.channel);
}

void load_bare_end(struct fleet_member *member) {
    struct bare *bare = member->own;
    redisFree(bare->to);
    redisFree(bare->from);
    raw_lock_free(&bare->lock);
    free(bare);
}

void load_bare_pair(struct fleet_member *member) {
    struct bare *bare = member->own;
    raw_pair(bare->to, &bare->lock);
}

void load_bare_turn(struct fleet_member *member) {
    struct bare *bare = member->own;
    char text[64];
    while (!raw_acquire(bare->to, &bare->lock))
        raw_hear(bare->from, text, sizeof(text));
    fleet_note_holder(member);
    raw_do(bare->to, &bare->lock.release);
}
