/* A world whose streams lead to the test. What is sent is kept for the test to read, in the order
 * and in the writes in which it would have gone out. The test plays the server: it accepts, answers
 * and hangs up. The clock stands still except in fake_pass_us, where all timers run at their times.
 * Code that loops without time passing ends the program: no test hangs, and a busy loop is a
 * failure. */
#ifndef TESTS_SUPPORT_FAKE_STREAMS_H
#define TESTS_SUPPORT_FAKE_STREAMS_H

#include "world/world.h"

struct fake_stream {
    struct world_stream *owner; /* NULL: it has ended */
    void *context;              /* of fake_serve */
    int64_t opened_us;          /* when it was asked for */
    bool accepted, shown;       /* by the server; to the server */
    char *bytes;                /* what was sent, */
    size_t size, room;          /* all of it, */
    size_t written, writes;     /* how much of it was written, in how many writes, */
    size_t read;                /* and how much of it the test has looked at */
};

/* Close it with world_close. NULL when there is no memory. */
struct world *fake_world(void);

/* Every stream that was opened since the beginning, the first is 0. */
size_t fake_stream_count(struct world *world);
struct fake_stream *fake_stream(struct world *world, size_t index);
/* The last of those that are open, or being opened; NULL: none. */
struct fake_stream *fake_last(struct world *world);

/* What the server does. The stream must not have ended. */
void fake_accept(struct fake_stream *stream);
void fake_answer(struct fake_stream *stream, const void *bytes, size_t size);
void fake_answer_text(struct fake_stream *stream, const char *text);
void fake_hang_up(struct fake_stream *stream, const char *why);

/* A server that works on its own: `server` is called, with `context`, for each stream that is open
 * or being opened whenever there is something new. It may call the functions above for that stream.
 * NULL: none from now on. */
void fake_serve(struct world *world, void (*server)(struct fake_stream *stream), void *context);

/* Runs what is due now, and writes what was sent. */
void fake_settle(struct world *world);

/* Lets time pass. Everything that becomes due is done at its time. */
void fake_pass_us(struct world *world, int64_t us);

/* Opening, or sending, fails with this error from now on; HF_OK: works again. */
void fake_fail_open(struct world *world, int error);
void fake_fail_send(struct world *world, int error);

#endif
