/* Watching: the watchers, and the log of what happens to locks.
 *
 * Design notes.
 *
 * Each watcher has a row in `watchers`. While there is one, each transaction that changes a lock
 * also writes the change to the table `changes`, and once it is committed, sends the watchers a
 * datagram (wake.c). That is only a hint to read the log. A watcher also looks every second, so a
 * lost datagram costs a second at most. Changes are in the order of their transactions, and their
 * numbers have no gaps.
 *
 * Locks that nobody watches cost next to nothing extra: an acquire sees that `watchers` is empty in
 * the statement that reads its lock, and a release in the one that deletes its claim.
 *
 * A watcher's row is leased. When the lease of the last one has ended, the next change deletes all
 * rows and the log instead of being logged. So if a watcher finds its row, nothing is missing, and
 * if not (it was stopped for too long, or the file was replaced) it starts again. The log keeps
 * LOG_MAX changes; a watcher that is further behind finds a gap. */
#include "store/locks.h"
#include "store/sqlite/sqlite.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEASE_US = 10000000,
    EXTEND_US = 3000000,
    LOOK_US = 1000000,
    LOG_MAX = 10000,
    REPORTED_AT_ONCE = 256,
    COLUMN_NUMBER = CLAIM_COLUMNS + LOOK_COLUMNS,
    COLUMN_TYPE,
    COLUMN_AT_US,
};

/* Binds the range in which the lease of a live watcher ends. One that ends later was written before
 * the host was restarted. */
static sqlite3_stmt *use_now(struct session *s, enum statement which, int64_t now_us) {
    return database_use(&s->db, which, "ii", now_us, now_us + LEASE_US + CLOCK_SLACK_US);
}

/* ---- Logging changes ---- */

/* Adds a note for each watcher, to be sent as a hint; false if nobody watches. */
static bool note_watchers(struct session *s, int64_t now_us) {
    bool any = false;
    sqlite3_stmt *row = use_now(s, SQL_WATCHERS, now_us);
    while (database_next(&s->db, row)) {
        struct claim watcher = {0};
        const void *client = sqlite3_column_blob(row, 0);
        if (client && sqlite3_column_bytes(row, 0) == sizeof(watcher.client))
            memcpy(watcher.client, client, sizeof(watcher.client));
        wake_note(s, &watcher, NOTE_CHANGED);
        any = true;
    }
    return any;
}

static void end_watches(struct session *s, int64_t now_us) {
    database_run(&s->db, use_now(s, SQL_END_WATCHES, now_us));
    database_run(&s->db, database_use(&s->db, SQL_FORGET_CHANGES, ""));
}

void changes_log(struct session *s, const struct claim *claim, hf_change_type type,
                 int64_t now_us) {
    const struct lock *lock = &s->lock;
    if (!lock->is_watched)
        return;
    if (!note_watchers(s, now_us)) {
        end_watches(s, now_us);
        return;
    }
    database_run(&s->db,
                 database_use(&s->db, SQL_LOG_CHANGE, "siiii", lock->name, (int64_t)claim->state,
                              claim->ticket, (int64_t)type, s->wall_us));
    database_run(&s->db, database_use(&s->db, SQL_TRIM_CHANGES, "i", (int64_t)LOG_MAX));
}

/* ---- The watch ---- */

static void say(struct session *s, hf_change_type type, const char *text) {
    struct store_change change = {
        .type = type, .at_us = world_wall_us(s->host->world), .text = text};
    s->host->changed(s->host, &change);
}

static void say_missed(struct session *s, const char *why) {
    say(s, HF_CHANGE_MISSED, why);
    say(s, HF_CHANGE_WATCHING, NULL);
}

static void begin(struct session *s) {
    s->db.failed = 0;
    database_run(&s->db, database_use(&s->db, SQL_BEGIN, ""));
}

static bool commit(struct session *s) {
    database_run(&s->db, database_use(&s->db, SQL_COMMIT, ""));
    if (s->db.failed)
        database_rollback(&s->db);
    return !s->db.failed;
}

static int64_t last_change(struct session *s) {
    sqlite3_stmt *row = database_use(&s->db, SQL_LAST_CHANGE, "");
    int64_t last = 0;
    if (database_next(&s->db, row)) {
        last = sqlite3_column_int64(row, 0);
        database_done(row);
    }
    return last;
}

/* Extends the lease of our row, or adds the row. */
static void mark(struct session *s) {
    struct watching *w = &s->watching;
    const uint8_t *id = s->host->identity.id;
    wake_listen(s);
    begin(s);
    int64_t now_us = session_now_us(s), last = 0;
    database_run(&s->db, database_use(&s->db, SQL_EXTEND_WATCH, "ci", id, now_us + LEASE_US));
    bool was_there = sqlite3_changes(s->db.handle) > 0;
    end_watches(s, now_us);
    if (!was_there) {
        database_run(&s->db, database_use(&s->db, SQL_ADD_WATCHER, "ci", id, now_us + LEASE_US));
        last = last_change(s);
    }
    if (!commit(s))
        return; /* tried again when we look again */
    w->extend_us = world_now_us(s->host->world) + EXTEND_US;
    if (was_there)
        return;
    if (w->is_live)
        say_missed(s, "this process was stopped for too long, or the file was replaced");
    else
        say(s, HF_CHANGE_WATCHING, NULL);
    w->is_live = true;
    w->last = last;
}

static void report(struct session *s, sqlite3_stmt *row, int64_t now_us) {
    struct watching *w = &s->watching;
    int64_t number = sqlite3_column_int64(row, COLUMN_NUMBER);
    if (number != w->last + 1)
        say_missed(s, "they came faster than they were read");
    struct store_change change = {
        .type = (hf_change_type)sqlite3_column_int(row, COLUMN_TYPE),
        .at_us = sqlite3_column_int64(row, COLUMN_AT_US),
        .locks = look_at_row(row, now_us),
    };
    if (change.locks)
        s->host->changed(s->host, &change);
    else
        say_missed(s, "out of memory");
    w->last = number;
}

/* Reports what was logged; true if there may be more. */
static bool report_some(struct session *s) {
    int64_t now_us = session_now_us(s);
    s->db.failed = 0;
    sqlite3_stmt *row =
        database_use(&s->db, SQL_READ_CHANGES, "ic", s->watching.last, s->host->identity.id);
    for (int i = 0; i < REPORTED_AT_ONCE; i++) {
        if (!database_next(&s->db, row))
            return false;
        report(s, row, now_us);
    }
    database_done(row);
    return true;
}

static void look(struct world_timer *timer) {
    struct session *s = container_of(timer, struct session, watching.timer);
    struct watching *w = &s->watching;
    struct world *world = s->host->world;
    char *text = NULL;
    bool more = false;
    session_enter();
    if (session_find_file(s, &text) == HF_OK) {
        if (!w->is_live || world_now_us(world) >= w->extend_us)
            mark(s);
        more = w->is_live && report_some(s);
    }
    free(text); /* the watch starts, or goes on, when the file can be used */
    world_timer_set(world, timer, world_now_us(world) + (more ? 0 : LOOK_US));
    session_leave();
}

void changes_hint(struct session *s) {
    if (s->watching.is_on)
        world_timer_set(s->host->world, &s->watching.timer, world_now_us(s->host->world));
}

void changes_watch(struct session *s, struct store_op *op) {
    struct watching *w = &s->watching;
    int r = world_timer_add(s->host->world, &w->timer, look);
    if (r < 0) {
        store_refuse(s->host, op, r, NULL);
        return;
    }
    *w = (struct watching){.timer = w->timer, .is_on = true};
    changes_hint(s);
    store_complete(s->host, op, STORE_DONE);
}

void changes_end(struct session *s) {
    struct watching *w = &s->watching;
    if (!w->is_on)
        return;
    world_timer_drop(s->host->world, &w->timer);
    w->is_on = false;
    if (!w->is_live || !s->db.handle)
        return;
    begin(s);
    database_run(&s->db, database_use(&s->db, SQL_END_WATCH, "c", s->host->identity.id));
    database_run(&s->db, database_use(&s->db, SQL_FORGET_CHANGES, ""));
    commit(s); /* if it fails, the row's lease ends */
}

void changes_unwatch(struct session *s, struct store_op *op) {
    changes_end(s);
    store_complete(s->host, op, STORE_DONE);
}
