/* Arbitrary bytes from a MySQL server, in any pieces: what is read of them is sound, and the same
 * however the bytes were cut. */
#include "store/mysql/packet.h"

#include <assert.h>
#include <string.h>

static uint64_t digest(const char *text) {
    uint64_t sum = strlen(text);
    for (; *text; text++)
        sum = sum * 31 + (unsigned char)*text;
    return sum;
}

static uint64_t digest_result(const struct my_result *result) {
    uint64_t sum = result->error * 31 + digest(result->text);
    assert(result->cell_count >= result->rows * result->columns);
    for (size_t row = 0; row < result->rows; row++) {
        for (unsigned i = 0; i < result->columns; i++)
            sum = sum * 31 + digest(my_value(result, row, i)) + my_is_null(result, row, i);
    }
    return sum;
}

/* Reads the first packet also as a greeting and as a request for another proof, and each packet as
 * an answer. */
static uint64_t take(const struct my_packet *packet, struct my_answer *answer, bool is_first) {
    struct my_greeting greeting = {0};
    uint64_t sum = 0;
    if (is_first && my_read_greeting(packet, &greeting))
        sum = digest(greeting.version) * 31 + greeting.nonce[MY_NONCE - 1];
    if (is_first && my_read_switch(packet, &greeting))
        sum += digest(greeting.plugin);
    enum my_step step = my_answer_take(answer, packet);
    if (step == MY_ENDED || step == MY_BROKEN) {
        sum += step == MY_ENDED ? digest_result(&answer->result) : 1;
        my_result_clear(&answer->result);
        *answer = (struct my_answer){0};
    }
    return sum * 31 + step;
}

/* Reads everything, in pieces of `cut` bytes, or (0) at once. */
static uint64_t read_cut(const uint8_t *bytes, size_t size, size_t cut) {
    struct my_reader reader = {0};
    struct my_answer answer = {0};
    struct my_packet packet;
    enum my_next next = MY_NONE;
    uint64_t sum = 0;
    bool is_first = true;
    for (size_t at = 0, piece; at < size && next != MY_BAD_PACKET; at += piece) {
        piece = cut && cut < size - at ? cut : size - at;
        bool ok = my_reader_feed(&reader, (const char *)bytes + at, piece);
        assert(ok);
        while ((next = my_reader_next(&reader, &packet)) == MY_PACKET) {
            sum = sum * 31 + take(&packet, &answer, is_first);
            is_first = false;
        }
    }
    my_reader_clear(&reader);
    my_result_clear(&answer.result);
    return sum * 31 + next;
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
