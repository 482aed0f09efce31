/* Calls that fail on purpose: memory and system calls, at every index of what a test does.
 *
 *     while (fail_next(FAIL_ONE))
 *         story();
 *
 * runs the story once for each of its calls, and makes that call fail; then a few more times
 * without a failure. The linker sends a test program's calls through wrappers (--wrap,
 * `failing_calls` in meson.build). failing_memory.c has those of the functions that allocate;
 * FAILING_CALL makes others. Only the calls of the thread that asked for failures count: the
 * library's own threads come and go. On a busy machine one of those may do what is otherwise done
 * by the thread that asked, so one run without a failure does not show that every call has had its
 * turn. */
#ifndef TESTS_SUPPORT_FAILING_H
#define TESTS_SUPPORT_FAILING_H

#include <limits.h>
#include <stdbool.h>

#define FAIL_TO_THE_END LONG_MAX

enum failing { FAIL_ONE, FAIL_ALL_AFTER };

/* Prepares the next run: the next call fails, or it and all calls after it. False when nothing
 * failed in the last runs: every call has had its turn, and none fails any more. */
bool fail_next(enum failing how);

/* Runs a story in both ways (enum failing). Fails the test if hardly any call could fail. */
void fail_at_every_index(void (*story)(void));

/* From now on the calls with these indices fail; the next call has the index 0. */
void fail_from_to(long first, long last);

/* Calls between these neither fail nor count. They nest. A run may end paused. */
void fail_pause(void);
void fail_resume(void);

/* Since the run was prepared: the number of calls, and whether one failed. */
long fail_calls(void);
bool fail_happened(void);

/* For a wrapper: counts the call. Returns true, with errno set, if it must fail. */
bool fail_now(int error);

#define FAILING_CALL(type, name, error, failure, parameters, arguments) \
    type __real_##name parameters;                                      \
    type __wrap_##name parameters;                                      \
    type __wrap_##name parameters {                                     \
        return fail_now(error) ? (failure) : __real_##name arguments;   \
    }

#endif
