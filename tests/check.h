/* check.h: the whole test framework. Include it, write tests, and the program is complete (main
 * is here; it and what it shares are weak, so that a program may have several such files):
 *
 *     #include "check.h"
 *
 *     TEST(a_released_lock_can_be_taken_again)
 *     {
 *         CHECK(lock());
 *         CHECK_EQ_INT(unlock(), 0);
 *     }
 *
 * Each test runs in a child process. That is what makes it sound with threads: a CHECK that fails,
 * on whichever thread, prints where and ends that process, so nothing runs on after the failure. A
 * crash, a data race, a leak or a hang likewise fails the one test that it happened in, and nothing
 * one test leaves behind reaches the next.
 *
 * Usage of a test program: prog [-t words] [argument...]. -t runs only the tests whose names
 * contain the words; the arguments are there for the tests as test_args[0 .. test_args_count-1].
 * The output is TAP: what a test printed, then one "ok" or "not ok" for it, in the order of the
 * file. A test that cannot be tried on this machine calls SKIP with the reason, which is reported
 * as "ok ... # SKIP reason" and counted apart.
 *
 * Two variables are for tests/run: HOLDFAST_TEST_JOBS is how many tests run at once (1), and
 * HOLDFAST_TEST_ONLY is the whole name of the one test to run. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* How many tests of this program may run at once, whatever tests/run asks for: 1 where they share a
 * server. Define it before the #include to change it. */
#ifndef TEST_JOBS_MOST
#define TEST_JOBS_MOST 1000
#endif

/* A test that takes longer than this hangs. Define it before the #include to change it. */
#ifndef TEST_TIMEOUT_S
#define TEST_TIMEOUT_S 120
#endif

struct test_case {
    char name[256];
    void (*run)(void);
    struct test_case *next;
    pid_t child;       /* 0: not started, or ended */
    int output;        /* the file that has what it prints */
    int status;        /* its exit status; -1: there is none */
    char *skip_reason; /* in memory that the child shares with us; empty if it was not skipped */
};

__attribute__((weak)) struct test_case *test_first;
__attribute__((weak)) struct test_case **test_end = &test_first;
__attribute__((weak)) int test_args_count;
__attribute__((weak)) char **test_args;
__attribute__((weak)) struct test_case *test_current; /* in the child that runs it */
/* Called when the arguments are known and no test has been chosen yet; a constructor may set it. */
__attribute__((weak)) void (*test_prepare)(void);

static void test_fail(const char *file, int line, const char *format, ...)
    __attribute__((unused, noreturn, format(printf, 3, 4)));
static void test_skip(const char *format, ...)
    __attribute__((unused, noreturn, format(printf, 1, 2)));
static void test_add(struct test_case *test);

#define SKIP(...) test_skip(__VA_ARGS__)

#define TEST(name)                                                                      \
    static void test_run_##name(void);                                                  \
    __attribute__((constructor)) static void test_add_##name(void) {                    \
        static struct test_case self = {#name, test_run_##name, NULL, 0, -1, -1, NULL}; \
        test_add(&self);                                                                \
    }                                                                                   \
    static void test_run_##name(void)

#define CHECK(condition)                                     \
    do {                                                     \
        if (!(condition))                                    \
            test_fail(__FILE__, __LINE__, "%s", #condition); \
    } while (0)

#define CHECK_EQ_INT(actual, expected)                                                        \
    do {                                                                                      \
        long long check_actual = (long long)(actual), check_expected = (long long)(expected); \
        if (check_actual != check_expected)                                                   \
            test_fail(__FILE__, __LINE__, "%s is %lld, not %s (%lld)", #actual, check_actual, \
                      #expected, check_expected);                                             \
    } while (0)

#define CHECK_EQ_STR(actual, expected)                                         \
    do {                                                                       \
        const char *check_actual = (actual), *check_expected = (expected);     \
        if (!test_same(check_actual, check_expected))                          \
            test_fail(__FILE__, __LINE__, "%s is \"%s\", not \"%s\"", #actual, \
                      check_actual ? check_actual : "(null)",                  \
                      check_expected ? check_expected : "(null)");             \
    } while (0)

__attribute__((unused)) static int test_same(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* The message is one write, so it stays whole if several threads fail at once. It calls _exit, not
 * exit, because other threads may be in the middle of anything. */
static void test_fail(const char *file, int line, const char *format, ...) {
    char text[2048];
    int used = snprintf(text, sizeof text, "# %s:%d: CHECK failed: ", file, line);
    if (used < 0 || (size_t)used >= sizeof text)
        used = 0;
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, sizeof text - (size_t)used - 1, format, args);
    va_end(args);
    strcat(text, "\n");
    if (write(STDOUT_FILENO, text, strlen(text)) < 0)
        _exit(2);
    _exit(1);
}

enum { TEST_REASON_SIZE = 256 };

static void test_skip(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(test_current->skip_reason, TEST_REASON_SIZE, format, args);
    va_end(args);
    exit(0);
}

/* Keeps the order of definition: constructors of one file run in that order. */
static void test_add(struct test_case *test) {
    for (char *c = test->name; *c; c++)
        if (*c == '_')
            *c = ' ';
    *test_end = test;
    test_end = &test->next;
}

/* The alarm's default action kills the child, whatever its threads wait for. */
static void test_start(struct test_case *test) {
    pid_t parent = getpid();
    test->output = memfd_create("output", MFD_CLOEXEC);
    void *shared =
        mmap(NULL, TEST_REASON_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (test->output < 0 || shared == MAP_FAILED)
        return;
    test->skip_reason = (char *)shared;
    test->child = fork();
    if (test->child != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || dup2(test->output, STDOUT_FILENO) < 0 ||
        dup2(test->output, STDERR_FILENO) < 0)
        _exit(2);
    alarm(TEST_TIMEOUT_S);
    test_current = test;
    test->run();
    exit(0);
}

/* Waits until one of the running tests ends. */
static void test_await_one(void) {
    int status;
    pid_t child = wait(&status);
    if (child < 0)
        abort();
    for (struct test_case *test = test_first; test; test = test->next) {
        if (test->child == child) {
            test->child = 0;
            test->status = status;
        }
    }
}

static void test_report(int number, const struct test_case *test) {
    char text[4096];
    ssize_t size;
    int status = test->status;
    for (off_t at = 0; (size = pread(test->output, text, sizeof text, at)) > 0; at += size)
        fwrite(text, 1, (size_t)size, stdout);
    close(test->output);
    const char *reason = status == 0 ? test->skip_reason : "";
    printf("%sok %d - %s%s%s\n", status == 0 ? "" : "not ", number, test->name,
           *reason ? " # SKIP " : "", reason);
    if (status == -1)
        printf("# could not start a process\n");
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        printf("# hung: \"%s\" had not ended after %d s\n", test->name, TEST_TIMEOUT_S);
    else if (WIFSIGNALED(status))
        printf("# killed by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (status != 0)
        printf("# exit status %d\n", WEXITSTATUS(status));
    fflush(stdout);
}

/* Keeps only the tests that must run; returns how many there are. */
static int test_select(const char *words, const char *only) {
    int count = 0;
    for (struct test_case **at = &test_first; *at;) {
        const char *name = (*at)->name;
        if ((words && !strstr(name, words)) || (only && strcmp(name, only) != 0)) {
            *at = (*at)->next;
        } else {
            at = &(*at)->next;
            count++;
        }
    }
    return count;
}

__attribute__((weak)) int main(int argc, char **argv) {
    const char *words = NULL, *jobs = getenv("HOLDFAST_TEST_JOBS");
    int first = 1;
    if (argc > 2 && strcmp(argv[1], "-t") == 0) {
        words = argv[2];
        first = 3;
    }
    test_args = argv + first;
    test_args_count = argc - first;
    if (test_prepare)
        test_prepare();

    int count = test_select(words, getenv("HOLDFAST_TEST_ONLY")), number = 0, failed = 0;
    int most = jobs && atoi(jobs) > 0 ? atoi(jobs) : 1, running = 0;
    if (most > TEST_JOBS_MOST)
        most = TEST_JOBS_MOST;
    printf("1..%d\n", count);
    fflush(stdout);
    struct test_case *next = test_first;
    for (struct test_case *test = test_first; test; test = test->next) {
        do {
            for (; next && running < most; next = next->next) {
                test_start(next);
                running += next->child > 0;
            }
            if (test->child > 0) {
                test_await_one();
                running--;
            }
        } while (test->child > 0);
        test_report(++number, test);
        failed += test->status != 0;
    }
    return failed || count == 0;
}

#endif
