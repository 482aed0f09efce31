/* A Redis server over streams that lead to the test: it reads commands. */
#ifndef TESTS_SUPPORT_FAKE_REDIS_H
#define TESTS_SUPPORT_FAKE_REDIS_H

#include "support/rig.h"

enum { SEEN_ARGUMENTS_MAX = 1000 };
struct seen {
    size_t count;
    const char *arguments[SEEN_ARGUMENTS_MAX]; /* each with a NUL behind it */
    size_t sizes[SEEN_ARGUMENTS_MAX];
};

/* The next command that was written to the stream; false when there is none. The program ends if
 * the bytes are no command. */
bool next_seen(struct fake_stream *stream, struct seen *ret);

/* The same in words, for a comparison: "AUTH jo secret", and for scripts "acquire holdfast:x",
 * "EVAL acquire holdfast:x": the script's name, and its first key (of renew, all). "" when there is
 * none. */
const char *next_command(struct fake_stream *stream);

/* A server for fake_serve that accepts everything; the context is the rig. It is also a sentinel,
 * which names m1 as the master, and a node of a Cluster, in which na has the lower half of the
 * slots and nb the upper. After a fail-over (rig.h) these are m2 instead of m1, and nc instead of
 * nb. */
void rig_serve(struct fake_stream *stream);

#endif
