/* See compare.h. */
#include "compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int compare_rounds = 11;

int64_t compare_now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double compare_median(const double *values, int count) {
    double sorted[COMPARE_ROUNDS_MAX];
    memcpy(sorted, values, (size_t)count * sizeof(*values));
    qsort(sorted, (size_t)count, sizeof(*sorted), by_value);
    return sorted[count / 2];
}

static void run_round(const struct contender *contenders, size_t count, int round,
                      struct comparison *c) {
    double before = contenders[0].slice(contenders[0].arg), sum = before;
    for (size_t i = 1; i < count; i++) {
        double value = contenders[i].slice(contenders[i].arg);
        double after = contenders[0].slice(contenders[0].arg);
        c->value[i][round] = value;
        c->ratio[i][round] = value / ((before + after) / 2);
        sum += before = after;
    }
    c->value[0][round] = sum / (double)count;
    c->ratio[0][round] = 1;
}

static void heading(const char *text, const char *unit) {
    printf("\n%-58s %10s   to the limit (quartiles)   goal\n", text, unit);
}

static void print_ratio(const char *what, const double *values, const double *ratios,
                        const char *goal) {
    double sorted[COMPARE_ROUNDS_MAX];
    memcpy(sorted, ratios, (size_t)compare_rounds * sizeof(*ratios));
    qsort(sorted, (size_t)compare_rounds, sizeof(*sorted), by_value);
    printf("  %-56s ", what);
    if (values)
        printf("%10.1f   ", compare_median(values, compare_rounds));
    else
        printf("%10s   ", "");
    printf("%6.2f  (%.2f to %.2f)   %s\n", sorted[compare_rounds / 2], sorted[compare_rounds / 4],
           sorted[compare_rounds - 1 - compare_rounds / 4], goal ? goal : "");
}

void compare(const char *title, const char *unit, const struct contender *contenders, size_t count,
             struct comparison *ret) {
    for (size_t i = 0; i < count; i++)
        contenders[i].slice(contenders[i].arg); /* to warm up */
    for (int round = 0; round < compare_rounds; round++)
        run_round(contenders, count, round, ret);
    heading(title, unit);
    for (size_t i = 0; i < count; i++)
        print_ratio(contenders[i].what, ret->value[i], ret->ratio[i], contenders[i].goal);
}

void compare_others(const struct comparison *c, int of, int to, const char *what,
                    const char *goal) {
    double ratios[COMPARE_ROUNDS_MAX] = {0};
    for (int i = 0; i < compare_rounds; i++)
        ratios[i] = c->value[of][i] / c->value[to][i];
    print_ratio(what, NULL, ratios, goal);
}
