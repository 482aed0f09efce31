/* Parts of the suite, by HOLDFAST_TEST_SLICE.
 *
 * "blocking" leaves out the form with a poll loop, unless HOLDFAST_TEST_MORE is set: for the second
 * scheme of a store, the second kind of nodes of a quorum, and a model of a server. Which of the
 * two forms a program uses is decided above the store.
 *
 * "transport" keeps, in the blocking form, the tests of the files above this one; so does "pooler",
 * for a transport that cannot notify a client of anything. A transport can lose, cut and reorder
 * what is under way, refuse a right, send a request to another server, or fail to report a wake-up.
 * It cannot change what a lease, a kind or a token means: the engine and the store's scripts decide
 * that, and they are the same everywhere. */
#include "suite.h"

static struct test_case **slice_end;

__attribute__((constructor)) static void end_slice(void) {
    slice_end = test_end;
}

static bool is_in_a_loop(const struct test_case *test) {
    static const char words[] = " in a poll loop";
    size_t size = strlen(test->name);
    return size >= sizeof words && strcmp(test->name + size + 1 - sizeof words, words) == 0;
}

static bool is_slice(const char *name) {
    const char *slice = getenv("HOLDFAST_TEST_SLICE");
    return slice && strcmp(slice, name) == 0;
}

static void take_slice(void) {
    if (is_slice("transport") || is_slice("pooler"))
        *slice_end = NULL;
    else if (!is_slice("blocking") || more() > 1)
        return;
    for (struct test_case **at = &test_first; *at;) {
        if (is_in_a_loop(*at))
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
}
