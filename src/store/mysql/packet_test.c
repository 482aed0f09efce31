/* The protocol's bytes: how they are read, and that no bytes do harm. */
#include "check.h"
#include "store/mysql/packet.h"
#include "support/failing.h"

#include <stdint.h>

/* A literal with zeros in it, as bytes and size. */
#define BYTES(text) (text), sizeof(text) - 1

static struct my_packet packet_of(const char *bytes, size_t size) {
    return (struct my_packet){(const uint8_t *)bytes, size, 0};
}

/* ---- Packets ---- */

TEST(packets_come_out_whole_however_they_were_cut) {
    static const char bytes[] = "\3\0\0\7abc\0\0\0\1\1\0\0\2x";
    for (size_t cut = 1; cut < sizeof(bytes); cut++) {
        struct my_reader reader = {0};
        struct my_packet packet;
        char seen[8] = "";
        size_t count = 0;
        for (size_t at = 0; at < sizeof(bytes) - 1; at += cut) {
            size_t left = sizeof(bytes) - 1 - at;
            CHECK(my_reader_feed(&reader, bytes + at, left < cut ? left : cut));
            while (my_reader_next(&reader, &packet) == MY_PACKET) {
                CHECK_EQ_INT(packet.number, count == 0 ? 7 : count);
                strncat(seen, (const char *)packet.bytes, packet.size);
                count++;
            }
        }
        CHECK_EQ_INT(count, 3);
        CHECK_EQ_STR(seen, "abcx");
        my_reader_clear(&reader);
    }
}

TEST(a_packet_that_goes_on_in_the_next_is_refused) {
    struct my_reader reader = {0};
    struct my_packet packet;
    CHECK(my_reader_feed(&reader, BYTES("\xff\xff\xff\0")));
    CHECK_EQ_INT(my_reader_next(&reader, &packet), MY_BAD_PACKET);
    my_reader_clear(&reader);
}

/* ---- The login ---- */

#define NONCE_1 "\1\2\3\4\5\6\7\10"
#define NONCE_2 "\11\12\13\14\15\16\17\20\21\22\23\24"
#define GREETING                                                                               \
    "\12"                                                                                      \
    "5.5.5-10.11.19-MariaDB-0\0\52\0\0\0" NONCE_1 "\0\376\377\55\2\0\377\201\25\0\0\0\0\0\0\0" \
    "\0\0\0" NONCE_2 "\0mysql_native_password"

TEST(the_greeting_of_mariadb_is_read) {
    struct my_greeting greeting;
    struct my_packet packet = packet_of(GREETING, sizeof(GREETING));
    CHECK(my_read_greeting(&packet, &greeting));
    CHECK_EQ_STR(greeting.version, "10.11.19-MariaDB-0");
    CHECK_EQ_STR(greeting.plugin, "mysql_native_password");
    CHECK(greeting.is_mariadb && my_offers_tls(&greeting));
    CHECK(memcmp(greeting.nonce, NONCE_1 NONCE_2, MY_NONCE) == 0);
    for (size_t size = 0; size < sizeof(GREETING); size++) {
        packet.size = size;
        my_read_greeting(&packet, &greeting); /* AddressSanitizer watches this */
    }
}

static void check_proof(const char *plugin, const char *password, const char *hex) {
    uint8_t proof[MY_PROOF_MAX];
    char text[2 * MY_PROOF_MAX + 1] = "";
    int size = my_prove(plugin, password, (const uint8_t *)NONCE_1 NONCE_2, proof);
    for (int i = 0; i < size; i++)
        snprintf(text + 2 * i, 3, "%02x", proof[i]);
    CHECK_EQ_STR(size < 0 ? "unknown" : text, hex);
}

/* The proofs were computed with Python's hashlib. */
TEST(a_password_is_proved_and_not_sent) {
    check_proof("mysql_native_password", "s3cret", "f66fdd3ff855d9349a0ddb50c4a1a535fb412465");
    check_proof("caching_sha2_password", "s3cret",
                "3f3a9a7786fd9be9a006eed686b4e6b76484fdc06dc15685df5f8793574b84fc");
    check_proof("mysql_native_password", "", "");
    check_proof("caching_sha2_password", NULL, "");
    check_proof("unix_socket", "s3cret", "");
    check_proof("mysql_clear_password", "s3cret", "unknown");
    check_proof("client_ed25519", "s3cret", "unknown");
}

TEST(a_server_can_ask_for_another_proof) {
    struct my_greeting greeting = {.plugin = "mysql_native_password"};
    static const char asks[] = "\376caching_sha2_password\0" NONCE_1 NONCE_2;
    struct my_packet packet = packet_of(asks, sizeof(asks));
    CHECK(my_read_switch(&packet, &greeting));
    CHECK_EQ_STR(greeting.plugin, "caching_sha2_password");
    CHECK(memcmp(greeting.nonce, NONCE_1 NONCE_2, MY_NONCE) == 0);
    packet.size = 1; /* the old proof of servers before 4.1 */
    CHECK(!my_read_switch(&packet, &greeting));
}

/* ---- Results ---- */

static enum my_step take(struct my_answer *answer, const char *bytes, size_t size) {
    struct my_packet packet = packet_of(bytes, size);
    return my_answer_take(answer, &packet);
}

#define END_OF_COLUMNS BYTES("\376\0\0\2\0")
#define END_OF_ROWS BYTES("\376\0\0\2\0")
#define END_AND_MORE BYTES("\376\0\0\12\0")
#define OK BYTES("\0\0\0\2\0\0\0")
#define OK_AND_MORE BYTES("\0\1\0\12\0\0\0")

/* Two rows of two columns: a and NULL, "" and bc. */
static enum my_step take_rows(struct my_answer *answer) {
    CHECK_EQ_INT(take(answer, BYTES("\2")), MY_GOES_ON);
    CHECK_EQ_INT(take(answer, BYTES("\3def")), MY_GOES_ON);
    CHECK_EQ_INT(take(answer, BYTES("\3def")), MY_GOES_ON);
    CHECK_EQ_INT(take(answer, END_OF_COLUMNS), MY_GOES_ON);
    enum my_step step = take(answer, BYTES("\1a\373"));
    return step == MY_GOES_ON ? take(answer, BYTES("\0\2bc")) : step;
}

TEST(the_rows_of_a_call_are_read) {
    struct my_answer answer = {0};
    CHECK_EQ_INT(take_rows(&answer), MY_GOES_ON);
    CHECK_EQ_INT(take(&answer, END_AND_MORE), MY_GOES_ON);
    CHECK_EQ_INT(take(&answer, OK), MY_ENDED);
    CHECK_EQ_INT(answer.result.rows, 2);
    CHECK_EQ_INT(answer.result.columns, 2);
    CHECK_EQ_STR(my_value(&answer.result, 0, 0), "a");
    CHECK(my_is_null(&answer.result, 0, 1) && !*my_value(&answer.result, 0, 1));
    CHECK_EQ_STR(my_value(&answer.result, 1, 0), "");
    CHECK_EQ_STR(my_value(&answer.result, 1, 1), "bc");
    my_result_clear(&answer.result);
}

TEST(the_rows_after_an_update_are_read) {
    struct my_answer answer = {0};
    CHECK_EQ_INT(take(&answer, OK_AND_MORE), MY_GOES_ON);
    CHECK_EQ_INT(take_rows(&answer), MY_GOES_ON);
    CHECK_EQ_INT(take(&answer, END_OF_ROWS), MY_ENDED);
    CHECK_EQ_INT(answer.result.rows, 2);
    my_result_clear(&answer.result);
}

TEST(an_error_ends_everything) {
    struct my_answer answer = {0};
    CHECK_EQ_INT(take_rows(&answer), MY_GOES_ON);
    CHECK_EQ_INT(take(&answer, BYTES("\377\275\4#40001Deadlock found")), MY_ENDED);
    CHECK_EQ_INT(answer.result.error, 1213);
    CHECK_EQ_STR(answer.result.text, "Deadlock found");
    CHECK_EQ_INT(answer.result.rows, 0);
    my_result_clear(&answer.result);
}

TEST(what_makes_no_sense_is_refused) {
    static const struct {
        const char *bytes;
        size_t size;
    } firsts[] = {{BYTES("")}, {BYTES("\0")}, {BYTES("\373/etc/passwd")}, {BYTES("\374\377")}};
    for (size_t i = 0; i < sizeof(firsts) / sizeof(firsts[0]); i++) {
        struct my_answer answer = {0};
        CHECK_EQ_INT(take(&answer, firsts[i].bytes, firsts[i].size), MY_BROKEN);
    }
    struct my_answer answer = {0};
    CHECK_EQ_INT(take_rows(&answer), MY_GOES_ON);
    CHECK_EQ_INT(take(&answer, BYTES("\1a")), MY_BROKEN); /* one value of two */
    CHECK_EQ_INT(take(&answer, BYTES("\5a\1b")), MY_BROKEN);
    my_result_clear(&answer.result);
}

/* ---- Memory ---- */

TEST(without_memory_an_answer_is_refused) {
    while (fail_next(FAIL_ONE)) {
        struct my_reader reader = {0};
        struct my_answer answer = {0};
        bool fed = my_reader_feed(&reader, BYTES("\1\0\0\0x"));
        enum my_step step = take_rows(&answer);
        CHECK((!fed || step == MY_NO_MEMORY) == fail_happened());
        my_reader_clear(&reader);
        my_result_clear(&answer.result);
    }
}
