/* See result.h. */
#include "result.h"

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ROUNDS = 11,
    TRIES = 20,
    QUICK_SLICE_MS = 5,
    STEP_BITS = 6, /* 64 steps for each doubling: a time is known to 1.6 % */
    STEPS = (64 - STEP_BITS) << STEP_BITS,
};

static const char *place = "default";

void result_die(const char *what, const char *why) {
    fprintf(stderr, "bench: %s: %s\n", what, why);
    exit(1);
}

int64_t result_now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

void result_sleep_us(int64_t us) {
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

/* ---- What to do ---- */

int result_scale(int full, int quick) {
    return getenv("BENCH_QUICK") ? quick : full;
}

int64_t result_slice_ns(int ms) {
    return result_scale(ms, QUICK_SLICE_MS) * INT64_C(1000000);
}

int result_rounds(void) {
    const char *text = getenv("BENCH_ROUNDS");
    long rounds = text ? strtol(text, NULL, 10) : ROUNDS;
    if (rounds < 1 || rounds > RESULT_ROUNDS_MAX)
        result_die("BENCH_ROUNDS", "not a number from 1 to 100");
    return result_scale((int)rounds, 1);
}

static bool is_wanted(const char *name) {
    const char *only = getenv("BENCH_ONLY"), *behind = strchr(name, '/');
    return !only || strcmp(only, name) == 0 || (behind && strcmp(only, behind + 1) == 0);
}

void result_run(const struct result_part *parts, size_t count) {
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        if (!is_wanted(parts[i].name))
            continue;
        parts[i].measure();
        any = true;
    }
    if (any)
        return;
    fprintf(stderr, "bench: there are:");
    for (size_t i = 0; i < count; i++)
        fprintf(stderr, " %s", parts[i].name);
    fprintf(stderr, "\n");
    result_die(getenv("BENCH_ONLY"), "there is no such part");
}

void result_place(const char *placement) {
    place = placement;
}

/* ---- Times of single operations ---- */

/* How many took how long: a count for each step. */
struct times {
    atomic_uint counts[STEPS];
};

static struct times of_slice;

static size_t step_of(uint64_t ns) {
    if (ns < 1 << STEP_BITS)
        return ns;
    int shift = 63 - __builtin_clzll(ns) - STEP_BITS;
    return (((size_t)shift + 1) << STEP_BITS) + ((ns >> shift) & ((1 << STEP_BITS) - 1));
}

static double middle_of(size_t step) {
    if (step < 1 << STEP_BITS)
        return (double)step;
    int shift = (int)(step >> STEP_BITS) - 1;
    uint64_t in_doubling = (step & ((1 << STEP_BITS) - 1)) + (1 << STEP_BITS);
    return ((double)in_doubling + 0.5) * (double)(UINT64_C(1) << shift);
}

void result_time(int64_t ns) {
    atomic_fetch_add_explicit(&of_slice.counts[step_of(ns > 0 ? (uint64_t)ns : 0)], 1,
                              memory_order_relaxed);
}

/* In us; 0 if nothing was noted. */
static double quantile(const struct times *times, double share) {
    uint64_t total = 0, passed = 0;
    for (size_t i = 0; i < STEPS; i++)
        total += times->counts[i];
    for (size_t i = 0; i < STEPS; i++) {
        passed += times->counts[i];
        if (passed && (double)passed >= share * (double)total)
            return middle_of(i) / 1000;
    }
    return 0;
}

double result_median_us(void) {
    return quantile(&of_slice, 0.5);
}

/* ---- Records ---- */

/* Labels have no quotes and no backslashes. */
static void put_text(const char *key, const char *text) {
    printf("\"%s\":\"%s\",", key, text);
}

static void put_values(const char *key, const double *values, int count) {
    printf("\"%s\":[", key);
    for (int i = 0; i < count; i++)
        printf("%s%.6g", i ? "," : "", values[i]);
    printf("]");
}

static void end_record(void) {
    printf("}\n");
    fflush(stdout);
}

static void begin_case(const char *name, const char *title, const char *unit) {
    printf("{");
    put_text("case", name);
    put_text("title", title);
    put_text("unit", unit);
    put_text("placement", place);
    printf("\"contenders\":[");
}

void result_progress(const char *name, int round, int rounds) {
    printf("{");
    put_text("progress", name);
    put_text("placement", place);
    printf("\"round\":%d,\"rounds\":%d", round, rounds);
    end_record();
}

/* ---- Cases ---- */

/* What was measured of a contender: the base has a slice before and after each other one. */
struct measured {
    double slices[RESULT_ROUNDS_MAX * RESULT_CONTENDERS_MAX];
    int count;
    struct times times;
};

/* On a busy machine, a slice may have got no time at all, and shows nothing: then it is measured
 * again. */
static void measure_slice(const struct contender *contender, struct measured *measured) {
    double value = 0;
    for (int tries = 0; tries < TRIES && !(isfinite(value) && value > 0); tries++) {
        memset(&of_slice, 0, sizeof(of_slice));
        value = contender->slice(contender->arg);
    }
    if (!isfinite(value))
        result_die(contender->what, "the machine is too busy to measure it");
    measured->slices[measured->count++] = value;
    for (size_t i = 0; i < STEPS; i++)
        measured->times.counts[i] += of_slice.counts[i];
}

static void put_contender(const struct contender *contender, const struct measured *measured) {
    printf("{");
    put_text("what", contender->what);
    put_values("slices", measured->slices, measured->count);
    double median = quantile(&measured->times, 0.5);
    if (median > 0)
        printf(",\"p50_us\":%.6g,\"p99_us\":%.6g", median, quantile(&measured->times, 0.99));
    printf("}");
}

void result_compare(const char *name, const char *title, const char *unit,
                    const struct contender *contenders, size_t count) {
    static struct measured measured[RESULT_CONTENDERS_MAX];
    if (count > RESULT_CONTENDERS_MAX)
        result_die(name, "too many contenders");
    memset(measured, 0, sizeof(measured));
    for (size_t i = 0; i < count; i++)
        contenders[i].slice(contenders[i].arg); /* to warm up */
    for (int round = 0; round < result_rounds(); round++) {
        result_progress(name, round + 1, result_rounds());
        measure_slice(&contenders[0], &measured[0]);
        for (size_t i = 1; i < count; i++) {
            measure_slice(&contenders[i], &measured[i]);
            measure_slice(&contenders[0], &measured[0]);
        }
    }
    begin_case(name, title, unit);
    for (size_t i = 0; i < count; i++) {
        printf("%s", i ? "," : "");
        put_contender(&contenders[i], &measured[i]);
    }
    printf("]");
    end_record();
}

void result_figure(const char *name, const char *title, const char *what, const char *unit,
                   const double *values, int count) {
    begin_case(name, title, unit);
    printf("{");
    put_text("what", what);
    put_values("slices", values, count);
    printf("}]");
    end_record();
}

/* ---- Curves ---- */

void result_point(const struct result_curve *curve, double x, const double *values,
                  const double *reference, int count) {
    printf("{");
    put_text("curve", curve->name);
    put_text("title", curve->title);
    put_text("x", curve->x);
    put_text("unit", curve->unit);
    put_text("series", curve->series);
    put_text("placement", place);
    printf("\"at\":%.6g,", x);
    put_values("values", values, count);
    if (curve->reference && reference) {
        printf(",");
        put_text("reference", curve->reference);
        put_values("reference_values", reference, count);
    }
    end_record();
}
