/* Which tests need what not every store has. They are left out, as if they were not there, where HOLDFAST_TEST_LACKS
 * says so. This file comes last: it takes tests out that have been added. */
#include "suite.h"

static const char *const needs_queue[] = {
    "a look tells who holds and who waits",
    "a waiter gets the lock when it is released", /* the first come does */
    "waiters are served in the order in which they came",
    "a released lock is kept for who waits",
    "waiters keep their places beyond the wait lease",
    "a waiting writer is not overtaken by later readers",
    "readers behind a writer enter together",
    "many permits are not starved by few",
    "permits are handed to all who fit",
    "barging takes what fits ahead of the queue",
    "who barges waits at the front",
    "who times out does not stand in the way",
    "who cancels does not stand in the way",
    "a client that closes does not stand in the way",
    "a child has no part in its parents locks",
    "cancelling gives up every name",
};

static const char *const needs_max_lease[] = {
    "the options of the client bound its leases",
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
};

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

static void leave_out(const char *name) {
    bool found = false;
    for (struct test_case **at = &test_first; *at;) {
        if (!starts_with((*at)->name, name)) {
            at = &(*at)->next;
            continue;
        }
        found = true;
        *at = (*at)->next;
    }
    if (!found)
        test_fail(__FILE__, __LINE__, "there is no test \"%s\"", name);
}

__attribute__((constructor)) static void leave_out_what_the_store_lacks(void) {
    for (size_t i = 0; lacks("queue") && i < sizeof needs_queue / sizeof *needs_queue; i++)
        leave_out(needs_queue[i]);
    for (size_t i = 0; lacks("permits") && i < sizeof needs_permits / sizeof *needs_permits; i++)
        leave_out(needs_permits[i]);
    for (size_t i = 0; lacks("max_lease") && i < sizeof needs_max_lease / sizeof *needs_max_lease;
         i++)
        leave_out(needs_max_lease[i]);
    take_slice();
}
