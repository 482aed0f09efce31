/* What a hold gives to a resource: which holds give something, and what it says. tests/fence shows
 * that resources then refuse stale writers. */
#include "check.h"
#include "support/virtual_world.h"

#include <holdfast/holdfast.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

static char statement[64 * HF_FENCE_SQL_SIZE];

static hf_hold *acquire(hf_client *client, const char *name, hf_kind kind, uint32_t permits) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_hold *hold;
    options.kind = kind;
    options.permits = permits;
    options.capacity = 3;
    CHECK_EQ_INT(hf_acquire(client, name, &options, &hold), HF_OK);
    return hold;
}

static void check_statement(hf_hold *hold, const char *name) {
    char expected[HF_FENCE_SQL_SIZE];
    snprintf(expected, sizeof(expected), "SELECT holdfast.fence(%s, %" PRIu64 ")", name,
             hf_hold_token(hold));
    CHECK_EQ_INT(hf_fence_sql(hold, HF_POSTGRES, statement, sizeof(statement)), HF_OK);
    CHECK_EQ_STR(statement, expected);
}

TEST(names_that_could_mean_something_to_a_database_are_given_in_hexadecimal) {
    static const struct {
        const char *name, *written;
    } cases[] = {
        {"orders", "'orders'"},
        {"a-Z_0.9/x:y@z +", "'a-Z_0.9/x:y@z +'"},
        {"it's", "decode('69742773', 'hex')"},
        {"a\\b", "decode('615c62', 'hex')"},
        {"50%", "decode('353025', 'hex')"},
        {"\xc3\xbc\xff\n", "decode('c3bcff0a', 'hex')"},
    };
    hf_client *client = virtual_client("memory:", NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        hf_hold *hold = acquire(client, cases[i].name, HF_EXCLUSIVE, 1);
        check_statement(hold, cases[i].written);
        hf_hold_free(hold);
    }
    hf_client_close(client);
}

TEST(each_dialect_has_its_statement) {
    hf_client *client = virtual_client("memory:", NULL);
    hf_hold *hold = acquire(client, "it's", HF_EXCLUSIVE, 1);
    char expected[HF_FENCE_SQL_SIZE];
    snprintf(expected, sizeof(expected),
             "INSERT INTO holdfast_fences (name, token) VALUES (X'69742773', %" PRIu64 ")"
             " ON DUPLICATE KEY UPDATE token = IF(VALUES(token) < token, 0, VALUES(token))",
             hf_hold_token(hold));
    CHECK_EQ_INT(hf_fence_sql(hold, HF_MYSQL, statement, sizeof(statement)), HF_OK);
    CHECK_EQ_STR(statement, expected);
    snprintf(expected, sizeof(expected),
             "INSERT INTO holdfast_fences (name, token) VALUES (X'69742773', %" PRIu64 ")"
             " ON CONFLICT (name) DO UPDATE SET token ="
             " CASE WHEN excluded.token < token THEN 0 ELSE excluded.token END",
             hf_hold_token(hold));
    CHECK_EQ_INT(hf_fence_sql(hold, HF_SQLITE, statement, sizeof(statement)), HF_OK);
    CHECK_EQ_STR(statement, expected);
    hf_hold_free(hold);
    hf_client_close(client);
}

TEST(several_names_are_checked_in_the_order_of_their_names) {
    hf_client *client = virtual_client("memory:", NULL);
    hf_want b = HF_WANT_INIT, a = HF_WANT_INIT;
    hf_hold *hold;
    b.name = "b";
    a.name = "a";
    const hf_want *wants[] = {&b, &a};
    char expected[2 * HF_FENCE_SQL_SIZE];
    CHECK_EQ_INT(hf_acquire_all(client, wants, 2, NULL, &hold), HF_OK);
    snprintf(expected, sizeof(expected),
             "SELECT holdfast.fence('a', %" PRIu64 "), holdfast.fence('b', %" PRIu64 ")",
             hf_hold_token_at(hold, 1), hf_hold_token_at(hold, 0));
    CHECK_EQ_INT(hf_fence_sql(hold, HF_POSTGRES, statement, sizeof(statement)), HF_OK);
    CHECK_EQ_STR(statement, expected);
    hf_hold_free(hold);
    hf_client_close(client);
}

TEST(the_documented_size_is_enough_for_each_name) {
    enum { NAMES = 64, BYTES = 255 };
    hf_client *client = virtual_client("memory:", NULL);
    static char names[NAMES][BYTES + 1];
    static hf_want wants[NAMES];
    static const hf_want *pointers[NAMES];
    hf_hold *hold;
    for (size_t i = 0; i < NAMES; i++) {
        memset(names[i], '\'', BYTES);
        names[i][0] = (char)('0' + i);
        wants[i] = (hf_want)HF_WANT_INIT;
        wants[i].name = names[i];
        pointers[i] = &wants[i];
    }
    CHECK_EQ_INT(hf_acquire_all(client, pointers, NAMES, NULL, &hold), HF_OK);
    CHECK_EQ_INT(hf_fence_sql(hold, HF_POSTGRES, statement, sizeof(statement)), HF_OK);
    CHECK_EQ_INT(hf_fence_sql(hold, HF_MYSQL, statement, sizeof(statement)), HF_OK);
    CHECK_EQ_INT(hf_fence_sql(hold, HF_SQLITE, statement, sizeof(statement)), HF_OK);
    hf_hold_free(hold);
    hf_client_close(client);
}

TEST(the_documented_size_is_enough_for_one_name) {
    hf_client *client = virtual_client("memory:", NULL);
    char name[256] = {0};
    memset(name, '\'', sizeof(name) - 1);
    hf_hold *hold = acquire(client, name, HF_EXCLUSIVE, 1);
    CHECK_EQ_INT(hf_fence_sql(hold, HF_POSTGRES, statement, HF_FENCE_SQL_SIZE), HF_OK);
    CHECK_EQ_INT(hf_fence_sql(hold, HF_MYSQL, statement, HF_FENCE_SQL_SIZE), HF_OK);
    CHECK_EQ_INT(hf_fence_sql(hold, HF_SQLITE, statement, HF_FENCE_SQL_SIZE), HF_OK);
    hf_hold_free(hold);
    hf_client_close(client);
}

TEST(all_permits_fence_and_shared_holds_do_not) {
    hf_client *client = virtual_client("memory:", NULL);
    hf_hold *reader = acquire(client, "lock", HF_SHARED, 1);
    hf_hold *some = acquire(client, "some", HF_PERMITS, 2);
    hf_hold *all = acquire(client, "all", HF_PERMITS, 3);
    strcpy(statement, "untouched");
    CHECK_EQ_INT(hf_fence_sql(reader, HF_POSTGRES, statement, sizeof(statement)), HF_WRONG_KIND);
    CHECK_EQ_INT(hf_fence_sql(some, HF_POSTGRES, statement, sizeof(statement)), HF_WRONG_KIND);
    CHECK_EQ_STR(statement, "untouched");
    check_statement(all, "'all'");
    hf_hold_free(reader);
    hf_hold_free(some);
    hf_hold_free(all);
    hf_client_close(client);
}

TEST(what_is_not_held_and_wrong_arguments_give_no_statement) {
    hf_client *client = virtual_client("memory:", NULL);
    hf_hold *hold = acquire(client, "lock", HF_EXCLUSIVE, 1);
    strcpy(statement, "untouched");
    CHECK_EQ_INT(hf_fence_sql(NULL, HF_POSTGRES, statement, sizeof(statement)), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_fence_sql(hold, HF_POSTGRES, NULL, 0), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_fence_sql(hold, HF_POSTGRES, statement, 20), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_fence_sql(hold, (hf_dialect)0, statement, sizeof(statement)), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_fence_sql(hold, (hf_dialect)99, statement, sizeof(statement)), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_release(hold), HF_OK);
    CHECK_EQ_INT(hf_fence_sql(hold, HF_POSTGRES, statement, sizeof(statement)), HF_RELEASED);
    CHECK_EQ_STR(statement, "untouched");
    hf_hold_free(hold);
    hf_client_close(client);
}

/* ---- Tokens and files ---- */

static char folder[64], path[80];

static void make_folder(void) {
    strcpy(folder, "/tmp/holdfast-fence-XXXXXX");
    CHECK(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/data", folder);
}

static void remove_folder(void) {
    char command[100];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    CHECK(system(command) == 0);
}

static void check_content(const char *expected) {
    char text[100] = "";
    FILE *file = fopen(path, "r");
    CHECK(file && fread(text, 1, sizeof(text) - 1, file) > 0 && fclose(file) == 0);
    CHECK_EQ_STR(text, expected);
}

static int fail_on_purpose(void *arg) {
    *(int *)arg += 1;
    return -1234;
}

TEST(a_token_is_handed_out_only_if_it_fences) {
    hf_client *client = virtual_client("memory:", NULL);
    hf_hold *hold = acquire(client, "lock", HF_EXCLUSIVE, 1);
    hf_hold *some = acquire(client, "some", HF_PERMITS, 2);
    uint64_t token = 1;
    CHECK_EQ_INT(hf_fence_token(some, &token), HF_WRONG_KIND);
    CHECK_EQ_INT(hf_fence_token(NULL, &token), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_fence_token(hold, NULL), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(token, 1);
    CHECK_EQ_INT(hf_fence_token(hold, &token), HF_OK);
    CHECK_EQ_INT(token, hf_hold_token(hold));
    CHECK_EQ_INT(hf_release(hold), HF_OK);
    CHECK_EQ_INT(hf_fence_token(hold, &token), HF_RELEASED);
    hf_hold_free(hold);
    hf_hold_free(some);
    hf_client_close(client);
}

TEST(a_file_refuses_the_token_of_an_earlier_hold) {
    hf_client *first_client = virtual_client("memory:", NULL);
    hf_client *second_client = virtual_client("memory:other", NULL); /* it has other locks */
    make_folder();
    hf_hold *first = acquire(first_client, "lock", HF_EXCLUSIVE, 1);
    virtual_pass_us(1000000);
    hf_hold *second = acquire(second_client, "lock", HF_EXCLUSIVE, 1);
    int calls = 0;
    CHECK_EQ_INT(hf_fence_open(first, path), HF_OK);
    CHECK_EQ_INT(hf_fence_write(first, path, "first", 5), HF_OK);
    CHECK_EQ_INT(hf_fence_open(second, path), HF_OK);
    CHECK_EQ_INT(hf_fence_write(first, path, "stale", 5), HF_LOST);
    CHECK(strstr(hf_last_error(), "is refused (a later holder came with"));
    CHECK_EQ_INT(hf_fence_open(first, path), HF_LOST);
    CHECK_EQ_INT(hf_fence_check(first, path, fail_on_purpose, &calls), HF_LOST);
    CHECK_EQ_INT(calls, 0);
    check_content("first");
    CHECK_EQ_INT(hf_fence_check(second, path, fail_on_purpose, &calls), -1234);
    CHECK_EQ_INT(calls, 1);
    CHECK_EQ_INT(hf_fence_write(second, path, "second", 6), HF_OK);
    check_content("second");
    hf_hold_free(first);
    hf_hold_free(second);
    hf_client_close(first_client);
    hf_client_close(second_client);
    remove_folder();
}

TEST(a_file_refuses_shared_holds_and_wrong_arguments) {
    hf_client *client = virtual_client("memory:", NULL);
    make_folder();
    hf_hold *reader = acquire(client, "lock", HF_SHARED, 1);
    hf_hold *hold = acquire(client, "other", HF_EXCLUSIVE, 1);
    int calls = 0;
    CHECK_EQ_INT(hf_fence_open(reader, path), HF_WRONG_KIND);
    CHECK_EQ_INT(hf_fence_write(reader, path, "x", 1), HF_WRONG_KIND);
    CHECK_EQ_INT(hf_fence_check(reader, path, fail_on_purpose, &calls), HF_WRONG_KIND);
    CHECK_EQ_INT(hf_fence_open(hold, NULL), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_fence_open(NULL, path), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_fence_write(hold, path, NULL, 1), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_fence_check(hold, path, NULL, NULL), HF_BAD_ARGUMENT);
    CHECK_EQ_INT(hf_fence_open(hold, "/nonexistent/folder/data"), HF_SYSTEM);
    CHECK(strstr(hf_last_error(), "cannot open the folder of /nonexistent/folder/data"));
    CHECK_EQ_INT(hf_release(hold), HF_OK);
    CHECK_EQ_INT(hf_fence_write(hold, path, "x", 1), HF_RELEASED);
    CHECK_EQ_INT(calls, 0);
    CHECK(access(path, F_OK) < 0);
    hf_hold_free(reader);
    hf_hold_free(hold);
    hf_client_close(client);
    remove_folder();
}

TEST(a_file_checks_all_names_of_a_hold) {
    hf_client *one = virtual_client("memory:", NULL), *two = virtual_client("memory:other", NULL);
    hf_want a = HF_WANT_INIT, b = HF_WANT_INIT;
    hf_hold *both;
    make_folder();
    a.name = "a";
    b.name = "b";
    const hf_want *wants[] = {&b, &a};
    CHECK_EQ_INT(hf_acquire_all(one, wants, 2, NULL, &both), HF_OK);
    CHECK_EQ_INT(hf_fence_write(both, path, "both", 4), HF_OK);
    virtual_pass_us(1000000);
    hf_hold *later = acquire(two, "a", HF_EXCLUSIVE, 1);
    CHECK_EQ_INT(hf_fence_open(later, path), HF_OK);
    CHECK_EQ_INT(hf_fence_write(both, path, "stale", 5), HF_LOST);
    CHECK(strstr(hf_last_error(), "of \"a\" is refused"));
    check_content("both");
    hf_hold_free(both);
    hf_hold_free(later);
    hf_client_close(one);
    hf_client_close(two);
    remove_folder();
}
