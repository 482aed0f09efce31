/* Which tests need features that not every store has. They are left out, as if they did not exist,
 * when a client reports that its store lacks the feature. This file comes last: it removes tests
 * that have been added. */
#include "suite.h"

static const char *const needs_queue[] = {
    "a look tells who holds and who waits",
    "a waiter gets the lock when it is released", /* without a queue, the first to ask gets it */
    "waiters are served in the order in which they came",
    "a released lock is kept for who waits",
    "waiters keep their places beyond the wait lease",
    "a waiting writer is not overtaken by later readers",
    "readers behind a writer enter together",
    "many permits are not starved by few",
    "permits are handed to all who fit",
    "who times out does not stand in the way",
    "who cancels does not stand in the way",
    "a client that closes does not stand in the way",
    "a child has no part in its parents locks",
    "cancelling gives up every name",
};

static const char *const needs_barging[] = {
    "barging takes what fits ahead of the queue",
    "who barges waits at the front",
};

static const char *const needs_lease_each[] = {
    "a renewal may lengthen the lease and never shortens it",
    "a check asks for the time that is needed",
    "several with too little time left are released",
};

static const char *const needs_permits[] = {
    "a name in use as another kind is refused with what it is",
    "permits are counted by weight",
    "a name may change its kind when nobody has it",
    "only all of a lock is exclusive",
    "an ended permit lets the next in beside those that live",
    "renewal keeps many locks for several leases",
    "a look tells the kind",
    "permits are not counted up beyond what is held",
    "several names may be of any kind",
    "a name of another kind leaves all the others free",
    "a look tells who holds and who waits",
    "many permits are not starved by few",
    "permits are handed to all who fit",
    "a barrier opens when all are there and again",
    "a dead party is not counted once its lease has ended",
    "a party that lost its place takes another",
    "who entered a double barrier together leaves together",
    "a party that is gone does not keep the others from leaving",
};

static const char *const needs_floor[] = {
    "tokens are not below the floor that was set",
};

static const char *const needs_push[] = {
    "what is taken and released at once is reported",
    "a break is reported with its time by whom and why",
    "who waits and gets it or leaves is reported",
    "shares are reported",
    "permits are reported",
    "a thousand changes arrive in their order",
    "each of two watchers sees its own names",
    "a watch ends when it is cancelled and another can begin",
    "a client that is closed ends its watch",
};

/* Hundreds of holds, leases that others see, or an inspection that sees the release before it:
 * these do not work where each hold has its own connection. */
static const char *const needs_leases[] = {
    "a holder is promised no more time than the store granted",
    "a renewal may lengthen the lease and never shortens it",
    "more time than the lease is never left",
    "ten thousand acquires may be in flight",
    "a list comes in pages in the order of the names",
    "names may have every byte but nul",
    "several with too little time left are released",
    "the end of a dead leaders lease is observed",
};

static const char *const needs_counters[] = {
    "a counter adds up what all clients add",
    "a swapped counter answers with what was there",
    "a removed counter answers with what was there",
    "a counter is set only if it is as expected",
    "a counter and a lock of one name leave each other alone",
    "a counter may have every byte in its name",
    "a counter does not leave its range",
    "the expiry is set when a counter is created and kept",
    "a counter without expiry does not get one",
    "an expired counter is gone and not before",
    "a counter removed and made again has a new expiry",
    "threads of one client add up to the exact sum",
    "clients add up to the exact sum",
    "compare and set from many clients loses nothing",
    "operations of a client on a counter keep their order",
    "a cancelled count is over and the next goes on",
    "a count may be freed before its answer",
    "counts of a closed client have ended",
    "counts with bad arguments are refused",
    "counts in a forked child are refused",
    "a latch opens when all have counted down and stays open",
    "waiting for a latch ends when the client is cancelled",
    "a barrier opens when all are there and again",
    "a dead party is not counted once its lease has ended",
    "a party that lost its place takes another",
    "who entered a double barrier together leaves together",
    "a party that is gone does not keep the others from leaving",
    "a fixed window lets its rate through and says when it ends",
    "a fixed window lets twice the rate through around its end",
    "a fixed window cannot be waited for",
    "a counter without an end is no limiter",
};

static const char *const needs_expiry[] = {
    "the expiry is set when a counter is created and kept",
    "a counter without expiry does not get one",
    "an expired counter is gone and not before",
    "a counter removed and made again has a new expiry",
    "a fixed window lets its rate through and says when it ends",
    "a fixed window lets twice the rate through around its end",
    "a counter without an end is no limiter",
};

static const char *const needs_keeping[] = {
    "a kept lock outlasts its hold and its client",
    "a kept lock is free when its lease ends",
    "a kept lock can be released",
    "a kept lock that nobody took from its call stays held",
    "a wait for a kept lock that is given up leaves nothing",
    "a limiter lets its rate through and says how long to wait",
    "a limiter does not get back what a closed client used",
    "a limiter lets nobody through early",
    "a limiter that is waited for in vain says how long it would take",
    "a limiter with another rate is refused while the first is in use",
    "a window beyond the longest lease needs a client that permits it",
    "a limiter with bad arguments is refused",
};

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

static void check_exists(const char *name) {
    const struct test_case *at = test_first;
    while (at && !starts_with(at->name, name))
        at = at->next;
    if (!at)
        test_fail(__FILE__, __LINE__, "there is no test \"%s\"", name);
}

static void leave_out(const char *name) {
    for (struct test_case **at = &test_first; *at;) {
        if (starts_with((*at)->name, name))
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
}

enum {
    LACKS_QUEUE = 1,
    LACKS_PERMITS = 2,
    LACKS_PUSH = 4,
    LACKS_BARGING = 8,
    LACKS_LEASE_EACH = 16,
    LACKS_LEASES = 32,
    LACKS_FLOOR = 64,
    LACKS_COUNTERS = 128,
    LACKS_EXPIRY = 256,
    LACKS_KEEPING = 512
};

/* Whether counters may have an expiry. It asks with a removal, which creates nothing. */
static bool counters_expire(hf_client *client) {
    hf_count_options options = HF_COUNT_OPTIONS_INIT;
    options.op = HF_COUNT_REMOVE;
    options.expiry_ms = 1;
    options.wait_ms = PATIENCE_MS;
    return hf_count(client, fresh_name("expiry"), &options, NULL) != HF_UNSUPPORTED;
}

/* Asks a client in a separate process, which leaves nothing behind for the tests. */
static int what_the_store_lacks(void) {
    int ends[2], lacks = 0;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        hf_client *client = open_client();
        const hf_store_info *store = hf_client_store(client);
        lacks = (store->queues ? 0 : LACKS_QUEUE) | (store->permits ? 0 : LACKS_PERMITS) |
                (store->pushes && !is_slice("pooler") ? 0 : LACKS_PUSH) |
                (store->queues && store->barges ? 0 : LACKS_BARGING) |
                (store->lease_each ? 0 : LACKS_LEASE_EACH) |
                (store->token_floor ? 0 : LACKS_FLOOR) | (store->session_bound ? LACKS_LEASES : 0) |
                (store->counts ? 0 : LACKS_COUNTERS) | (store->keeps ? 0 : LACKS_KEEPING);
        lacks |= store->counts && !counters_expire(client) ? LACKS_EXPIRY : 0;
        exit(write(ends[1], &lacks, sizeof lacks) != sizeof lacks);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(read(ends[0], &lacks, sizeof lacks) == sizeof lacks);
    close(ends[0]);
    close(ends[1]);
    return lacks;
}

static void leave_out_what_the_store_lacks(void) {
    static const struct {
        int lack;
        const char *const *tests;
        size_t count;
    } needs[] = {
        {LACKS_QUEUE, needs_queue, sizeof needs_queue / sizeof *needs_queue},
        {LACKS_PERMITS, needs_permits, sizeof needs_permits / sizeof *needs_permits},
        {LACKS_PUSH, needs_push, sizeof needs_push / sizeof *needs_push},
        {LACKS_BARGING, needs_barging, sizeof needs_barging / sizeof *needs_barging},
        {LACKS_LEASE_EACH, needs_lease_each, sizeof needs_lease_each / sizeof *needs_lease_each},
        {LACKS_LEASES, needs_leases, sizeof needs_leases / sizeof *needs_leases},
        {LACKS_FLOOR, needs_floor, sizeof needs_floor / sizeof *needs_floor},
        {LACKS_COUNTERS, needs_counters, sizeof needs_counters / sizeof *needs_counters},
        {LACKS_EXPIRY, needs_expiry, sizeof needs_expiry / sizeof *needs_expiry},
        {LACKS_KEEPING, needs_keeping, sizeof needs_keeping / sizeof *needs_keeping},
    };
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        for (size_t j = 0; j < needs[i].count; j++)
            check_exists(needs[i].tests[j]);
    }
    int lacks = what_the_store_lacks();
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        for (size_t j = 0; lacks & needs[i].lack && j < needs[i].count; j++)
            leave_out(needs[i].tests[j]);
    }
    if (!(lacks & LACKS_PUSH) || is_slice("pooler"))
        leave_out("a store that does not push refuses to watch");
    if (!(lacks & LACKS_COUNTERS))
        leave_out("a store without counters refuses");
    if (!(lacks & LACKS_EXPIRY))
        leave_out("counters that cannot expire refuse an expiry");
    if (!(lacks & LACKS_KEEPING)) {
        leave_out("a store whose locks depend on their client refuses to keep them");
        leave_out("a limiter on a store that keeps no permits is refused");
    }
    take_slice();
}

__attribute__((constructor)) static void prepare(void) {
    test_prepare = leave_out_what_the_store_lacks;
}
