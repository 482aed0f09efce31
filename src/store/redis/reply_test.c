/* Replies from bytes: whole, in any pieces, and from a malicious server. */
#include "store/redis/reply.h"

#include "check.h"

#include <locale.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- Words of the tests ---- */

/* A reply in one line: :5 "text" !error nil [item item]. Bytes that do not print are \xx. */
static void show(const struct reply *reply, char *text, size_t room) {
    size_t size = strlen(text);
    switch (reply->type) {
    case REPLY_NIL:
        snprintf(text + size, room - size, "nil");
        return;
    case REPLY_INTEGER:
        snprintf(text + size, room - size, ":%lld", (long long)reply->integer);
        return;
    case REPLY_STRING:
    case REPLY_ERROR:
        CHECK_EQ_INT(reply->text[reply->size], 0);
        snprintf(text + size, room - size, reply->type == REPLY_ERROR ? "!" : "\"");
        for (size_t i = 0; i < reply->size; i++) {
            unsigned char c = (unsigned char)reply->text[i];
            size = strlen(text);
            snprintf(text + size, room - size, c >= ' ' && c <= '~' ? "%c" : "\\%02x", c);
        }
        strncat(text, reply->type == REPLY_ERROR ? "" : "\"", room - strlen(text) - 1);
        return;
    case REPLY_ARRAY:
        strncat(text, "[", room - size - 1);
        for (size_t i = 0; i < reply->count; i++) {
            CHECK(reply->items[i]);
            strncat(text, i ? " " : "", room - strlen(text) - 1);
            show(reply->items[i], text, room);
        }
        strncat(text, "]", room - strlen(text) - 1);
        return;
    }
    CHECK(!"a type of reply");
}

/* Takes all replies that are complete, each with a ';' after it; false: the reader has failed. */
static bool take_all(struct reply_reader *reader, char *text, size_t room) {
    struct reply *reply;
    while (reply_reader_next(reader, &reply)) {
        if (!reply)
            return true;
        show(reply, text, room);
        strncat(text, ";", room - strlen(text) - 1);
        reply_free(reply);
    }
    return false;
}

/* Feeds a piece from memory of just its size, so that a sanitizer notices reads beyond it. */
static bool feed(struct reply_reader *reader, const char *bytes, size_t size) {
    char *piece = malloc(size + !size);
    CHECK(piece);
    memcpy(piece, bytes, size);
    bool ok = reply_reader_feed(reader, piece, size);
    free(piece);
    return ok;
}

static struct reply_reader *started(void) {
    static struct reply_reader reader;
    CHECK(reply_reader_start(&reader));
    return &reader;
}

/* What bytes are read as, at once; with "#" at the end when they are refused. */
static const char *read_as(const char *bytes, size_t size) {
    static char text[4096];
    struct reply_reader *reader = started();
    text[0] = 0;
    if (!feed(reader, bytes, size) || !take_all(reader, text, sizeof(text) - 1))
        strcat(text, "#");
    reply_reader_end(reader);
    return text;
}

#define READ_AS(literal) read_as(literal, sizeof(literal) - 1)

/* ---- What a server says ---- */

struct sample {
    const char *bytes;
    size_t size;
    const char *shown;
};
#define SAMPLE(bytes, shown) \
    { bytes, sizeof(bytes) - 1, shown }

static const struct sample samples[] = {
    SAMPLE("+OK\r\n", "\"OK\";"),
    SAMPLE("+\r\n", "\"\";"),
    SAMPLE("-ERR what\r\n", "!ERR what;"),
    SAMPLE("-\r\n", "!;"),
    SAMPLE(":0\r\n", ":0;"),
    SAMPLE(":-1\r\n", ":-1;"),
    SAMPLE(":9223372036854775807\r\n", ":9223372036854775807;"),
    SAMPLE(":-9223372036854775808\r\n", ":-9223372036854775808;"),
    SAMPLE("$3\r\nabc\r\n", "\"abc\";"),
    SAMPLE("$0\r\n\r\n", "\"\";"),
    SAMPLE("$-1\r\n", "nil;"),
    SAMPLE("$4\r\na\r\nb\r\n", "\"a\\0d\\0ab\";"),
    SAMPLE("$5\r\n\0a\0b\0\r\n", "\"\\00a\\00b\\00\";"),
    SAMPLE("$2\r\n\xff\x80\r\n", "\"\\ff\\80\";"),
    SAMPLE("*0\r\n", "[];"),
    SAMPLE("*-1\r\n", "nil;"),
    SAMPLE("*1\r\n*0\r\n", "[[]];"),
    SAMPLE("*2\r\n*-1\r\n$-1\r\n", "[nil nil];"),
    SAMPLE("*2\r\n$4\r\ndone\r\n$1\r\n5\r\n", "[\"done\" \"5\"];"),
    SAMPLE("*3\r\n:1\r\n-ERR in it\r\n+OK\r\n", "[:1 !ERR in it \"OK\"];"),
    SAMPLE("*3\r\n*2\r\n:1\r\n*1\r\n:2\r\n*0\r\n:3\r\n", "[[:1 [:2]] [] :3];"),
    SAMPLE("*2\r\n-A\r\n*1\r\n-B\r\n", "[!A [!B]];"),
};
enum { SAMPLES = sizeof(samples) / sizeof(samples[0]) };

TEST(every_type_of_reply_is_read) {
    for (int i = 0; i < SAMPLES; i++)
        CHECK_EQ_STR(read_as(samples[i].bytes, samples[i].size), samples[i].shown);
}

TEST(a_reply_cut_in_two_anywhere_is_the_same) {
    for (int i = 0; i < SAMPLES; i++) {
        for (size_t cut = 0; cut <= samples[i].size; cut++) {
            char text[256] = "";
            struct reply_reader *reader = started();
            CHECK(feed(reader, samples[i].bytes, cut));
            CHECK(take_all(reader, text, sizeof(text)));
            CHECK(cut == samples[i].size || text[0] == 0); /* not before its end */
            CHECK(feed(reader, samples[i].bytes + cut, samples[i].size - cut));
            CHECK(take_all(reader, text, sizeof(text)));
            CHECK_EQ_STR(text, samples[i].shown);
            reply_reader_end(reader);
        }
    }
}

/* All of them one after the other, in pieces of every size. */
TEST(a_stream_of_replies_in_pieces_of_any_size_is_the_same) {
    char bytes[2048], shown[2048] = "";
    size_t size = 0;
    for (int i = 0; i < SAMPLES; i++) {
        memcpy(bytes + size, samples[i].bytes, samples[i].size);
        size += samples[i].size;
        strcat(shown, samples[i].shown);
    }
    for (size_t piece = 1; piece <= size; piece++) {
        char text[2048] = "";
        struct reply_reader *reader = started();
        for (size_t at = 0; at < size; at += piece) {
            CHECK(feed(reader, bytes + at, at + piece < size ? piece : size - at));
            CHECK(take_all(reader, text, sizeof(text)));
        }
        CHECK_EQ_STR(text, shown);
        reply_reader_end(reader);
    }
}

TEST(one_call_gives_one_reply) {
    struct reply_reader *reader = started();
    struct reply *first, *second, *none;
    CHECK(feed(reader, "+1\r\n+2\r\n+", 9));
    CHECK(reply_reader_next(reader, &first) && reply_is(first, "1"));
    CHECK(reply_reader_next(reader, &second) && reply_is(second, "2"));
    CHECK(reply_reader_next(reader, &none) && !none);
    reply_free(first);
    reply_free(second);
    reply_reader_end(reader);
}

/* ---- What no server says ---- */

TEST(garbage_is_refused) {
    CHECK_EQ_STR(READ_AS("HTTP/1.1 400 Bad Request\r\n"), "#");
    CHECK_EQ_STR(READ_AS("SSH-2.0-OpenSSH_9.2\r\n"), "#");
    CHECK_EQ_STR(READ_AS("\x15\x03\x01\x00\x02\x02\x50"), "#"); /* a TLS alert */
    CHECK_EQ_STR(READ_AS("\0"), "#");
    CHECK_EQ_STR(READ_AS("\r\n"), "#");
    CHECK_EQ_STR(READ_AS("+OK\r\nxx\r\n"), "\"OK\";#");
    CHECK_EQ_STR(READ_AS("*2\r\n:1\r\n?\r\n"), "#");
}

TEST(types_of_a_protocol_that_was_not_asked_for_are_refused) {
    CHECK_EQ_STR(READ_AS("_\r\n"), "#");
    CHECK_EQ_STR(READ_AS("#t\r\n"), "#");
    CHECK_EQ_STR(READ_AS(",1.5\r\n"), "#");
    CHECK_EQ_STR(READ_AS("(12345678901234567890\r\n"), "#");
    CHECK_EQ_STR(READ_AS("%1\r\n+a\r\n+b\r\n"), "#");
    CHECK_EQ_STR(READ_AS("~1\r\n+a\r\n"), "#");
    CHECK_EQ_STR(READ_AS(">1\r\n+a\r\n"), "#");
}

TEST(negative_and_broken_counts_and_lengths_are_refused) {
    CHECK_EQ_STR(READ_AS("*-2\r\n"), "#");
    CHECK_EQ_STR(READ_AS("$-2\r\n"), "#");
    CHECK_EQ_STR(READ_AS("*-9223372036854775808\r\n"), "#");
    CHECK_EQ_STR(READ_AS("$-9223372036854775808\r\n"), "#");
    CHECK_EQ_STR(READ_AS("*x\r\n"), "#");
    CHECK_EQ_STR(READ_AS("$x\r\n"), "#");
    CHECK_EQ_STR(READ_AS("*1x\r\n"), "#");
    CHECK_EQ_STR(READ_AS("$1x\r\n"), "#");
    CHECK_EQ_STR(READ_AS(":x\r\n"), "#");
    CHECK_EQ_STR(READ_AS(":9223372036854775808\r\n"), "#");
}

TEST(counts_that_no_reply_has_are_refused_before_their_items) {
    CHECK_EQ_STR(READ_AS("*1048577\r\n"), "#");
    CHECK_EQ_STR(READ_AS("*2147483647\r\n"), "#");
    CHECK_EQ_STR(READ_AS("*2147483648\r\n"), "#");
    CHECK_EQ_STR(READ_AS("*4294967296\r\n"), "#");
    CHECK_EQ_STR(READ_AS("*18446744073709551616\r\n"), "#");
}

TEST(a_reader_that_failed_is_of_use_after_a_new_start) {
    struct reply_reader *reader = started();
    char text[16] = "";
    CHECK(feed(reader, "*3\r\n:1\r\n:2\r\n?", 13));
    CHECK(!take_all(reader, text, sizeof(text)));
    CHECK(!feed(reader, "+OK\r\n", 5) || !take_all(reader, text, sizeof(text)));
    CHECK_EQ_STR(text, "");
    CHECK(reply_reader_start(reader));
    CHECK(feed(reader, "+OK\r\n", 5) && take_all(reader, text, sizeof(text)));
    CHECK_EQ_STR(text, "\"OK\";");
    reply_reader_end(reader);
}

TEST(a_new_start_forgets_what_was_read_halfway) {
    struct reply_reader *reader = started();
    char text[16] = "";
    CHECK(feed(reader, "*3\r\n:1\r\n$10\r\nab", 15) && take_all(reader, text, sizeof(text)));
    CHECK(reply_reader_start(reader));
    CHECK(feed(reader, "+OK\r\n", 5) && take_all(reader, text, sizeof(text)));
    CHECK_EQ_STR(text, "\"OK\";");
    CHECK(feed(reader, "*2\r\n$1\r\nx\r\n", 11) && take_all(reader, text, sizeof(text)));
    reply_reader_end(reader); /* and so does the end: the leak checker looks */
    reply_reader_end(reader);
}

/* ---- How much is too much ---- */

/* Feeds the same piece `times` times; false as soon as the reader refuses. */
static bool feed_times(struct reply_reader *reader, const char *piece, size_t times) {
    struct reply *reply = NULL;
    for (size_t i = 0; i < times; i++) {
        if (!reply_reader_feed(reader, piece, strlen(piece)) || !reply_reader_next(reader, &reply))
            return false;
        reply_free(reply);
    }
    return true;
}

TEST(what_a_look_needs_is_not_too_deep) {
    CHECK_EQ_STR(READ_AS("*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"), "[[[[:1]]]];");
}

TEST(arrays_in_arrays_without_end_are_refused) {
    CHECK(!feed_times(started(), "*1\r\n", 100));
    CHECK(!feed_times(started(), "*2\r\n", 100));
    reply_reader_end(started());
}

TEST(a_reply_of_as_many_elements_as_are_allowed_is_read) {
    struct reply_reader *reader = started();
    struct reply *reply = NULL;
    char head[32];
    snprintf(head, sizeof(head), "*%d\r\n", REPLY_ELEMENTS_MAX - 1);
    CHECK(feed(reader, head, strlen(head)));
    CHECK(feed_times(reader, ":1\r\n", REPLY_ELEMENTS_MAX - 2));
    CHECK(feed(reader, ":1\r\n", 4));
    CHECK(reply_reader_next(reader, &reply) && reply);
    CHECK_EQ_INT(reply->count, REPLY_ELEMENTS_MAX - 1);
    reply_free(reply);
    CHECK(feed_times(reader, "*2\r\n:1\r\n:1\r\n", 3)); /* the limit is for each reply */
    reply_reader_end(reader);
}

TEST(a_reply_of_one_element_more_is_refused) {
    struct reply_reader *reader = started();
    char head[32];
    snprintf(head, sizeof(head), "*%d\r\n", REPLY_ELEMENTS_MAX);
    CHECK(!feed_times(reader, head, 1) || !feed_times(reader, ":1\r\n", REPLY_ELEMENTS_MAX));
    reply_reader_end(reader);
}

TEST(small_arrays_that_multiply_are_refused) {
    struct reply_reader *reader = started();
    struct reply *reply;
    CHECK(feed(reader, "*1000\r\n", 7));
    size_t elements = 1;
    bool ok = true;
    while (ok && elements < 2 * REPLY_ELEMENTS_MAX) {
        ok = feed_times(reader, "*20\r\n", 1);
        for (int i = 0; ok && i < 20; i++)
            ok = feed_times(reader, "*200\r\n", 1) && feed_times(reader, ":1\r\n", 200);
        elements += 1 + 20 * 201;
    }
    CHECK(!ok);
    CHECK(elements < REPLY_ELEMENTS_MAX + 20000);
    CHECK(!reply_reader_next(reader, &reply));
    reply_reader_end(reader);
}

static char *megabyte(void) {
    char *bytes = malloc((1 << 20) + 1);
    CHECK(bytes);
    memset(bytes, 'x', 1 << 20);
    bytes[1 << 20] = 0;
    return bytes;
}

TEST(a_string_without_end_is_refused) {
    static const char *const heads[] = {"$9223372036854775807\r\n", "$4294967296\r\n",
                                        "$99999999\r\n"};
    char *piece = megabyte();
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        struct reply_reader *reader = started();
        CHECK(feed_times(reader, heads[i], 1));
        CHECK(feed_times(reader, piece, (REPLY_BYTES_MAX >> 20) - 1));
        CHECK(!feed_times(reader, piece, 2));
        reply_reader_end(reader);
    }
    free(piece);
}

TEST(a_line_without_end_is_refused) {
    char *piece = megabyte();
    struct reply_reader *reader = started();
    CHECK(feed_times(reader, "-", 1));
    CHECK(!feed_times(reader, piece, (REPLY_BYTES_MAX >> 20) + 1));
    reply_reader_end(reader);
    free(piece);
}

TEST(a_string_of_nearly_as_much_as_is_allowed_is_read) {
    char *piece = megabyte();
    struct reply_reader *reader = started();
    struct reply *reply = NULL;
    CHECK(feed_times(reader, "$62914560\r\n", 1)); /* 60 MB */
    CHECK(feed_times(reader, piece, 60));
    CHECK(feed(reader, "\r\n", 2) && reply_reader_next(reader, &reply) && reply);
    CHECK_EQ_INT(reply->size, 62914560);
    reply_free(reply);
    reply_reader_end(reader);
    free(piece);
}

/* REPLY_BYTES_MAX limits a whole reply: the complete items of an incomplete one count. */
TEST(strings_that_fill_one_array_without_end_are_refused) {
    char *piece = megabyte();
    struct reply_reader *reader = started();
    CHECK(feed_times(reader, "*1000\r\n", 1));
    bool ok = true;
    for (int i = 0; ok && i < (REPLY_BYTES_MAX >> 20) + 8; i++)
        ok = feed_times(reader, "$1048576\r\n", 1) && feed_times(reader, piece, 1) &&
             feed_times(reader, "\r\n", 1);
    reply_reader_end(reader);
    free(piece);
    CHECK(!ok);
}

/* ---- Looking at them ---- */

static int64_t number_in(const char *bytes, size_t size) {
    struct reply_reader *reader = started();
    struct reply *reply;
    CHECK(feed(reader, bytes, size) && reply_reader_next(reader, &reply) && reply);
    int64_t number = reply_number(reply, -77);
    reply_free(reply);
    reply_reader_end(reader);
    return number;
}

#define NUMBER_IN(literal) number_in(literal, sizeof(literal) - 1)

TEST(a_number_is_an_integer_or_a_text) {
    CHECK_EQ_INT(NUMBER_IN(":5\r\n"), 5);
    CHECK_EQ_INT(NUMBER_IN(":-9223372036854775808\r\n"), INT64_MIN);
    CHECK_EQ_INT(NUMBER_IN("$1\r\n5\r\n"), 5);
    CHECK_EQ_INT(NUMBER_IN("+-5\r\n"), -5);
    CHECK_EQ_INT(NUMBER_IN("+1700000000123456\r\n"), 1700000000123456);
}

TEST(a_score_may_be_written_with_an_exponent) {
    CHECK_EQ_INT(NUMBER_IN("+1.78e+15\r\n"), 1780000000000000);
    CHECK_EQ_INT(NUMBER_IN("+1.7000000001234560e+15\r\n"), 1700000000123456);
    CHECK_EQ_INT(NUMBER_IN("+-1e3\r\n"), -1000);
}

TEST(what_is_no_number_or_too_large_for_one_is_none) {
    CHECK_EQ_INT(NUMBER_IN("$-1\r\n"), -77);
    CHECK_EQ_INT(NUMBER_IN("*0\r\n"), -77);
    CHECK_EQ_INT(NUMBER_IN("*1\r\n:5\r\n"), -77);
    CHECK_EQ_INT(NUMBER_IN("-5\r\n"), -77); /* an error */
    CHECK_EQ_INT(NUMBER_IN("+\r\n"), -77);
    CHECK_EQ_INT(NUMBER_IN("+x\r\n"), -77);
    CHECK_EQ_INT(NUMBER_IN("+5x\r\n"), -77);
    CHECK_EQ_INT(NUMBER_IN("+inf\r\n"), -77);
    CHECK_EQ_INT(NUMBER_IN("+-inf\r\n"), -77);
    CHECK_EQ_INT(NUMBER_IN("+nan\r\n"), -77);
    CHECK_EQ_INT(NUMBER_IN("+1e400\r\n"), -77);
    CHECK_EQ_INT(NUMBER_IN("+9223372036854775808\r\n"), -77);
    CHECK_EQ_INT(NUMBER_IN("+-9223372036854775809\r\n"), -77);
}

TEST(a_nul_in_the_text_does_not_end_a_number_early) {
    CHECK_EQ_INT(NUMBER_IN("$3\r\n5\0x\r\n"), -77);
}

/* Makes a locale that writes 1,78, since few hosts have one installed; false where that cannot be
 * done. */
static bool use_decimal_comma(const char *folder) {
    char command[200];
    snprintf(command, sizeof(command), "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >%s/log 2>&1",
             folder, folder);
    setenv("LOCPATH", folder, 1);
    return system(command) == 0 && setlocale(LC_NUMERIC, "de_DE.UTF-8") &&
           strcmp(localeconv()->decimal_point, ",") == 0;
}

/* The program may use any locale. */
TEST(numbers_are_read_the_same_in_every_locale) {
    char folder[] = "/tmp/holdfast-locale-XXXXXX", command[64];
    CHECK(mkdtemp(folder));
    if (!use_decimal_comma(folder))
        printf("# this host cannot make a locale with a decimal comma\n");
    snprintf(command, sizeof(command), "rm -r %s", folder);
    CHECK_EQ_INT(system(command), 0);
    CHECK_EQ_INT(NUMBER_IN("+1.78e+15\r\n"), 1780000000000000);
}

TEST(an_item_that_is_not_there_is_a_nil) {
    struct reply_reader *reader = started();
    struct reply *reply;
    CHECK(feed(reader, "*2\r\n:1\r\n:2\r\n", 12) && reply_reader_next(reader, &reply));
    CHECK_EQ_INT(reply_at(reply, 1)->integer, 2);
    CHECK_EQ_INT(reply_at(reply, 2)->type, REPLY_NIL);
    CHECK_EQ_INT(reply_at(reply, SIZE_MAX)->type, REPLY_NIL);
    CHECK_EQ_INT(reply_at(reply_at(reply, 0), 0)->type, REPLY_NIL);
    CHECK_EQ_INT(reply_at(reply_at(reply, 7), 7)->count, 0);
    reply_free(reply);
    reply_reader_end(reader);
}

TEST(words_are_compared_whole_and_errors_by_their_beginning) {
    struct reply_reader *reader = started();
    struct reply *word, *error;
    CHECK(feed(reader, "+done\r\n-BUSY now\r\n", 18));
    CHECK(reply_reader_next(reader, &word) && reply_reader_next(reader, &error));
    CHECK(reply_is(word, "done") && !reply_is(word, "don") && !reply_is(word, "done!"));
    CHECK(reply_is_error(error, "BUSY ") && !reply_is_error(error, "BUSY now and then"));
    CHECK(!reply_is(error, "BUSY now") && !reply_is_error(word, "done"));
    reply_free(word);
    reply_free(error);
    reply_free(NULL);
    reply_reader_end(reader);
}
