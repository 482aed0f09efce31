/* Measuring beside a limit, in interleaved slices: each slice of a contender lies between two of
 * the limit's, a round has one of each contender, and the result is the median of the rounds. */
#ifndef BENCH_COMPARE_H
#define BENCH_COMPARE_H

#include <stddef.h>
#include <stdint.h>

enum { COMPARE_ROUNDS_MAX = 100, COMPARE_CONTENDERS_MAX = 6 };

/* To be set before anything is measured: 1 to COMPARE_ROUNDS_MAX. */
extern int compare_rounds;

struct contender {
    const char *what;
    double (*slice)(void *arg); /* measures for a while: a rate, or a time */
    void *arg;
    const char *goal; /* of its ratio to the limit, for people; or NULL */
};

/* By contender and round; the ratio is that to the limit's slices before and after. */
struct comparison {
    double value[COMPARE_CONTENDERS_MAX][COMPARE_ROUNDS_MAX];
    double ratio[COMPARE_CONTENDERS_MAX][COMPARE_ROUNDS_MAX];
};

/* Measures, and prints a table. The first contender is the limit. */
void compare(const char *title, const char *unit, const struct contender *contenders, size_t count,
             struct comparison *ret_comparison);

/* Prints the ratio of one contender to another of the same comparison. */
void compare_others(const struct comparison *comparison, int of, int to, const char *what,
                    const char *goal);

double compare_median(const double *values, int count);
int64_t compare_now_ns(void);

#endif
