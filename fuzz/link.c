/* A server that sends and does anything, while a store has operations in flight: each completes
 * once, with a possible outcome, and nothing crashes or hangs. The input is a play: what the server
 * and the client do, one after the other. */
#include "support/fake_redis.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { ASKED_MAX = 64, STREAMS_MAX = 200 };

struct play {
    const uint8_t *data;
    size_t left;
    struct rig rig;
    struct asked *asked[ASKED_MAX];
    size_t count;
    struct asked *held, *shared;
};

static uint8_t take(struct play *play) {
    if (!play->left)
        return 0;
    play->left--;
    return *play->data++;
}

/* ---- The client ---- */

static void ask(struct play *play, unsigned what) {
    static const char *const names[] = {"x", "x}y", "{t}z"};
    if (play->count == ASKED_MAX)
        return;
    struct asked *asked = calloc(1, sizeof(*asked));
    assert(asked);
    play->asked[play->count++] = asked;
    const char *name = names[what / 8 % 3];
    switch (what % 8) {
    case 0:
    case 1:
        ask_acquire(&play->rig, asked, name, what & 1 ? STORE_WAIT : 0);
        break;
    case 2:
        ask_release(&play->rig, asked, name);
        break;
    case 3:
        ask_break(&play->rig, asked, name, 5);
        break;
    case 4:
        ask_inspect(&play->rig, asked, name);
        break;
    case 5:
        ask_list(&play->rig, asked, "", 1 + what / 8);
        break;
    default:
        ask_renew(&play->rig, asked, (struct asked *[]){play->held, play->shared, NULL, play->held},
                  1 + what / 8 % 4);
    }
}

/* ---- The server ---- */

/* Helps a play to get further. */
static const char *const lines[] = {
    "+OK\r\n",
    ":0\r\n",
    ":1\r\n",
    "-NOSCRIPT No matching script.\r\n",
    "-READONLY You can't write\r\n",
    "-WRONGTYPE Operation\r\n",
    "*2\r\n$4\r\ndone\r\n$1\r\n5\r\n",
    "*4\r\n$6\r\nqueued\r\n:100\r\n:0\r\n:0\r\n",
    "*2\r\n$1\r\n0\r\n*2\r\n$10\r\nholdfast:x\r\n$10\r\nholdfast:y\r\n",
    "*2\r\n$1\r\n7\r\n*1\r\n$10\r\nholdfast:z\r\n",
    "*1\r\n:1\r\n",
    "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n",
    "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nw1\r\n",
    "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\ng1\r\n",
    "*6\r\n$16\r\n1700000000000000\r\n",
    "$34\r\n00112233445566778899aabbccddeeff-1\r\n",
    "$33\r\n1 1700000000000000 7 4 4 heretest\r\n",
    "$50\r\n1800000000000000 1 1700000000000000 7 4 4 heretest\r\n",
    "*6\r\n$1\r\n5\r\n",
    "$3\r\n=p5\r\n",
    "$-1\r\n",
    "*0\r\n",
    ":9223372036854775807\r\n",
    ":-9223372036854775808\r\n",
    "*4\r\n$6\r\nqueued\r\n",
    "*2\r\n$4\r\ndone\r\n",
    "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n",
};

/* One of the streams that are open, or being opened; NULL: none is. */
static struct fake_stream *some_stream(struct play *play, unsigned which) {
    struct fake_stream *found = NULL;
    for (size_t i = 0; i < fake_stream_count(play->rig.world); i++) {
        struct fake_stream *stream = fake_stream(play->rig.world, i);
        if (stream->owner && (!found || which & 1))
            found = stream;
    }
    return found;
}

static void answer(struct play *play, struct fake_stream *stream, unsigned what) {
    char bytes[256];
    size_t size = take(play);
    if (what < 4) {
        fake_answer_text(stream, lines[size % (sizeof(lines) / sizeof(lines[0]))]);
        return;
    }
    size = size < play->left ? size : play->left;
    memcpy(bytes, play->data, size);
    play->data += size;
    play->left -= size;
    fake_answer(stream, bytes, size);
}

static void act(struct play *play) {
    unsigned act = take(play);
    struct fake_stream *stream = some_stream(play, act >> 4);
    switch (act % 16) {
    case 0:
        fake_pass_us(play->rig.world, INT64_C(20000) * take(play));
        break;
    case 1:
    case 2:
        ask(play, take(play));
        break;
    case 3:
        if (stream)
            fake_hang_up(stream, "hung up");
        break;
    default:
        if (stream && !stream->accepted)
            fake_accept(stream);
        else if (stream)
            answer(play, stream, act % 8);
    }
}

/* ---- What must be so ---- */

static void check_outcome(const struct asked *asked) {
    const struct store_op *op = &asked->op;
    assert(asked->completions == 1);
    if (op->type == STORE_ACQUIRE && op->outcome == STORE_DONE)
        assert(op->token > 0 && op->token < STORE_TOKEN_LIMIT);
    if (op->type == STORE_ACQUIRE && op->outcome == STORE_QUEUED)
        assert(op->left_us >= 0);
    if (op->outcome == STORE_NOT_YOURS)
        assert(op->type == STORE_RELEASE || op->type == STORE_BREAK);
    if (op->outcome == STORE_QUEUED)
        assert(op->type == STORE_ACQUIRE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct asked held, shared;
    struct play play = {.data = data, .left = size, .held = &held, .shared = &shared};
    make_acquire(&held, "held", 0);
    make_acquire(&shared, "shared", 0);
    make_share(&shared);
    rig_open(&play.rig, take(&play) & 1 ? "redis://jo:secret@localhost/3" : "redis://localhost");
    ask(&play, take(&play));
    while (play.left && fake_stream_count(play.rig.world) < STREAMS_MAX)
        act(&play);
    rig_close_store(&play.rig);
    for (size_t i = 0; i < play.count; i++) {
        check_outcome(play.asked[i]);
        asked_clear(play.asked[i]);
        free(play.asked[i]);
    }
    rig_close(&play.rig);
    return 0;
}
