/* Which call fails: see failing.h. */
#include "support/failing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { QUIET_RUNS = 3 }; /* after this many without a failure, every call has had its turn */

static _Thread_local struct {
    bool armed, happened;
    bool repeats; /* a run has been prepared by fail_next */
    int quiet;    /* runs of fail_next without a failure, in a row */
    int paused;
    long calls, first, last;
} failing;

bool fail_now(int error) {
    if (!failing.armed || failing.paused)
        return false;
    long index = failing.calls++;
    if (index < failing.first || index > failing.last)
        return false;
    failing.happened = true;
    errno = error;
    return true;
}

void fail_from_to(long first, long last) {
    failing.armed = true;
    failing.happened = failing.repeats = false;
    failing.paused = 0;
    failing.calls = 0;
    failing.first = first;
    failing.last = last;
}

bool fail_next(enum failing how) {
    bool is_quiet = failing.repeats && !failing.happened;
    failing.quiet = is_quiet ? failing.quiet + 1 : 0;
    if (failing.quiet == QUIET_RUNS) {
        failing.armed = failing.repeats = false;
        failing.quiet = 0;
        return false;
    }
    long index = !failing.repeats ? 0 : is_quiet ? failing.first : failing.first + 1;
    fail_from_to(index, how == FAIL_ONE ? index : FAIL_TO_THE_END);
    failing.repeats = true;
    return true;
}

void fail_at_every_index(void (*story)(void)) {
    long failures = 0;
    for (enum failing how = FAIL_ONE; how <= FAIL_ALL_AFTER; how++) {
        while (fail_next(how)) {
            story();
            failures += failing.happened;
        }
    }
    printf("# %ld failures\n", failures);
    if (failures >= 6)
        return;
    printf("# these are too few: do the calls go through the wrappers?\n");
    exit(1);
}

void fail_pause(void) {
    failing.paused++;
}

void fail_resume(void) {
    failing.paused--;
}

long fail_calls(void) {
    return failing.calls;
}

bool fail_happened(void) {
    return failing.happened;
}
