/* --metrics-file: counters that continue from run to run.
 *
 * The file is read, added to and replaced (rename) under a flock of FILE.lock, so that runs that
 * end at the same time lose nothing and a reader always sees a complete file. It is a table: a row
 * for each label (the name of the lock with --metrics-names, else none), a column for each sample.
 * Samples that are not ours are dropped when the file is read. A file that is not empty and has
 * none of ours belongs to somebody else, and is left alone. */
#include "cli/metrics.h"

#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    FILE_MOST = 4 << 20,
    ROWS_MOST = 1000,  /* names; runs with further names are counted without one */
    SAFE_SIZE = 1100,  /* a name has 255 bytes, and an escaped byte 4 … */
    LABEL_SIZE = 1400, /* … or 5, since its backslash is escaped again */
    LOCK_PATIENCE_MS = 5000,
};

enum column {
    ACQUIRED,
    NOT_ACQUIRED,
    SKIPPED,
    FAILED,
    WAIT_SUM,
    WAIT_COUNT,
    HELD_SUM,
    HELD_COUNT,
    RENEWALS,
    LOST,
    MAX_HOLD,
    WARNED,
    LEAST_MARGIN,
    LAST_EXIT_CODE,
    LAST_END,
    LAST_SUCCESS,
    COLUMNS
};

/* In the order of the columns. Those of one family are adjacent; `help` is printed once for each
 * family. */
static const struct {
    const char *sample, *family, *type, *help;
    bool is_time; /* kept in ms, written in seconds */
} columns[COLUMNS] = {
    [ACQUIRED] = {"holdfast_run_acquired_total", "holdfast_run_acquired_total", "counter",
                  "Runs that acquired their lock.", false},
    [NOT_ACQUIRED] = {"holdfast_run_not_acquired_total", "holdfast_run_not_acquired_total",
                      "counter", "Runs that did not acquire their lock in time.", false},
    [SKIPPED] = {"holdfast_run_skipped_total", "holdfast_run_skipped_total", "counter",
                 "Runs that did not acquire their lock and exited with 0 (--skip-ok).", false},
    [FAILED] = {"holdfast_run_failed_total", "holdfast_run_failed_total", "counter",
                "Runs that ended for another reason before they had the lock.", false},
    [WAIT_SUM] = {"holdfast_run_wait_seconds_sum", "holdfast_run_wait_seconds", "summary",
                  "Time spent waiting for the lock, acquired or not.", true},
    [WAIT_COUNT] = {"holdfast_run_wait_seconds_count", "holdfast_run_wait_seconds", "", "", false},
    [HELD_SUM] = {"holdfast_run_held_seconds_sum", "holdfast_run_held_seconds", "summary",
                  "Time that the lock was held.", true},
    [HELD_COUNT] = {"holdfast_run_held_seconds_count", "holdfast_run_held_seconds", "", "", false},
    [RENEWALS] = {"holdfast_run_renewals_total", "holdfast_run_renewals_total", "counter",
                  "Renewals that the store confirmed.", false},
    [LOST] = {"holdfast_run_lost_total", "holdfast_run_lost_total", "counter",
              "Runs that lost their lock while they held it.", false},
    [MAX_HOLD] = {"holdfast_run_max_hold_total", "holdfast_run_max_hold_total", "counter",
                  "Runs whose command was ended by --max-hold.", false},
    [WARNED] = {"holdfast_run_warn_after_total", "holdfast_run_warn_after_total", "counter",
                "Runs whose command ran for longer than --warn-after.", false},
    [LEAST_MARGIN] = {"holdfast_run_least_margin_seconds", "holdfast_run_least_margin_seconds",
                      "gauge",
                      "Of the last run that held the lock: the least time left before its "
                      "deadline when it was renewed or released.",
                      true},
    [LAST_EXIT_CODE] = {"holdfast_run_last_exit_code", "holdfast_run_last_exit_code", "gauge",
                        "Exit code of the last run that was not skipped.", false},
    [LAST_END] = {"holdfast_run_last_end_timestamp_seconds",
                  "holdfast_run_last_end_timestamp_seconds", "gauge",
                  "When the last run that was not skipped ended.", true},
    [LAST_SUCCESS] = {"holdfast_run_last_success_timestamp_seconds",
                      "holdfast_run_last_success_timestamp_seconds", "gauge",
                      "When the last run whose command exited with 0 ended.", true},
};

struct row {
    char *label; /* escaped, as between the quotes; NULL: none */
    int64_t values[COLUMNS];
    bool known[COLUMNS];
};

struct table {
    struct row *rows;
    size_t count;
};

static bool is_counter(enum column column) {
    return column < LEAST_MARGIN;
}

static void table_free(struct table *table) {
    for (size_t i = 0; i < table->count; i++)
        free(table->rows[i].label);
    free(table->rows);
}

/* Returns the row of a label, and adds it if it is missing. If there are too many rows, returns the
 * one without a label. NULL: no memory. */
static struct row *row_of(struct table *table, const char *label) {
    for (size_t i = 0; i < table->count; i++) {
        const char *has = table->rows[i].label;
        if (has && label ? strcmp(has, label) == 0 : has == label)
            return &table->rows[i];
    }
    if (label && table->count >= ROWS_MOST)
        return row_of(table, NULL);
    struct row *rows = realloc(table->rows, (table->count + 1) * sizeof(*rows));
    if (!rows)
        return NULL;
    table->rows = rows;
    struct row *row = &rows[table->count];
    *row = (struct row){.label = label ? strdup(label) : NULL};
    if (label && !row->label)
        return NULL;
    for (int i = 0; i < COLUMNS; i++)
        row->known[i] = is_counter((enum column)i); /* counters exist from the start */
    table->count++;
    return row;
}

/* ---- Reading ---- */

static int column_of(const char *sample, size_t length) {
    for (int i = 0; i < COLUMNS; i++) {
        if (strlen(columns[i].sample) == length && strncmp(columns[i].sample, sample, length) == 0)
            return i;
    }
    return -1;
}

/* Takes what is between the quotes of {name="..."}, and moves *text past it. False: it is something
 * else. */
static bool take_label(char **text, char **ret_label) {
    static const char start[] = "{name=\"";
    *ret_label = NULL;
    if (**text != '{')
        return true;
    if (strncmp(*text, start, strlen(start)) != 0)
        return false;
    char *label = *text + strlen(start), *end = label;
    while (*end && *end != '"')
        end += *end == '\\' && end[1] ? 2 : 1;
    if (strncmp(end, "\"}", 2) != 0 || end - label >= LABEL_SIZE)
        return false;
    *end = 0;
    *text = end + 2;
    *ret_label = label;
    return true;
}

/* One line; true if it is a sample of ours. */
static bool read_line(struct table *table, char *line) {
    size_t length = strcspn(line, "{ ");
    int column = column_of(line, length);
    char *rest = line + length, *label, *end;
    if (column < 0 || !take_label(&rest, &label) || *rest != ' ')
        return false;
    double value = strtod(rest + 1, &end);
    if (end == rest + 1 || *end || !(value >= 0 && value < 1e15))
        return false;
    struct row *row = row_of(table, label);
    if (row) {
        row->values[column] = (int64_t)(value * (columns[column].is_time ? 1000 : 1) + 0.5);
        row->known[column] = true;
    }
    return true;
}

/* Returns the malloc'd content as a string, "" if there is no file; NULL, with errno set, if it
 * cannot be read. */
static char *read_file(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? strdup("") : NULL;
    struct stat file;
    char *text = NULL;
    if (fstat(fd, &file) == 0 && (!S_ISREG(file.st_mode) || file.st_size > FILE_MOST))
        errno = S_ISREG(file.st_mode) ? EFBIG : EINVAL;
    else if ((text = calloc(1, (size_t)file.st_size + 1)) != NULL) {
        ssize_t got = read(fd, text, (size_t)file.st_size);
        text[got > 0 ? got : 0] = 0;
        for (ssize_t i = 0; i < got; i++)
            text[i] = text[i] ? text[i] : '\n'; /* a power failure leaves zeros */
    }
    close(fd);
    return text;
}

/* 0, or -1 with a reason. */
static int table_read(struct table *table, const char *path, const char **ret_why) {
    char *text = read_file(path), *rest = text, *line;
    bool is_ours = false, is_empty = true;
    if (!text) {
        *ret_why = strerror(errno);
        return -1;
    }
    while ((line = strsep(&rest, "\n"))) {
        is_empty = is_empty && !*line;
        is_ours = read_line(table, line) || is_ours;
    }
    free(text);
    *ret_why = "it is not a metrics file of holdfast; choose another";
    return is_ours || is_empty ? 0 : -1;
}

/* ---- Adding ---- */

/* The label's value for a name: the name as messages show it (text_safe), so that different names
 * have different labels, with the format's own escapes. */
static void make_label(char ret[LABEL_SIZE], const char *name) {
    char safe[SAFE_SIZE];
    text_safe(safe, sizeof(safe), name);
    for (const char *c = safe; *c; c++) {
        if (*c == '"' || *c == '\\')
            *ret++ = '\\';
        *ret++ = *c;
    }
    *ret = 0;
}

static void set(struct row *row, enum column column, int64_t value) {
    row->values[column] = value;
    row->known[column] = true;
}

static void add_run(struct row *row, const struct run_shared *shared, int exit_code) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t now_ms = now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
    int end = shared->ended;
    bool acquired = shared->tokens[0] != 0, refused = end == RUN_NOT_ACQUIRED;
    bool skipped = refused && exit_code == EXIT_SUCCESS;
    row->values[acquired ? ACQUIRED : skipped ? SKIPPED : refused ? NOT_ACQUIRED : FAILED]++;
    if (acquired || refused) {
        row->values[WAIT_SUM] += shared->waited_ms;
        row->values[WAIT_COUNT]++;
    }
    if (acquired && end != RUN_KEEPER_GONE) { /* only the keeper knew how long */
        row->values[HELD_SUM] += shared->held_ms;
        row->values[HELD_COUNT]++;
    }
    row->values[RENEWALS] += (int64_t)shared->renewals;
    row->values[LOST] += shared->lost;
    row->values[MAX_HOLD] += end == RUN_MAX_HOLD;
    row->values[WARNED] += shared->warned;
    if (acquired && shared->least_margin_ms >= 0)
        set(row, LEAST_MARGIN, shared->least_margin_ms);
    if (skipped)
        return; /* else it would hide how the previous run ended */
    set(row, LAST_EXIT_CODE, exit_code);
    set(row, LAST_END, now_ms);
    if (exit_code == 0 && end == RUN_EXITED)
        set(row, LAST_SUCCESS, now_ms);
}

/* ---- Writing ---- */

static void put_sample(FILE *file, const struct row *row, int column) {
    int64_t value = row->values[column];
    fputs(columns[column].sample, file);
    if (row->label)
        fprintf(file, "{name=\"%s\"}", row->label);
    if (columns[column].is_time)
        fprintf(file, " %" PRId64 ".%03d\n", value / 1000, (int)(value % 1000));
    else
        fprintf(file, " %" PRId64 "\n", value);
}

static bool is_known(const struct table *table, int column) {
    bool known = false;
    for (size_t i = 0; i < table->count; i++)
        known = known || table->rows[i].known[column];
    return known;
}

static void put_table(FILE *file, const struct table *table) {
    for (int column = 0; column < COLUMNS; column++) {
        if (!is_known(table, column))
            continue;
        if (*columns[column].help)
            fprintf(file, "# HELP %s %s\n# TYPE %s %s\n", columns[column].family,
                    columns[column].help, columns[column].family, columns[column].type);
        for (size_t i = 0; i < table->count; i++) {
            if (table->rows[i].known[column])
                put_sample(file, &table->rows[i], column);
        }
    }
}

static int replace(const char *path, const struct table *table, const char **ret_why) {
    char beside[PATH_MAX];
    snprintf(beside, sizeof(beside), "%s.new", path);
    unlink(beside); /* left by a process that was killed here */
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file) {
        put_table(file, table);
        bool failed = ferror(file);
        if (fclose(file) == 0 && !failed && rename(beside, path) == 0)
            return 0;
    }
    *ret_why = strerror(errno);
    unlink(beside);
    return -1;
}

/* ---- The lock beside the file ---- */

/* Returns a descriptor that holds the lock, or -1 with a reason. */
static int lock_file(const char *path, const char **ret_why) {
    char beside[PATH_MAX];
    if (snprintf(beside, sizeof(beside), "%s.lock", path) >= (int)sizeof(beside)) {
        *ret_why = strerror(ENAMETOOLONG);
        return -1;
    }
    int fd = open(beside, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    int64_t give_up_ms = clock_now_ms() + LOCK_PATIENCE_MS;
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (clock_now_ms() > give_up_ms) {
            close(fd);
            *ret_why = "another run has kept FILE.lock for seconds; is it stopped?";
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    *ret_why = strerror(errno);
    return fd;
}

static int fail_file(const char *path, const char *why) {
    char safe[300];
    return fail_usage(
        "cannot keep metrics in %s (%s); --metrics-file needs a file of its own, in a "
        "folder that can be written to",
        text_safe(safe, sizeof(safe), path), why);
}

int metrics_check(const char *path) {
    struct table table = {0};
    const char *why;
    int r = table_read(&table, path, &why); /* first: nothing is put beside somebody else's file */
    int lock = r < 0 ? -1 : lock_file(path, &why);
    table_free(&table);
    if (lock >= 0)
        close(lock);
    return lock < 0 ? fail_file(path, why) : 0;
}

void metrics_write(const struct run *run, int exit_code) {
    const struct run_settings *s = run->settings;
    struct table table = {0};
    char label[LABEL_SIZE];
    const char *why;
    make_label(label, s->name);
    int lock = lock_file(s->metrics_file, &why);
    int r = lock < 0 ? -1 : table_read(&table, s->metrics_file, &why);
    struct row *row = r < 0 ? NULL : row_of(&table, s->metrics_names ? label : NULL);
    if (!r && !row) {
        r = -1;
        why = strerror(ENOMEM);
    }
    if (row) {
        add_run(row, run->shared, exit_code);
        r = replace(s->metrics_file, &table, &why);
    }
    table_free(&table);
    if (lock >= 0)
        close(lock);
    if (r < 0)
        fail_file(s->metrics_file, why);
}
