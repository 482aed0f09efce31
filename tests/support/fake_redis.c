#include "support/fake_redis.h"

#include "store/redis/scripts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A number and the end of its line. */
static size_t take_size(struct fake_stream *stream, char mark) {
    char *at = stream->bytes + stream->read, *end;
    assert(stream->read < stream->written && *at == mark);
    unsigned long long size = strtoull(at + 1, &end, 10);
    assert(end > at + 1 && end[0] == '\r' && end[1] == '\n');
    stream->read += (size_t)(end + 2 - at);
    return size;
}

/* The store writes whole commands: what begins here also ends here. */
bool next_seen(struct fake_stream *stream, struct seen *ret) {
    if (stream->read >= stream->written)
        return false;
    ret->count = take_size(stream, '*');
    assert(ret->count > 0 && ret->count <= SEEN_ARGUMENTS_MAX);
    for (size_t i = 0; i < ret->count; i++) {
        ret->sizes[i] = take_size(stream, '$');
        assert(stream->read + ret->sizes[i] + 2 <= stream->written);
        char *argument = stream->bytes + stream->read, *end = argument + ret->sizes[i];
        assert(end[0] == '\r' && end[1] == '\n');
        *end = 0;
        ret->arguments[i] = argument;
        stream->read += ret->sizes[i] + 2;
    }
    return true;
}

static int script_of(const struct seen *seen) {
    bool whole = strcmp(seen->arguments[0], "EVAL") == 0;
    if (!whole && strcmp(seen->arguments[0], "EVALSHA") != 0)
        return -1;
    for (int i = 0; i < REDIS_SCRIPTS; i++) {
        const struct redis_script *script = &redis_scripts[i];
        if (whole ? seen->sizes[1] == script->size &&
                        memcmp(seen->arguments[1], script->text, script->size) == 0
                  : strcmp(seen->arguments[1], script->sha1) == 0)
            return i;
    }
    return -1; /* a script that only tests the permission to run scripts */
}

const char *next_command(struct fake_stream *stream) {
    static char text[4096];
    static struct seen seen;
    size_t size = 0;
    text[0] = 0;
    if (!next_seen(stream, &seen))
        return text;
    int script = script_of(&seen);
    size_t from = 0, to = seen.count;
    if (script >= 0) {
        size = (size_t)snprintf(text, sizeof(text), "%s%s",
                                strcmp(seen.arguments[0], "EVAL") == 0 ? "EVAL " : "",
                                redis_scripts[script].name);
        from = 3;
        to = script == REDIS_RENEW ? 3 + strtoul(seen.arguments[2], NULL, 10) : 4;
    }
    for (size_t i = from; i < to && size < sizeof(text); i++)
        size += (size_t)snprintf(text + size, sizeof(text) - size, "%s%s", size ? " " : "",
                                 seen.arguments[i]);
    return text;
}

#define OWNER "00112233445566778899aabbccddeeff-1"

static void answer_script(struct fake_stream *stream, const struct seen *seen, int script) {
    char text[4096] = "*";
    switch (script) {
    case REDIS_ACQUIRE:
        fake_answer_text(stream, strcmp(seen->arguments[3], "holdfast:busy") == 0
                                     ? "*4\r\n$6\r\nqueued\r\n:100\r\n:0\r\n:0\r\n"
                                     : "*2\r\n$4\r\ndone\r\n$1\r\n5\r\n");
        break;
    case REDIS_RENEW:
        snprintf(text, sizeof(text), "*%s\r\n", seen->arguments[2]);
        for (unsigned long i = strtoul(seen->arguments[2], NULL, 10); i > 0; i--)
            strcat(text, ":1\r\n");
        fake_answer_text(stream, text);
        break;
    case REDIS_COUNT:
        fake_answer_text(stream, "$9\r\ndone 5 -1\r\n");
        break;
    case REDIS_LOOK: /* held exclusively, and somebody waits */
        fake_answer_text(stream, "*6\r\n$16\r\n1700000000000000\r\n$34\r\n" OWNER "\r\n:5000\r\n"
                                 "*6\r\n$1\r\n5\r\n$34\r\n" OWNER "\r\n$1\r\nm\r\n"
                                 "$33\r\n1 1700000000000000 7 4 4 heretest\r\n$-1\r\n"
                                 "$26\r\n1600000000000000 3 2 mewhy\r\n*0\r\n"
                                 "*2\r\n$34\r\n" OWNER "\r\n"
                                 "$50\r\n1800000000000000 1 1700000000000000 7 4 4 heretest\r\n");
        break;
    default:
        fake_answer_text(stream, ":1\r\n");
    }
}

/* Answers commands that only a server that is one of several gets. False: this is not such a
 * command. */
static bool answer_for_all(struct rig *rig, struct fake_stream *stream, const struct seen *seen) {
    static const char info[] = "role:master\r\nslave0:ip=m3,port=1,state=online,offset=1,lag=9";
    static const char nodes[] = "A na:7001@1 master - 0 0 1 connected 0-8191\n"
                                "B nb:7002@1 slave A 0 0 1 connected\n";
    const char *second = seen->count > 1 ? seen->arguments[1] : "", *bulk = NULL;
    char text[300];
    if (strcmp(second, "GET-MASTER-ADDR-BY-NAME") == 0)
        fake_answer_text(stream, rig->failed_over ? "*2\r\n$2\r\nm2\r\n$4\r\n6380\r\n"
                                                  : "*2\r\n$2\r\nm1\r\n$4\r\n6380\r\n");
    else if (strcmp(second, "MASTER") == 0)
        fake_answer_text(stream,
                         "*4\r\n$6\r\nquorum\r\n:2\r\n$19\r\nnum-other-sentinels\r\n:3\r\n");
    else if (strcmp(seen->arguments[0], "ROLE") == 0)
        fake_answer_text(stream, "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n");
    else if (strcmp(second, "SLOTS") == 0)
        fake_answer_text(stream,
                         rig->failed_over
                             ? "*2\r\n*3\r\n:0\r\n:8191\r\n*3\r\n$2\r\nna\r\n:7001\r\n$1\r\nA\r\n"
                               "*3\r\n:8192\r\n:16383\r\n*3\r\n$2\r\nnc\r\n:7003\r\n$1\r\nC\r\n"
                             : "*2\r\n*3\r\n:0\r\n:8191\r\n*3\r\n$2\r\nna\r\n:7001\r\n$1\r\nA\r\n"
                               "*3\r\n:8192\r\n:16383\r\n*3\r\n$2\r\nnb\r\n:7002\r\n$1\r\nB\r\n");
    else if (strcmp(seen->arguments[0], "INFO") == 0)
        bulk = info;
    else if (strcmp(seen->arguments[0], "CLUSTER") == 0)
        bulk = strcmp(second, "NODES") == 0 ? nodes : "cluster_state:ok\r\n";
    else
        return false;
    if (bulk) {
        snprintf(text, sizeof(text), "$%zu\r\n%s\r\n", strlen(bulk), bulk);
        fake_answer_text(stream, text);
    }
    return true;
}

static void answer(struct rig *rig, struct fake_stream *stream, const struct seen *seen) {
    int script = script_of(seen);
    char text[300];
    rig->served++;
    if (script >= 0 && rig->error) {
        fake_answer_text(stream, rig->error);
        rig->error = NULL;
    } else if (script < 0 && answer_for_all(rig, stream, seen)) {
        return;
    } else if (script >= 0 && strcmp(seen->arguments[0], "EVALSHA") == 0 && !rig->knows_scripts) {
        fake_answer_text(stream, "-NOSCRIPT No matching script. Please use EVAL.\r\n");
    } else if (script >= 0) {
        answer_script(stream, seen, script);
    } else if (strcmp(seen->arguments[0], "SCAN") == 0) {
        fake_answer_text(stream, strcmp(seen->arguments[1], "0") == 0
                                     ? "*2\r\n$1\r\n9\r\n*2\r\n$10\r\nholdfast:y\r\n$1\r\nz\r\n"
                                     : "*2\r\n$1\r\n0\r\n*1\r\n$10\r\nholdfast:x\r\n");
    } else if (strcmp(seen->arguments[0], "SUBSCRIBE") == 0) {
        for (size_t i = 1; i < seen->count && stream->owner; i++) {
            snprintf(text, sizeof(text), "*3\r\n$9\r\nsubscribe\r\n$%zu\r\n%s\r\n:1\r\n",
                     seen->sizes[i], seen->arguments[i]);
            fake_answer_text(stream, text);
        }
    } else if (strcmp(seen->arguments[0], "PING") == 0) {
        fake_answer_text(stream, "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    } else if (strcmp(seen->arguments[0], "WAIT") == 0) {
        fake_answer_text(stream, ":1\r\n");
    } else if (strcmp(seen->arguments[0], "PEXPIRE") == 0) {
        fake_answer_text(stream, rig->extended ? rig->extended : ":1\r\n");
        rig->extended = NULL;
    } else {
        fake_answer_text(stream, "+OK\r\n");
    }
}

/* What the store sends while it processes a reply is not written yet: it comes in the next turn. */
void rig_serve(struct fake_stream *stream) {
    static struct seen seen;
    if (!stream->accepted)
        fake_accept(stream);
    while (stream->owner && next_seen(stream, &seen))
        answer(stream->context, stream, &seen);
}
