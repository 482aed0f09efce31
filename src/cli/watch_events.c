/* The events of holdfast watch: the differences between two polls of the store.
 *
 * A snapshot is the pages of one listing. Both snapshots are in the order of the names, so one pass
 * through the two finds the differences. A party is identified by its owner id, which belongs to
 * one attempt: it stays the same when a waiter becomes the holder. */
#include "cli/clock.h"
#include "cli/look.h"
#include "cli/text.h"
#include "cli/watch.h"

#include <assert.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct snapshot {
    hf_locks **pages;
    size_t count, room;
    int64_t at_ms; /* CLOCK_BOOTTIME, before the first page was asked for */
};

/* ---- Snapshots ---- */

static void snapshot_free(struct snapshot *snapshot) {
    for (size_t i = 0; i < snapshot->count; i++)
        hf_locks_free(snapshot->pages[i]);
    free(snapshot->pages);
    *snapshot = (struct snapshot){0};
}

static bool add_page(struct snapshot *snapshot, hf_locks *page) {
    if (snapshot->count == snapshot->room) {
        size_t room = snapshot->room ? 2 * snapshot->room : 16;
        hf_locks **pages = realloc(snapshot->pages, room * sizeof(hf_locks *));
        if (!pages) {
            hf_locks_free(page);
            return false;
        }
        snapshot->pages = pages;
        snapshot->room = room;
    }
    snapshot->pages[snapshot->count++] = page;
    return true;
}

static int take_snapshot(struct watch *watch, struct snapshot *ret) {
    struct look look = {.client = watch->client, .prefix = watch->prefix};
    struct snapshot snapshot = {.at_ms = clock_now_ms()};
    for (;;) {
        hf_locks *page;
        int r = look_next(&look, &page);
        if (r == HF_OK && !page)
            break;
        if (r == HF_OK && !add_page(&snapshot, page))
            r = HF_NO_MEMORY;
        if (r < 0) {
            snapshot_free(&snapshot);
            return r;
        }
    }
    *ret = snapshot;
    return HF_OK;
}

/* A place in a snapshot. */
struct cursor {
    const struct snapshot *snapshot;
    size_t page, lock;
};

static const hf_lock_info *here(const struct cursor *cursor) {
    return cursor->page < cursor->snapshot->count
               ? hf_locks_at(cursor->snapshot->pages[cursor->page], cursor->lock)
               : NULL;
}

static void move_on(struct cursor *cursor) {
    assert(cursor->snapshot->pages);
    if (++cursor->lock == hf_locks_count(cursor->snapshot->pages[cursor->page])) {
        cursor->page++;
        cursor->lock = 0;
    }
}

/* ---- Telling ---- */

static void tell(struct watch *watch, const char *event, const hf_lock_info *info,
                 const hf_party *party, const hf_lock_info *broken) {
    int64_t now_ms = look_wall_ms();
    if (watch->cli->json) {
        struct json json = {.file = stdout};
        json_object(&json, NULL);
        json_string(&json, "event", event);
        json_number(&json, "at_ms", now_ms);
        json_string(&json, "name", info->name);
        look_put_party(&json, "party", info, party);
        if (broken) {
            json_string(&json, "by", broken->broken_by);
            json_string(&json, "reason", broken->broken_reason);
        }
        json_object_end(&json);
        json_end(&json);
        return;
    }
    char when[32], name[LOOK_NAME_SIZE], who[LOOK_PARTY_SIZE];
    printf("%s %-8s %s · %s", look_time(when, sizeof(when), now_ms), event,
           text_safe(name, sizeof(name), info->name), look_party(who, sizeof(who), party));
    if (party->token)
        printf(" · token %" PRIu64, party->token);
    if (broken)
        printf(" · by %s", text_safe(who, sizeof(who), broken->broken_by));
    if (broken && *broken->broken_reason)
        printf(": %s", text_safe(name, sizeof(name), broken->broken_reason));
    putchar('\n');
}

/* Reports how a hold ended that no longer exists. `now` is its lock, or NULL if nobody holds it or
 * waits for it. */
static void tell_ended(struct watch *watch, const hf_lock_info *before, const hf_party *party,
                       const hf_lock_info *now, int64_t elapsed_ms) {
    hf_locks *locks = NULL;
    if (!now && hf_inspect(watch->client, before->name, &locks) == HF_OK)
        now = hf_locks_at(locks, 0);
    if (now && now->broken_token == party->token)
        tell(watch, "broken", before, party, now);
    else
        tell(watch, party->left_ms >= 0 && party->left_ms <= elapsed_ms ? "lost" : "released",
             before, party, NULL);
    hf_locks_free(locks);
}

/* ---- Comparing ---- */

/* The parties of a lock, and where the last one was found. Most are in the same order as before, so
 * the search for the next one begins there. */
struct crowd {
    const hf_party *const *parties;
    size_t count, at;
};

static struct crowd holders_of(const hf_lock_info *info) {
    return info ? (struct crowd){info->holders, info->holder_count, 0} : (struct crowd){0};
}

static struct crowd waiters_of(const hf_lock_info *info) {
    return info ? (struct crowd){info->waiters, info->waiter_count, 0} : (struct crowd){0};
}

static bool has(struct crowd *crowd, const hf_party *party) {
    for (size_t i = 0; i < crowd->count; i++) {
        size_t at = (crowd->at + i) % crowd->count;
        const hf_party *other = crowd->parties[at];
        if (other->token == party->token && strcmp(other->owner, party->owner) == 0) {
            crowd->at = at + 1;
            return true;
        }
    }
    return false;
}

static bool has_owner(const struct crowd *crowd, const char *owner) {
    for (size_t i = 0; i < crowd->count; i++) {
        if (strcmp(crowd->parties[i]->owner, owner) == 0)
            return true;
    }
    return false;
}

/* One lock, before and now; either may be NULL. */
static void compare(struct watch *watch, const hf_lock_info *before, const hf_lock_info *now,
                    int64_t elapsed_ms, bool first) {
    struct crowd old_holders = holders_of(before), old_waiters = waiters_of(before);
    struct crowd new_holders = holders_of(now), new_waiters = waiters_of(now);
    for (size_t i = 0; i < old_holders.count; i++) {
        if (!has(&new_holders, old_holders.parties[i]))
            tell_ended(watch, before, old_holders.parties[i], now, elapsed_ms);
    }
    for (size_t i = 0; i < new_holders.count; i++) {
        if (!has(&old_holders, new_holders.parties[i]))
            tell(watch, first ? "held" : "acquired", now, new_holders.parties[i], NULL);
    }
    for (size_t i = 0; i < old_waiters.count; i++) {
        const hf_party *waiter = old_waiters.parties[i];
        if (!has(&new_waiters, waiter) && !has_owner(&new_holders, waiter->owner))
            tell(watch, "left", before, waiter, NULL);
    }
    for (size_t i = 0; i < new_waiters.count; i++) {
        if (!has(&old_waiters, new_waiters.parties[i]))
            tell(watch, "waiting", now, new_waiters.parties[i], NULL);
    }
}

static void compare_all(struct watch *watch, const struct snapshot *before,
                        const struct snapshot *now, bool first) {
    struct cursor old = {before, 0, 0}, new = {now, 0, 0};
    int64_t elapsed_ms = clock_now_ms() - before->at_ms;
    while (here(&old) || here(&new)) {
        const hf_lock_info *a = here(&old), *b = here(&new);
        int order = !a ? 1 : !b ? -1 : strcmp(a->name, b->name);
        compare(watch, order <= 0 ? a : NULL, order >= 0 ? b : NULL, elapsed_ms, first);
        if (order <= 0)
            move_on(&old);
        if (order >= 0)
            move_on(&new);
    }
}

/* ---- Again and again ---- */

/* False when nobody reads any more. */
static bool pause_for(int64_t ms) {
    struct pollfd out = {.fd = STDOUT_FILENO};
    return poll(&out, 1, ms > INT32_MAX ? INT32_MAX : (int)ms) <= 0;
}

/* Polls the store and prints what changed. A failure is printed once; when the store is back, the
 * changes since the last successful poll follow. */
static int step(struct watch *watch, struct snapshot *before, bool first, bool was_failed) {
    struct snapshot now;
    int r = take_snapshot(watch, &now);
    if (r < 0) {
        if (!was_failed)
            fail_error(watch->cli, r, "cannot list the locks");
        return r;
    }
    compare_all(watch, before, &now, first);
    snapshot_free(before);
    *before = now;
    return HF_OK;
}

int watch_events(struct watch *watch) {
    struct snapshot before = {0};
    int exit_code = EXIT_SUCCESS, r = step(watch, &before, true, false);
    if (r < 0)
        return fail_exit_code(r);
    do {
        exit_code = look_flush(EXIT_SUCCESS);
        if (exit_code || !pause_for(watch->every_ms))
            break;
        r = step(watch, &before, false, r < 0);
    } while (true);
    snapshot_free(&before);
    return exit_code;
}
