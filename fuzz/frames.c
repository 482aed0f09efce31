/* Arbitrary bytes from a ZooKeeper server, in any pieces: frames are within the limits and the same
 * however the bytes were cut, and whatever a frame is read as, nothing outside it is touched. */
#include "store/zookeeper/names.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A copy of a frame's body in memory of just its size. */
static struct codec_in copy_of(const struct codec_in *in, char **ret_memory) {
    *ret_memory = malloc(in->left + !in->left);
    assert(*ret_memory);
    memcpy(*ret_memory, in->at, in->left);
    return (struct codec_in){.at = (unsigned char *)*ret_memory, .left = in->left};
}

static uint64_t digest(struct codec_text text) {
    uint64_t sum = text.size;
    for (size_t i = 0; i < text.size; i++)
        sum = sum * 31 + (unsigned char)text.bytes[i];
    return sum;
}

static uint64_t read_list(const struct names_layout *layout, struct codec_in in) {
    struct names_claim *claims = NULL;
    size_t count = 0;
    int r = names_read_claims(layout, &in, &claims, &count);
    assert(r == HF_OK);
    uint64_t sum = count * 31 + names_holders(claims, count);
    assert(names_holders(claims, count) <= count);
    for (size_t i = 0; i < count; i++) {
        assert(claims[i].weight > 0 && claims[i].weight <= claims[i].capacity);
        sum = sum * 31 + claims[i].seq;
    }
    free(claims);
    return sum;
}

/* Reads a frame as everything that it could be. */
static uint64_t read_frame(const struct codec_in *frame) {
    char *memory, name[256];
    struct codec_in whole = copy_of(frame, &memory), in = whole;
    struct codec_session session = codec_connected(&in);
    uint64_t sum = (uint64_t)session.id * 31 + in.failed;
    in = whole;
    struct codec_header header = codec_header(&in);
    struct codec_in body = in;
    sum = sum * 31 + (uint64_t)header.zxid + (uint64_t)header.error + (uint64_t)header.xid;
    struct codec_event event = codec_event(&in);
    sum = sum * 31 + digest(event.path) + (uint64_t)event.type;
    in = body;
    struct codec_text text = codec_text(&in);
    sum = sum * 31 + digest(text) + (uint64_t)codec_stat(&in).czxid;
    if (names_decode(text, name))
        assert(strlen(name) >= 1 && strlen(name) <= 255);
    in = body;
    size_t index;
    sum = sum * 31 + (uint64_t)codec_multi_result(&in, &index) + index;
    if (!in.failed)
        sum = sum * 31 + in.left;
    for (const struct names_layout *layout = names_layouts; layout->word; layout++)
        sum = sum * 31 + read_list(layout, body);
    free(memory);
    return sum;
}

/* Reads everything in pieces of `cut` bytes (0: at once). Returns a hash of what was read. */
static uint64_t read_cut(const uint8_t *bytes, size_t size, size_t cut) {
    struct codec_frames frames = {0};
    uint64_t sum = 0;
    int r = 0;
    for (size_t at = 0, piece; r >= 0 && at < size; at += piece) {
        struct codec_in in;
        piece = cut && cut < size - at ? cut : size - at;
        bool ok = codec_frames_feed(&frames, (const char *)bytes + at, piece);
        assert(ok);
        while ((r = codec_frames_next(&frames, &in)) > 0) {
            assert(in.left <= CODEC_FRAME_MAX);
            sum = sum * 31 + read_frame(&in);
        }
    }
    codec_frames_free(&frames);
    return sum * 31 + (r < 0);
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
