#include "store/zookeeper/words.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const spelled[WORDS_COUNT] = {"srvr", "conf"};

/* ---- One word ---- */

/* The task continues from the timer: no wire may be dropped while it reports something. */
static void is_over(struct words_answer *answer) {
    struct words *words = answer->words;
    if (answer->is_over)
        return;
    answer->is_over = true;
    if (--words->left == 0)
        world_timer_set(words->world, &words->timer, world_now_us(words->world));
}

static void word_opened(struct net_wire *wire) {
    struct words_answer *answer = container_of(wire, struct words_answer, wire);
    if (net_wire_send(wire, spelled[answer->word], 4) < 0)
        is_over(answer);
}

static void word_received(struct net_wire *wire, const char *bytes, size_t size) {
    struct words_answer *answer = container_of(wire, struct words_answer, wire);
    size_t room = sizeof(answer->text) - 1 - answer->size;
    size_t kept = size < room ? size : room;
    memcpy(answer->text + answer->size, bytes, kept);
    answer->size += kept;
}

/* A server closes the connection after its answer. */
static void word_closed(struct net_wire *wire, int reason, const char *why) {
    (void)reason, (void)why;
    is_over(container_of(wire, struct words_answer, wire));
}

static const struct net_wire_events events = {word_opened, word_received, word_closed, NULL};

static bool ask(struct words_answer *answer) {
    const struct zookeeper *zk = answer->words->task->zk;
    if (net_wire_init(&answer->wire, answer->words->world, &answer->peer, &zk->security, &events) <
        0)
        return false;
    answer->words->count++;
    answer->words->left++;
    if (net_wire_open(&answer->wire) < 0)
        is_over(answer);
    return true;
}

/* ---- All of them ---- */

static void end(struct words *words) {
    struct zk_task *task = words->task;
    words->task = NULL;
    for (size_t i = 0; i < words->count; i++)
        net_wire_close(&words->answers[i].wire);
    task_answered(task);
}

static void all_are_over(struct world_timer *timer) {
    end(container_of(timer, struct words, timer));
}

void words_cancel(struct words *words) {
    if (!words->task)
        return;
    words->task->lost = true;
    end(words);
}

void words_ask(struct words *words, struct zk_task *task) {
    const struct zk_session_setup *setup = &task->zk->setup;
    struct world *world = task->zk->host->world;
    words_drop(words);
    words->world = world;
    words->answers = calloc(setup->peer_count * WORDS_COUNT, sizeof(*words->answers));
    if (!words->answers || world_timer_add(world, &words->timer, all_are_over) < 0) {
        free(words->answers);
        words->answers = NULL;
        task->no_memory = true;
        return;
    }
    words->task = task;
    task->pending++;
    world_timer_set(world, &words->timer, world_now_us(world) + setup->timeout_us / 2);
    for (size_t i = 0; i < setup->peer_count * WORDS_COUNT && !task->no_memory; i++) {
        struct words_answer *answer = &words->answers[i];
        answer->words = words;
        answer->word = (enum words_word)(i % WORDS_COUNT);
        answer->peer = setup->peers[i / WORDS_COUNT];
        answer->peer.timeout_us = setup->connect_timeout_us;
        task->no_memory |= !ask(answer);
    }
}

void words_drop(struct words *words) {
    if (!words->answers)
        return;
    for (size_t i = 0; i < words->count; i++)
        net_wire_drop(&words->answers[i].wire);
    world_timer_drop(words->world, &words->timer);
    free(words->answers);
    *words = (struct words){0};
}

/* ---- What they said ---- */

const char *words_of(const struct words *words, size_t member, enum words_word word) {
    size_t index = member * WORDS_COUNT + word;
    return index < words->count ? words->answers[index].text : "";
}

int64_t words_number(const char *text, const char *key) {
    size_t size = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        char *end;
        int64_t number = strncmp(line, key, size) == 0 ? strtoll(line + size, &end, 10) : -1;
        if (number >= 0)
            return number;
    }
    return -1;
}
