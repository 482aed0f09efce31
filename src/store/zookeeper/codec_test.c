/* Requests to bytes, bytes to frames and fields: whole, in any pieces, and from a malicious
 * server. */
#include "store/zookeeper/codec.h"

#include "check.h"

/* ---- Words of the tests ---- */

/* The bytes of a request, in hex. */
static const char *shown(struct codec_out *out) {
    static char text[2048];
    CHECK(!out->failed);
    for (size_t i = 0; i < out->size; i++)
        snprintf(text + 2 * i, sizeof(text) - 2 * i, "%02x", (unsigned char)out->bytes[i]);
    codec_out_free(out);
    return text;
}

/* Bytes that end where their memory ends. */
static struct codec_in reading(const char *bytes, size_t size) {
    static char *memory;
    free(memory);
    memory = malloc(size + !size);
    CHECK(memory);
    memcpy(memory, bytes, size);
    return (struct codec_in){.at = (unsigned char *)memory, .left = size};
}

#define READING(bytes) reading(bytes, sizeof(bytes) - 1)

/* ---- Requests ---- */

TEST(a_connect_names_the_session_that_it_resumes) {
    struct codec_out out = {0};
    struct codec_session session = {.last_zxid = 0x102, .id = 0x304, .timeout_ms = 5000};
    memcpy(session.password, "0123456789abcdef", 16);
    codec_connect(&out, &session);
    CHECK_EQ_STR(shown(&out), "0000002d"
                              "00000000"
                              "0000000000000102"
                              "00001388"
                              "0000000000000304"
                              "00000010"
                              "30313233343536373839616263646566"
                              "00");
}

TEST(a_claim_is_an_ephemeral_node_with_a_number) {
    struct codec_out out = {0};
    codec_create_claim(&out, 7, "/a", "d", ACL_ANYBODY);
    CHECK_EQ_STR(shown(&out), "00000032"
                              "00000007"
                              "0000000f"
                              "000000022f61"
                              "0000000164"
                              "00000001"
                              "0000001f"
                              "00000005776f726c64"
                              "00000006616e796f6e65"
                              "00000003");
}

TEST(who_logs_in_keeps_its_nodes_to_itself) {
    struct codec_out out = {0};
    codec_create_container(&out, 7, "/a", ACL_CREATOR);
    CHECK_EQ_STR(shown(&out), "0000002a"
                              "00000007"
                              "00000013"
                              "000000022f61"
                              "00000000"
                              "00000001"
                              "0000001f"
                              "0000000461757468"
                              "00000000"
                              "00000004");
}

TEST(a_write_of_several_names_its_version) {
    struct codec_out out = {0};
    codec_multi_begin(&out, 1);
    codec_multi_create(&out, "/a", "b", ACL_ANYBODY);
    codec_multi_set_data(&out, "/c", "d", 3);
    codec_multi_end(&out);
    CHECK_EQ_STR(shown(&out), "0000005c"
                              "00000001"
                              "0000000e"
                              "00000001"
                              "00"
                              "ffffffff"
                              "000000022f61"
                              "0000000162"
                              "00000001"
                              "0000001f"
                              "00000005776f726c64"
                              "00000006616e796f6e65"
                              "00000000"
                              "00000005"
                              "00"
                              "ffffffff"
                              "000000022f63"
                              "0000000164"
                              "00000003"
                              "ffffffff"
                              "01"
                              "ffffffff");
}

TEST(several_operations_are_one_request) {
    struct codec_out out = {0};
    codec_multi_begin(&out, 1);
    codec_multi_check(&out, "/a", 7);
    codec_multi_delete(&out, "/b");
    codec_multi_end(&out);
    CHECK_EQ_STR(shown(&out), "00000037"
                              "00000001"
                              "0000000e"
                              "0000000d"
                              "00"
                              "ffffffff"
                              "000000022f61"
                              "00000007"
                              "00000002"
                              "00"
                              "ffffffff"
                              "000000022f62"
                              "ffffffff"
                              "ffffffff"
                              "01"
                              "ffffffff");
}

TEST(requests_follow_each_other) {
    struct codec_out out = {0};
    codec_ping(&out);
    codec_delete(&out, 2, "/a");
    CHECK_EQ_STR(shown(&out), "00000008"
                              "fffffffe"
                              "0000000b"
                              "00000012"
                              "00000002"
                              "00000002"
                              "000000022f61"
                              "ffffffff");
}

/* ---- Frames ---- */

TEST(frames_are_the_same_however_the_bytes_are_cut) {
    static const char bytes[] = "\0\0\0\2ab\0\0\0\0\0\0\0\3cde";
    for (size_t piece = 1; piece < sizeof(bytes); piece++) {
        struct codec_frames frames = {0};
        char seen[32] = "";
        for (size_t at = 0; at < sizeof(bytes) - 1; at += piece) {
            size_t left = sizeof(bytes) - 1 - at;
            CHECK(codec_frames_feed(&frames, bytes + at, piece < left ? piece : left));
            struct codec_in in;
            while (codec_frames_next(&frames, &in) > 0) {
                strncat(seen, (const char *)in.at, in.left);
                strcat(seen, ";");
            }
        }
        CHECK_EQ_STR(seen, "ab;;cde;");
        codec_frames_free(&frames);
    }
}

TEST(a_frame_that_is_too_long_or_negative_is_refused) {
    static const char *const lengths[] = {"\0\x40\0\1", "\x7f\xff\xff\xff", "\xff\xff\xff\xff",
                                          "\x80\0\0\0"};
    for (size_t i = 0; i < 4; i++) {
        struct codec_frames frames = {0};
        struct codec_in in;
        CHECK(codec_frames_feed(&frames, lengths[i], 4));
        CHECK_EQ_INT(codec_frames_next(&frames, &in), -1);
        codec_frames_free(&frames);
    }
}

TEST(a_new_connection_forgets_half_a_frame) {
    struct codec_frames frames = {0};
    struct codec_in in;
    CHECK(codec_frames_feed(&frames, "\0\0\0\2a", 5));
    CHECK_EQ_INT(codec_frames_next(&frames, &in), 0);
    codec_frames_start(&frames);
    CHECK(codec_frames_feed(&frames, "\0\0\0\1x", 5));
    CHECK_EQ_INT(codec_frames_next(&frames, &in), 1);
    CHECK_EQ_INT(*in.at, 'x');
    codec_frames_free(&frames);
}

/* ---- Fields ---- */

TEST(numbers_and_texts_are_read_in_order) {
    struct codec_in in = READING("\xff\xff\xff\xfe\0\0\0\1\0\0\0\2\1\0\0\0\2hi\xff\xff\xff\xff");
    CHECK_EQ_INT(codec_int(&in), -2);
    CHECK(codec_long(&in) == (INT64_C(1) << 32 | 2));
    CHECK(codec_bool(&in));
    struct codec_text text = codec_text(&in);
    CHECK(text.size == 2 && memcmp(text.bytes, "hi", 2) == 0);
    CHECK_EQ_INT(codec_text(&in).size, 0); /* none */
    CHECK(!in.failed);
    CHECK_EQ_INT(in.left, 0);
}

TEST(a_text_that_is_longer_than_its_frame_is_refused) {
    struct codec_in in = READING("\0\0\0\3hi");
    CHECK_EQ_INT(codec_text(&in).size, 0);
    CHECK(in.failed);
    in = READING("\x80\0\0\0hi");
    CHECK_EQ_INT(codec_text(&in).size, 0);
    CHECK(in.failed);
}

TEST(a_list_that_cannot_fit_its_frame_is_refused) {
    struct codec_in in = READING("\0\0\0\3\0\0\0\0\0\0\0\0");
    CHECK_EQ_INT(codec_count(&in), 0);
    CHECK(in.failed);
    in = READING("\x7f\xff\xff\xff\0\0\0\0");
    CHECK_EQ_INT(codec_count(&in), 0);
    CHECK(in.failed);
    in = READING("\0\0\0\2\0\0\0\0\0\0\0\0");
    CHECK_EQ_INT(codec_count(&in), 2);
    CHECK(!in.failed);
}

TEST(what_is_cut_off_anywhere_is_refused) {
    static const char stat[68], header[16] = "\0\0\0\1";
    for (size_t size = 0; size < sizeof(stat); size++) {
        struct codec_in in = reading(stat, size);
        codec_stat(&in);
        CHECK(in.failed);
    }
    for (size_t size = 0; size < sizeof(header); size++) {
        struct codec_in in = reading(header, size);
        codec_header(&in);
        CHECK(in.failed);
    }
    struct codec_in in = reading(stat, sizeof(stat));
    codec_stat(&in);
    CHECK(!in.failed && in.left == 0);
}

TEST(after_a_field_that_is_not_there_nothing_is_read) {
    struct codec_in in = READING("\0\0\0\7hi\0\0\0\5");
    codec_text(&in);
    CHECK(in.failed);
    CHECK_EQ_INT(codec_int(&in), 0);
    CHECK_EQ_INT(codec_text(&in).size, 0);
    CHECK(!codec_bool(&in));
}

/* ---- Replies ---- */

TEST(an_expired_session_has_no_id) {
    struct codec_in in = READING("\0\0\0\0"
                                 "\0\0\0\0"
                                 "\0\0\0\0\0\0\0\0"
                                 "\0\0\0\x10"
                                 "0123456789abcdef"
                                 "\0");
    CHECK_EQ_INT(codec_connected(&in).id, 0);
    CHECK(!in.failed);
}

TEST(a_session_has_a_timeout_and_a_password) {
    struct codec_in in = READING("\0\0\0\0"
                                 "\0\0\x13\x88"
                                 "\0\0\0\0\0\0\0\5"
                                 "\0\0\0\x10"
                                 "0123456789abcdef");
    struct codec_session session = codec_connected(&in);
    CHECK(!in.failed);
    CHECK_EQ_INT(session.id, 5);
    CHECK_EQ_INT(session.timeout_ms, 5000);
    CHECK(memcmp(session.password, "0123456789abcdef", 16) == 0);
    in = READING("\0\0\0\0"
                 "\0\0\x13\x88"
                 "\0\0\0\0\0\0\0\5"
                 "\0\0\0\2"
                 "01");
    codec_connected(&in);
    CHECK(in.failed); /* it could not be resumed */
}

TEST(the_first_operation_that_failed_is_found) {
    struct codec_in in = READING("\xff\xff\xff\xff\0\0\0\0\0"
                                 "\0\0\0\0"
                                 "\xff\xff\xff\xff\0\xff\xff\xff\x9b"
                                 "\xff\xff\xff\x9b"
                                 "\xff\xff\xff\xff\0\xff\xff\xff\xfe"
                                 "\xff\xff\xff\xfe"
                                 "\xff\xff\xff\xff\1\xff\xff\xff\xff");
    size_t index;
    CHECK_EQ_INT(codec_multi_result(&in, &index), ZK_NO_NODE);
    CHECK_EQ_INT(index, 1);
    CHECK(!in.failed);
}

TEST(operations_that_all_succeeded_have_no_error) {
    struct codec_in in = READING("\0\0\0\1\0\xff\xff\xff\xff"
                                 "\0\0\0\2/a"
                                 "\0\0\0\x0d\0\xff\xff\xff\xff"
                                 "\0\0\0\2\0\xff\xff\xff\xff"
                                 "\xff\xff\xff\xff\1\xff\xff\xff\xff");
    size_t index;
    CHECK_EQ_INT(codec_multi_result(&in, &index), ZK_OK);
    CHECK(!in.failed);
}

TEST(results_without_an_end_are_refused) {
    struct codec_in in = READING("\0\0\0\x0d\0\xff\xff\xff\xff");
    size_t index;
    codec_multi_result(&in, &index);
    CHECK(in.failed);
}
