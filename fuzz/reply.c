/* Arbitrary bytes from a server, in any pieces: the replies read from them are sound and within the
 * limits, and are the same however the bytes were cut. */
#include "store/redis/reply.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The first byte says how the rest is cut: in pieces of that many bytes, or (0) not at all. */
static size_t piece_of(size_t cut, size_t left) {
    return cut && cut < left ? cut : left;
}

/* A hash of a reply, so that two readings can be compared. Counts its elements. */
static uint64_t digest(const struct reply *reply, size_t *elements) {
    uint64_t sum = (uint64_t)reply->type * 31 + (uint64_t)reply->integer;
    assert(++*elements <= REPLY_ELEMENTS_MAX);
    assert(reply->type >= REPLY_NIL && reply->type <= REPLY_ARRAY);
    assert(reply->text[reply->size] == 0);
    assert(reply->type == REPLY_ARRAY || reply->count == 0);
    for (size_t i = 0; i < reply->size; i++)
        sum = sum * 31 + (unsigned char)reply->text[i];
    for (size_t i = 0; i < reply->count; i++) {
        assert(reply->items[i] && reply_at(reply, i) == reply->items[i]);
        sum = sum * 31 + digest(reply->items[i], elements);
    }
    assert(reply_at(reply, reply->count)->type == REPLY_NIL);
    sum = sum * 31 + (uint64_t)reply_number(reply, 7);
    sum = sum * 31 + reply_is(reply, "done") + reply_is_error(reply, "BUSY ");
    return sum;
}

/* Reads everything; returns a hash of what was read and how it ended. */
static uint64_t read_cut(const uint8_t *bytes, size_t size, size_t cut) {
    struct reply_reader reader = {0};
    uint64_t sum = 0;
    bool ok = reply_reader_start(&reader);
    assert(ok);
    for (size_t at = 0, piece; ok && at < size; at += piece) {
        struct reply *reply = NULL;
        piece = piece_of(cut, size - at);
        ok = reply_reader_feed(&reader, (const char *)bytes + at, piece);
        while (ok && (ok = reply_reader_next(&reader, &reply)) && reply) {
            size_t elements = 0;
            sum = sum * 31 + digest(reply, &elements);
            reply_free(reply);
        }
    }
    reply_reader_end(&reader);
    return sum * 31 + ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1)
        return 0;
    uint64_t whole = read_cut(data + 1, size - 1, 0);
    assert(read_cut(data + 1, size - 1, data[0]) == whole);
    assert(read_cut(data + 1, size - 1, 1) == whole);
    return 0;
}
