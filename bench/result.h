/* How a measuring program measures, and how it reports what it found.
 *
 * A case compares contenders in interleaved rounds. The first contender is the base, usually the
 * raw limit. A round has one slice of each of the others, and each of these lies between two
 * slices of the base. So ratios hold although the machine's speed drifts, and the base compared
 * with its own neighbours shows how noisy the machine was. A figure is a case without a base: a
 * number that counts by itself, such as bytes. A curve shows how a cost grows.
 *
 * A program writes records to standard output, one JSON object a line, and nothing else there.
 * bench/run starts the programs, computes medians and ratios, and compares them with
 * bench/goals.py. What the program is to do is in its environment, which bench/run sets:
 *
 *    BENCH_ROUNDS=11     rounds of a case
 *    BENCH_ONLY=pair     the only part; what is before the slash of its name may be left out
 *    BENCH_QUICK=1       one round and short slices: shows that the program still works
 *
 * For a case:
 *
 *    static double slice(void *arg) {...}  measures for about result_slice_ns(60), returns a rate
 *                                          or a time, and may note single operations:
 *                                          result_time(ns)
 *
 *    static void measure_pair(void) {
 *        ...
 *        const struct contender contenders[] = {{"bare hiredis", slice, &bare},
 *                                               {"holdfast", slice, &own}};
 *        result_compare("redis/pair", "A free lock, one thread", "pairs/s", contenders, 2);
 *    }
 *
 *    main: result_run((struct result_part[]){{"redis/pair", measure_pair}}, 1);
 *
 * For a curve: measure every x once in each round, collect the values by x, and report each x with
 * result_point. Say which round begins with result_progress; a case does so by itself. */
#ifndef BENCH_RESULT_H
#define BENCH_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RESULT_ROUNDS_MAX = 100, RESULT_CONTENDERS_MAX = 8 };

struct contender {
    const char *what; /* "holdfast"; goals name contenders by it */
    double (*slice)(void *arg);
    void *arg;
};

/* Rounds of each case, and of each x of a curve: 1 to RESULT_ROUNDS_MAX. */
int result_rounds(void);
/* Calls the parts of a program that are wanted. A part's cases begin with its name. */
struct result_part {
    const char *name;
    void (*measure)(void);
};
void result_run(const struct result_part *parts, size_t count);
/* `full`, or `quick` if the run only shows that the program works. */
int result_scale(int full, int quick);
int64_t result_slice_ns(int ms);
/* The placement of all that follows: "pinned" (client and server on one core) or "default". */
void result_place(const char *placement);

/* Measures, after a slice of each to warm up, and reports. */
void result_compare(const char *name, const char *title, const char *unit,
                    const struct contender *contenders, size_t count);

/* In a slice: what one operation took. Any thread may call it. The report has the median and the
 * 99th percentile of all slices of the contender. */
void result_time(int64_t ns);
/* The median of this slice so far, in us. */
double result_median_us(void);

/* Reports a number that counts by itself, as measured `count` times. */
void result_figure(const char *name, const char *title, const char *what, const char *unit,
                   const double *values, int count);

struct result_curve {
    const char *name;      /* "growth/names" */
    const char *title;     /* "A pair over the number of names" */
    const char *x;         /* "names" */
    const char *unit;      /* of the values */
    const char *series;    /* "holdfast" */
    const char *reference; /* "the same requests bare"; NULL: there is none */
};

/* Reports one x: `values` has a value for each round, and so has `reference` unless it is NULL. */
void result_point(const struct result_curve *curve, double x, const double *values,
                  const double *reference, int count);

/* For people who watch the run. `round` counts from 1. */
void result_progress(const char *name, int round, int rounds);

int64_t result_now_ns(void);
void result_sleep_us(int64_t us);
__attribute__((noreturn)) void result_die(const char *what, const char *why);

#endif
