/* The events of holdfast watch.
 *
 * They come from two sources: changes, which the store announces as they happen if it can, and
 * polls, which are compared with what is known (watch_known.h). A poll finds what nobody announces:
 * the end of a lease, and what clients of other programs and older versions do. So polls go on
 * while changes are announced.
 *
 * Design notes. A poll and a change may cross: the poll may show the state before a change that has
 * been reported already, or the state after a change that has not arrived yet. So the changes that
 * arrive during a poll are reported before its result is compared, and the poll does not count for
 * locks that changed meanwhile. And if changes are announced, a party that a poll does not find is
 * reported as gone only if the next poll does not find it either and no change has reported its end
 * meanwhile. Its end may be announced later still; it is remembered for a while, so that it is not
 * reported twice. */
#include "cli/clock.h"
#include "cli/look.h"
#include "cli/text.h"
#include "cli/watch.h"
#include "cli/watch_known.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REMEMBER_MS = 60000 }; /* who was reported as gone, in case that is announced */

struct events {
    struct watch *watch;
    struct known known;
    uint64_t polls;
    hf_call *call; /* of the watch; NULL: the store is only polled */
    bool was_missed, poll_now, no_memory;
};

/* ---- Reporting ---- */

/* An event as it is printed. at_ms is exact if the store announced it. */
struct told {
    const char *event;
    int64_t at_ms;
    bool exact;
    const hf_lock_info *broken; /* "broken": the lock, with by whom and why; else NULL */
};

static void start_json(struct json *json, const char *event, int64_t at_ms) {
    *json = (struct json){.file = stdout};
    json_object(json, NULL);
    json_string(json, "event", event);
    json_number(json, "at_ms", at_ms);
}

static void tell(const struct events *events, struct told told, const hf_lock_info *lock,
                 const hf_party *party) {
    if (events->watch->cli->json) {
        struct json json;
        start_json(&json, told.event, told.at_ms);
        json_bool(&json, "exact", told.exact);
        json_string(&json, "name", lock->name);
        look_put_party(&json, "party", lock, party);
        if (told.broken) {
            json_string(&json, "by", told.broken->broken_by);
            json_string(&json, "reason", told.broken->broken_reason);
        }
        json_object_end(&json);
        json_end(&json);
        return;
    }
    char when[32], name[LOOK_NAME_SIZE], who[LOOK_PARTY_SIZE];
    printf("%s %-8s %s · %s", look_time(when, sizeof(when), told.at_ms), told.event,
           text_safe(name, sizeof(name), lock->name), look_party(who, sizeof(who), party));
    if (party->token)
        printf(" · token %" PRIu64, party->token);
    if (told.broken)
        printf(" · by %s", text_safe(who, sizeof(who), told.broken->broken_by));
    if (told.broken && *told.broken->broken_reason)
        printf(": %s", text_safe(name, sizeof(name), told.broken->broken_reason));
    putchar('\n');
}

static struct told polled(const char *event) {
    return (struct told){.event = event, .at_ms = look_wall_ms()};
}

/* Reports the state of the watch itself: as an event in JSON, or on standard error. */
static void tell_state(const struct events *events, const char *event, const char *reason) {
    char text[LOOK_NAME_SIZE];
    if (events->watch->cli->json) {
        struct json json;
        start_json(&json, event, look_wall_ms());
        json_string(&json, "reason", reason);
        json_object_end(&json);
        json_end(&json);
    } else if (strcmp(event, "polling") == 0) {
        say(SAY_WARNING,
            "the store is polled, and what begins and ends between two polls is not seen (%s)",
            text_safe(text, sizeof(text), reason));
    } else if (strcmp(event, "missed") == 0) {
        say(SAY_WARNING, "events may be missing from here on (%s)",
            text_safe(text, sizeof(text), reason));
    } else if (events->was_missed) {
        say(SAY_INFO, "events are complete again");
    }
}

/* ---- What is known, and how it changes ---- */

/* Reports the end of a hold that nobody announced. `now` is its lock as a poll found it, or
 * NULL. */
static void tell_ended(const struct events *events, const struct known_lock *lock,
                       const struct known_party *party, const hf_lock_info *now) {
    hf_locks *locks = NULL;
    int64_t elapsed_ms = clock_now_ms() - party->updated_ms, left_ms = party->info.left_ms;
    struct told told = polled(left_ms >= 0 && left_ms <= elapsed_ms ? "lost" : "released");
    if (!now && hf_inspect(events->watch->client, lock->name, &locks) == HF_OK)
        now = hf_locks_at(locks, 0);
    if (now && now->broken_token && now->broken_token == party->info.token)
        told =
            (struct told){.event = "broken", .at_ms = now->broken_ms, .exact = true, .broken = now};
    tell(events, told, &lock->info, &party->info);
    hf_locks_free(locks);
}

static void end_party(const struct events *events, struct known_lock *lock,
                      struct known_party *party, const hf_lock_info *now) {
    if (party->holds)
        tell_ended(events, lock, party, now);
    else
        tell(events, polled("left"), &lock->info, &party->info);
    party->is_over = true;
    party->updated_ms = clock_now_ms();
    if (!events->call)
        known_drop(lock, party);
}

/* Reports that a party holds the lock or waits for it, if that is not known yet. If it holds the
 * lock exclusively, all earlier holds have ended. */
static void tell_party(struct events *events, struct known_lock *lock, struct told told,
                       const hf_party *party, bool holds) {
    struct known_party *before = known_party(lock, party->owner);
    if (before && !before->is_over && before->holds &&
        (!holds || before->info.token != party->token)) {
        end_party(events, lock, before, NULL);
        before = known_party(lock, party->owner);
    }
    if (before && !before->is_over && before->holds == holds) {
        before->is_missing = false;
        before->info.left_ms = party->left_ms;
        before->updated_ms = clock_now_ms();
        return;
    }
    if (before)
        known_drop(lock, before);
    for (size_t i = lock->count; holds && lock->info.kind == HF_EXCLUSIVE && i-- > 0;) {
        if (lock->parties[i]->holds && !lock->parties[i]->is_over)
            end_party(events, lock, lock->parties[i], NULL);
    }
    tell(events, told, &lock->info, party);
    events->no_memory |= !known_add(lock, party, holds);
}

/* ---- Changes ---- */

static const char *const names[] = {
    [HF_CHANGE_ACQUIRED] = "acquired", [HF_CHANGE_RELEASED] = "released",
    [HF_CHANGE_BROKEN] = "broken",     [HF_CHANGE_WAITING] = "waiting",
    [HF_CHANGE_LEFT] = "left",
};

static void tell_change(struct events *events, const hf_change *change) {
    struct known_lock *lock = known_get(&events->known, change->lock);
    if (!lock) {
        events->no_memory = true;
        return;
    }
    struct told told = {.event = names[change->type], .at_ms = change->at_ms, .exact = true};
    lock->changed_poll = events->polls;
    if (change->type == HF_CHANGE_ACQUIRED || change->type == HF_CHANGE_WAITING) {
        tell_party(events, lock, told, change->party, change->type == HF_CHANGE_ACQUIRED);
        return;
    }
    struct known_party *party = known_party(lock, change->party->owner);
    told.broken = change->type == HF_CHANGE_BROKEN ? change->lock : NULL;
    if (!party || !party->is_over)
        tell(events, told, change->lock, change->party);
    if (party)
        known_drop(lock, party);
}

static void changed(const hf_change *change, void *arg) {
    struct events *events = arg;
    if (change->type == HF_CHANGE_WATCHING) {
        tell_state(events, "watching", NULL);
        events->was_missed = false;
        events->poll_now = true;
    } else if (change->type == HF_CHANGE_MISSED) {
        tell_state(events, "missed", change->text);
        events->was_missed = true;
    } else if (change->lock && change->party && change->type <= HF_CHANGE_LEFT) {
        tell_change(events, change);
    }
}

/* Starts to watch, or reports that the store cannot announce changes. */
static void start_watching(struct events *events) {
    struct watch *watch = events->watch;
    int r = hf_watch_start(watch->client, watch->prefix, changed, events, &events->call);
    if (r < 0)
        tell_state(events, "polling", hf_last_error());
}

/* Runs `changed` for what has arrived. */
static void take_changes(struct events *events) {
    hf_process(events->watch->client);
    if (events->call && hf_call_status(events->call) != HF_PENDING) {
        tell_state(events, "polling", hf_call_error(events->call));
        events->call = hf_call_free(events->call);
    }
}

/* ---- Polls ---- */

/* The pages of one listing. */
struct snapshot {
    hf_locks **pages;
    size_t count, room;
};

static void snapshot_free(struct snapshot *snapshot) {
    for (size_t i = 0; i < snapshot->count; i++)
        hf_locks_free(snapshot->pages[i]);
    free((void *)snapshot->pages);
}

static bool add_page(struct snapshot *snapshot, hf_locks *page) {
    if (snapshot->count == snapshot->room) {
        size_t room = snapshot->room ? 2 * snapshot->room : 16;
        hf_locks **pages = realloc((void *)snapshot->pages, room * sizeof(hf_locks *));
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

static int take_snapshot(const struct watch *watch, struct snapshot *ret) {
    struct look look = {.client = watch->client, .prefix = watch->prefix};
    struct snapshot snapshot = {0};
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

static bool is_among(const hf_party *const *parties, size_t count, const char *owner, size_t *at) {
    for (size_t i = 0; i < count; i++) {
        size_t place = (*at + i) % count;
        if (strcmp(parties[place]->owner, owner) == 0) {
            *at = place + 1;
            return true;
        }
    }
    return false;
}

/* Reports who is gone. `now` is NULL if nobody holds the lock or waits for it. */
static void compare_gone(struct events *events, struct known_lock *lock, const hf_lock_info *now) {
    size_t holder = 0, waiter = 0;
    for (size_t i = 0; i < lock->count;) {
        struct known_party *party = lock->parties[i];
        if (party->is_over) {
            if (clock_now_ms() > party->updated_ms + REMEMBER_MS)
                known_drop(lock, party);
            else
                i++;
            continue;
        }
        bool found =
            now && (is_among(now->holders, now->holder_count, party->info.owner, &holder) ||
                    is_among(now->waiters, now->waiter_count, party->info.owner, &waiter));
        if (found || (events->call && !party->is_missing)) {
            party->is_missing = !found;
            i++;
        } else {
            end_party(events, lock, party, now);
        }
    }
}

static void compare(struct events *events, const hf_lock_info *now) {
    bool first = events->polls == 1;
    struct known_lock *lock = known_get(&events->known, now);
    if (!lock) {
        events->no_memory = true;
        return;
    }
    if (lock->changed_poll == events->polls)
        return;
    compare_gone(events, lock, now);
    for (size_t i = 0; i < now->holder_count; i++)
        tell_party(events, lock, polled(first ? "held" : "acquired"), now->holders[i], true);
    for (size_t i = 0; i < now->waiter_count; i++)
        tell_party(events, lock, polled("waiting"), now->waiters[i], false);
}

/* Both are in the order of the names. */
static void compare_all(struct events *events, const struct snapshot *snapshot) {
    struct known *known = &events->known;
    size_t next = 0;
    for (size_t page = 0; page < snapshot->count; page++) {
        const hf_lock_info *now;
        for (size_t i = 0; (now = hf_locks_at(snapshot->pages[page], i)); i++) {
            for (; next < known->count && strcmp(known->locks[next]->name, now->name) < 0; next++) {
                if (known->locks[next]->changed_poll != events->polls)
                    compare_gone(events, known->locks[next], NULL);
            }
            compare(events, now);
            next += next < known->count && strcmp(known->locks[next]->name, now->name) == 0;
        }
    }
    for (; next < known->count; next++) {
        if (known->locks[next]->changed_poll != events->polls)
            compare_gone(events, known->locks[next], NULL);
    }
    for (size_t i = known->count; i-- > 0;) {
        if (!known->locks[i]->count)
            known_remove(known, i);
    }
}

/* Polls the store and reports what changed. A failure is printed once; when the store is back, the
 * changes since the last successful poll follow. */
static int poll_store(struct events *events, bool was_failed) {
    struct snapshot snapshot;
    events->polls++;
    events->poll_now = false;
    int r = take_snapshot(events->watch, &snapshot);
    take_changes(events);
    if (r < 0) {
        events->polls -= events->polls == 1;
        if (!was_failed)
            fail_error(events->watch->cli, r, "cannot list the locks");
        return r;
    }
    compare_all(events, &snapshot);
    snapshot_free(&snapshot);
    return HF_OK;
}

/* ---- Again and again ---- */

/* Waits for changes, or until the next poll. False when nobody reads any more. */
static bool wait_until(struct events *events, int64_t at_ms) {
    int64_t left_ms = at_ms - clock_now_ms();
    struct pollfd fds[] = {
        {.fd = STDOUT_FILENO},
        {.fd = events->call ? hf_fd(events->watch->client) : -1, .events = POLLIN}};
    left_ms = events->poll_now || left_ms < 0 ? 0 : left_ms > INT32_MAX ? INT32_MAX : left_ms;
    poll(fds, 2, (int)left_ms);
    if (fds[1].revents)
        take_changes(events);
    return !fds[0].revents;
}

static int follow(struct events *events) {
    int64_t next_ms = clock_now_ms() + events->watch->every_ms;
    int r = HF_OK;
    do {
        int exit_code = say_flush(EXIT_SUCCESS);
        if (exit_code)
            return exit_code;
        if (events->no_memory) {
            fail_say("%s", hf_error_string(HF_NO_MEMORY));
            return fail_exit_code(HF_NO_MEMORY);
        }
        if (events->poll_now || clock_now_ms() >= next_ms) {
            r = poll_store(events, r < 0);
            next_ms = clock_now_ms() + events->watch->every_ms;
        }
    } while (wait_until(events, next_ms));
    return EXIT_SUCCESS;
}

int watch_events(struct watch *watch) {
    struct events events = {.watch = watch};
    int r = hf_fd(watch->client); /* from now on, `changed` runs on this thread */
    if (r >= 0)
        r = poll_store(&events, false);
    if (r < 0)
        return fail_exit_code(r);
    start_watching(&events);
    int exit_code = follow(&events);
    hf_call_free(events.call);
    known_free(&events.known);
    return exit_code;
}
