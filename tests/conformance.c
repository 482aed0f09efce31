/* The conformance suite: the whole contract of holdfast.h, through that header only, on whatever store the
 * URL names.
 *
 *     conformance [-t words] URL [SCALE]
 *
 * Each part is a file of its own in conformance/; check.h makes one C file a program, and this is it. A
 * store's own test starts its server, if it has one, and runs this program with the URL. */
// NOLINTBEGIN(bugprone-suspicious-include)
#include "conformance/break.c"
#include "conformance/calls.c"
#include "conformance/examine.c"
#include "conformance/fork.c"
#include "conformance/holds.c"
#include "conformance/input.c"
#include "conformance/kinds.c"
#include "conformance/leases.c"
#include "conformance/look.c"
#include "conformance/queue.c"
#include "conformance/reentrancy.c"
#include "conformance/several.c"
#include "conformance/tokens.c"
#include "conformance/witness.c"

#include "conformance/needs.c"
// NOLINTEND(bugprone-suspicious-include)
