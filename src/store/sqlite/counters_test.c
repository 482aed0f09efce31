/* Counters in the file: they outlive their clients, and what has expired does not stay. */
#include "store/sqlite/sqlite_test.h"

static int64_t add(hf_client *client, const char *name, int64_t expiry_ms) {
    hf_count_options options = HF_COUNT_OPTIONS_INIT;
    options.op = HF_COUNT_ADD;
    options.number = 1;
    options.expiry_ms = expiry_ms;
    hf_counter counter = HF_COUNTER_INIT;
    CHECK_IS(hf_count(client, name, &options, &counter), HF_OK);
    return counter.value;
}

TEST(a_counter_outlives_its_clients) {
    for (int i = 1; i <= 3; i++) {
        hf_client *client = open_client();
        CHECK_EQ_INT(add(client, "x", 0), i);
        hf_client_close(client);
    }
}

TEST(expired_counters_leave_the_file) {
    hf_client *client = open_client();
    char name[16];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "short-%d", i);
        add(client, name, 1);
    }
    AWAIT(add(client, "lasts", 0) && query(the_file(), "SELECT count(*) FROM counters") == 1);
    hf_client_close(client);
}

/* A lost answer is asked for again within a minute, or never. */
TEST(answers_that_nobody_will_ask_for_leave_the_file) {
    hf_client *client = open_client();
    char name[16];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "of-%d", i);
        add(client, name, 0);
    }
    CHECK_EQ_INT(query(the_file(), "SELECT count(*) FROM answers"), 3);
    query(the_file(), "UPDATE answers SET until_us = 1");
    add(client, "x", 0);
    CHECK_EQ_INT(query(the_file(), "SELECT count(*) FROM answers"), 1);
    /* From an earlier boot, which lasted longer. */
    query(the_file(), "UPDATE answers SET until_us = until_us + 1000000000, name = 'before'");
    add(client, "x", 0);
    CHECK_EQ_INT(query(the_file(), "SELECT count(*) FROM answers"), 1);
    hf_client_close(client);
}
