/* The conformance suite: the whole contract of holdfast.h, through that header only, on whatever
 * store the URL names.
 *
 *     conformance [-t words] URL [SCALE]
 *
 * Each part is a separate file in conformance/; check.h makes one C file a program, and this is
 * that file. A store's own test starts its server, if it has one, and runs this program with the
 * URL.
 *
 * The whole suite runs once for each store. Where a store is reached in other ways (a socket, TLS,
 * sentinels, a cluster) or has a second scheme, HOLDFAST_TEST_SLICE names what that can change: see
 * slice.c. */
// NOLINTBEGIN(bugprone-suspicious-include)

/* Tests that send many kinds of messages, break connections, or ask several servers. */
#include "conformance/break.c"
#include "conformance/calls.c"
#include "conformance/counters.c"
#include "conformance/examine.c"
#include "conformance/fork.c"
#include "conformance/look.c"
#include "conformance/queue.c"
#include "conformance/several.c"
#include "conformance/watch.c"
#include "conformance/witness.c"

#include "conformance/slice.c"

/* Tests of what the engine or the store decides, however they are connected. */
#include "conformance/holds.c"
#include "conformance/input.c"
#include "conformance/keep.c"
#include "conformance/kinds.c"
#include "conformance/leases.c"
#include "conformance/limit.c"
#include "conformance/names.c"
#include "conformance/recipes.c"
#include "conformance/reentrancy.c"
#include "conformance/tokens.c"

#include "conformance/needs.c"
// NOLINTEND(bugprone-suspicious-include)
