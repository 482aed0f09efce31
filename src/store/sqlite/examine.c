/* EXAMINE: how the file's place and settings, and this process, affect its locks. It changes
 * nothing: the writes that it measures write what is already there. */
#include "store/findings.h"
#include "store/schemes.h"
#include "store/sqlite/sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
    WRITES = 20,
    WRITING_LIMIT_US = 1000000,
    LOG_TOO_LONG = 16 << 20, /* four times what the store lets it grow to */
    SPACE_NEEDED = 8 << 20,  /* the log and some growth of the file */
    NAMES_COUNTED = 1000000,
    MANY_NAMES = 200000,
    MANY_DEAD_SOCKETS = 64,
};

/* 2025 and 2100: a clock outside these years was never set. */
#define CLOCK_BEGIN_US (INT64_C(1735689600) * 1000000)
#define CLOCK_END_US (INT64_C(4102444800) * 1000000)

struct examining {
    struct session *s;
    hf_examination *out;
    bool no_memory;
};

/* findings_add; notes whether there was memory for it. */
#define ADD(x, ...) ((x)->no_memory |= !findings_add((x)->out, __VA_ARGS__))

/* The statement of a query, at its first row. NULL, with the failure noted, if there is none. */
static sqlite3_stmt *first_row(struct examining *x, const char *sql) {
    struct database *db = &x->s->db;
    sqlite3_stmt *statement = NULL;
    int r = sqlite3_prepare_v2(db->handle, sql, -1, &statement, NULL);
    if (!r)
        r = sqlite3_step(statement);
    if (r == SQLITE_ROW)
        return statement;
    sqlite3_finalize(statement);
    if (!db->failed)
        db->failed = r == SQLITE_DONE ? SQLITE_CORRUPT : r;
    return NULL;
}

/* The numbers in the first row that a query gives. */
static bool ask(struct examining *x, const char *sql, int64_t *ret, int count) {
    sqlite3_stmt *row = first_row(x, sql);
    for (int i = 0; row && i < count; i++)
        ret[i] = sqlite3_column_int64(row, i);
    sqlite3_finalize(row);
    return row;
}

/* ---- The place ---- */

static const struct {
    unsigned long magic;
    const char *name;
} systems[] = {
    {EXT4_SUPER_MAGIC, "ext4"},   {XFS_SUPER_MAGIC, "xfs"},
    {BTRFS_SUPER_MAGIC, "btrfs"}, {F2FS_SUPER_MAGIC, "f2fs"},
    {0x2fc12fc1, "zfs"},          {TMPFS_MAGIC, "tmpfs"},
    {RAMFS_MAGIC, "ramfs"},       {OVERLAYFS_SUPER_MAGIC, "overlay"},
    {FUSE_SUPER_MAGIC, "fuse"},
};

static void examine_file_system(struct examining *x) {
    struct statfs system;
    char name[32] = "unknown";
    if (fstatfs(x->s->file.folder, &system) < 0)
        return;
    unsigned long magic = (unsigned long)system.f_type & 0xffffffffu;
    snprintf(name, sizeof(name), "type 0x%lx", magic);
    for (size_t i = 0; i < sizeof(systems) / sizeof(*systems); i++) {
        if (systems[i].magic == magic)
            snprintf(name, sizeof(name), "%s", systems[i].name);
    }
    const char *path = x->s->file.path;
    if (magic == TMPFS_MAGIC || magic == RAMFS_MAGIC)
        ADD(x, HF_NOTE, "file-system",
            "the file is gone after a restart of the host; no lock is lost, since leases end with "
            "the "
            "boot, but only the wall clock then keeps tokens rising",
            "if tokens protect data that survives a restart, name a file on a disk",
            "%s is in memory (%s)", path, name);
    else if (magic == OVERLAYFS_SUPER_MAGIC)
        ADD(x, HF_NOTE, "file-system",
            "the layer belongs to one container: others have a file of their own there, and their "
            "locks do not exclude these",
            "to share locks among containers, name a file on a volume that all of them mount",
            "%s is in a container's layer (%s)", path, name);
    else
        ADD(x, HF_FINE, "file-system",
            "all processes of this host that use the file share its locks", "",
            "%s is on this host (%s)", path, name);
}

static void examine_access(struct examining *x) {
    struct stat file;
    if (lstat(x->s->file.path, &file) < 0)
        return;
    unsigned mode = file.st_mode & 07777;
    if (mode & 020)
        ADD(x, HF_NOTE, "access", "every member of the group can take, keep and break any lock",
            "if you do not want that: chmod 600 the file and those next to it",
            "the file can be written by group %u (mode %04o, owner %u)", file.st_gid, mode,
            file.st_uid);
    else if (mode & 044)
        ADD(x, HF_NOTE, "access",
            "others can see which locks there are, who holds them, and with which command",
            "if you do not want that: chmod 600 the file and those next to it",
            "the file can be read by others than its owner (mode %04o, owner %u)", mode,
            file.st_uid);
    else
        ADD(x, HF_FINE, "access", "nobody else can take or see its locks", "",
            "only its owner can use the file (mode %04o, owner %u)", mode, file.st_uid);
}

static void examine_space(struct examining *x) {
    struct statvfs system;
    if (fstatvfs(x->s->file.folder, &system) < 0)
        return;
    uint64_t room = (uint64_t)system.f_bavail * system.f_frsize;
    bool no_files = system.f_files && !system.f_favail;
    const char *means =
        "without space no lock can be acquired, and held locks cannot be renewed and "
        "are lost when their leases end";
    if (no_files)
        ADD(x, HF_PROBLEM, "free-space", means, "remove files, or name a file elsewhere",
            "the file system has no room for more files");
    else if (room < SPACE_NEEDED / 8)
        ADD(x, HF_PROBLEM, "free-space", means, "make room, or name a file elsewhere",
            "%" PRIu64 " KB are free", room >> 10);
    else if (room < SPACE_NEEDED)
        ADD(x, HF_WARNING, "free-space", means, "make room, or name a file elsewhere",
            "%" PRIu64 " KB are free, and the log alone may need %d", room >> 10,
            SPACE_NEEDED >> 11);
    else
        ADD(x, HF_FINE, "free-space", "there is room for the log and for more names", "",
            "%" PRIu64 " MB are free", room >> 20);
}

/* ---- The file ---- */

static void examine_durability(struct examining *x) {
    int64_t synchronous = -1;
    char mode[16] = "";
    ask(x, "PRAGMA synchronous", &synchronous, 1);
    sqlite3_stmt *row = first_row(x, "PRAGMA journal_mode");
    if (row)
        snprintf(mode, sizeof(mode), "%s", (const char *)sqlite3_column_text(row, 0));
    sqlite3_finalize(row);
    if (strcmp(mode, "wal") != 0)
        ADD(x, HF_WARNING, "durability",
            "each acquire and each release waits for the disk, and reading blocks those who lock",
            "end the programs that use it; then, with the sqlite3 shell: PRAGMA journal_mode = WAL",
            "somebody has switched off the file's log (journal_mode %s)", mode);
    else
        ADD(x, HF_FINE, "durability",
            "a killed process loses nothing; a power failure may lose the last commits, which does "
            "no "
            "harm: leases end with the boot anyway, and the wall clock keeps tokens rising",
            "", "commits are in the log, which is synced when it is written back (synchronous %s)",
            synchronous == 1   ? "NORMAL"
            : synchronous == 0 ? "OFF"
                               : "FULL");
}

static void examine_size(struct examining *x) {
    int64_t names = 0, pages[2] = {0};
    char sql[128];
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM (SELECT 1 FROM locks LIMIT %d)",
             NAMES_COUNTED);
    ask(x, sql, &names, 1);
    ask(x, "SELECT page_count, page_size FROM pragma_page_count, pragma_page_size", pages, 2);
    int64_t kb = pages[0] * pages[1] >> 10;
    const char *more = names == NAMES_COUNTED ? " or more" : "";
    if (names >= MANY_NAMES)
        ADD(x, HF_NOTE, "size",
            "each name is kept for a week after its last use, for its token; that costs space, but "
            "hardly any time",
            "if names are made up for each use, reuse a few names instead",
            "%" PRId64 "%s names in %" PRId64 " KB", names, more, kb);
    else
        ADD(x, HF_FINE, "size", "a name is forgotten a week after its last use", "",
            "%" PRId64 " name%s in %" PRId64 " KB", names, names == 1 ? "" : "s", kb);
}

static void examine_log(struct examining *x) {
    char path[4200];
    struct stat file;
    snprintf(path, sizeof(path), "%s-wal", x->s->file.path);
    int64_t size = stat(path, &file) == 0 ? file.st_size : 0;
    if (size > LOG_TOO_LONG)
        ADD(x, HF_WARNING, "log",
            "it cannot be written back while a process reads an old state; it grows until the disk "
            "is full",
            "end the process that keeps a transaction open (fuser shows who uses the file)",
            "the log has %" PRId64 " MB", size >> 20);
    else
        ADD(x, HF_FINE, "log", "it is written back in time", "", "the log has %" PRId64 " KB",
            size >> 10);
}

/* ---- Time ---- */

static void examine_clock(struct examining *x) {
    int64_t wall_us = world_wall_us(x->s->host->world), tokens[2] = {0};
    char sql[160];
    snprintf(sql, sizeof(sql),
             "SELECT (SELECT max(token) FROM (SELECT token FROM locks LIMIT %d)), token_base"
             " FROM meta",
             NAMES_COUNTED);
    ask(x, sql, tokens, 2);
    int64_t ahead_us = tokens[0] - wall_us, days = ahead_us / (INT64_C(86400) * 1000000);
    if (wall_us < CLOCK_BEGIN_US || wall_us > CLOCK_END_US)
        ADD(x, HF_WARNING, "clock",
            "leases are unaffected; tokens rise only by counting, so they go down if the counter "
            "is lost",
            "set the clock (chrony, systemd-timesyncd) before starting programs that lock",
            "the wall clock shows %" PRId64 " s since 1970, which cannot be right",
            wall_us / 1000000);
    else if (ahead_us > STORE_FLOOR_AHEAD_US && tokens[0] > tokens[1])
        ADD(x, HF_WARNING, "clock",
            "tokens keep rising by counting, but a program that has seen one of the large ones may "
            "be "
            "refused a lock with a new name (\"a clock is wrong\")",
            "correct the clock; if it is right, holdfast was used while it was ahead: move the "
            "file "
            "away once the resources that check tokens can be reset",
            "a token was granted %" PRId64 " day%s ahead of the wall clock", days,
            days == 1 ? "" : "s");
    else
        ADD(x, HF_FINE, "clock",
            "holders and the store share this clock, and setting the time of day does not move it: "
            "there is no skew",
            "", "leases are measured by this host's time since boot");
}

/* A transaction that writes a page and changes nothing: it writes the number that is there. */
static int write_once(struct examining *x) {
    int64_t version = 0;
    char sql[64];
    sqlite3 *handle = x->s->db.handle;
    int r = sqlite3_exec(handle, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (!r && !ask(x, "PRAGMA user_version", &version, 1))
        r = x->s->db.failed;
    if (!r) {
        snprintf(sql, sizeof(sql), "PRAGMA user_version = %" PRId64 "; COMMIT", version);
        r = sqlite3_exec(handle, sql, NULL, NULL, NULL);
    }
    return r;
}

static void cannot_write(struct examining *x, int failure) {
    if ((failure & 0xff) == SQLITE_NOMEM || failure == SQLITE_IOERR_NOMEM)
        x->no_memory = true;
    else
        ADD(x, HF_PROBLEM, "write", "no lock can be acquired or renewed now",
            "check the disk, and look for a process that was stopped while using the file",
            "the file cannot be written (%s)", sqlite3_errstr(failure));
    database_rollback(&x->s->db);
}

static void measure_writes(struct examining *x) {
    struct world *world = x->s->host->world;
    int64_t us[WRITES], began_us = world_host_us(world), before_us = began_us;
    size_t count = 0;
    while (count < WRITES && before_us - began_us < WRITING_LIMIT_US) {
        int r = write_once(x);
        if (r) {
            cannot_write(x, r);
            return;
        }
        int64_t after_us = world_host_us(world);
        us[count++] = after_us - before_us;
        before_us = after_us;
    }
    findings_measured(x->out, us, count);
}

/* ---- Processes ---- */

static void examine_processes(struct examining *x) {
    int other = open("/proc/1/stat", O_RDONLY | O_CLOEXEC);
    if (other >= 0)
        close(other);
    if (!x->s->facts.self.pid_space)
        ADD(x, HF_NOTE, "processes",
            "a killed holder is not noticed: its lock is free when its lease ends",
            "mount a /proc of this process's own pid namespace, or use a shorter lease",
            "/proc is not that of this process's pid namespace");
    else if (other < 0)
        ADD(x, HF_NOTE, "processes",
            "if a holder of another user is killed and its pid is reused, that is not noticed: its "
            "lock is free when its lease ends",
            "only if the file is shared among users: mount /proc without hidepid",
            "/proc does not show other users' processes");
    else
        ADD(x, HF_FINE, "processes",
            "the lock of a killed process is free at once, not only when its lease ends", "",
            "dead processes can be detected");
}

static void examine_sockets(struct examining *x) {
    size_t living, dead;
    if (!wake_count(x->s, &living, &dead))
        ADD(x, HF_WARNING, "wake-ups",
            "waiters are not notified that a lock is free: they ask once a second",
            "make this user the owner of the folder, or remove what is in its place",
            "the sockets next to the file (%s-wake) cannot be used", x->s->file.path);
    else if (dead > MANY_DEAD_SOCKETS)
        ADD(x, HF_NOTE, "wake-ups",
            "nothing: they are removed gradually when programs start to use the file", "",
            "%zu sockets of killed processes are left next to the file", dead);
    else
        ADD(x, HF_FINE, "wake-ups", "waiters are woken at once", "",
            "%zu programs listen for wake-ups; %zu sockets are left over", living, dead);
}

enum store_outcome sqlite_examine(struct session *s, struct store_op *op) {
    struct examining x = {.s = s, .out = findings_new(store_sqlite.tier)};
    op->examination = x.out;
    if (x.out) {
        examine_file_system(&x);
        examine_access(&x);
        examine_space(&x);
        examine_durability(&x);
        examine_size(&x);
        examine_log(&x);
        examine_clock(&x);
        examine_processes(&x);
        examine_sockets(&x);
        measure_writes(&x);
    }
    if (!x.out || x.no_memory)
        s->db.failed = SQLITE_NOMEM;
    if (s->db.failed)
        op->examination = hf_examination_free(x.out);
    return STORE_DONE;
}
