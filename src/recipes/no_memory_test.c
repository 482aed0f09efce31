/* Recipes without memory: a clear error, and nothing leaks (AddressSanitizer looks). */
#include "check.h"
#include "support/failing.h"

#include <holdfast/holdfast.h>

static hf_client *client;

static void open_client(void) {
    CHECK_EQ_INT(hf_client_open("memory:recipes", NULL, &client), HF_OK);
}

/* A watch that cannot be started is done without. */
static void observe_until_time_is_up(void) {
    hf_leader leader = HF_LEADER_INIT;
    int r = hf_observe(client, "x", 0, 30, &leader);
    CHECK(r == HF_TIMEOUT || r == HF_NO_MEMORY);
    CHECK(r == HF_TIMEOUT || strstr(hf_last_error(), "out of memory"));
    CHECK(leader.token == 0);
}

TEST(observing_survives_failed_allocations) {
    open_client();
    fail_at_every_index(observe_until_time_is_up);
    hf_client_close(client);
}
