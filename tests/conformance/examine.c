/* Examining: every store can report what its configuration means for locks, and asking changes
 * nothing. */
#include "suite.h"

static hf_examination *examination_of(hf_client *client) {
    hf_examination *examination = NULL;
    if (form == BLOCKING) {
        CHECK_IS(hf_examine(client, &examination), HF_OK);
        return examination;
    }
    hf_call *call;
    CHECK_IS(hf_examine_start(client, &call), HF_OK);
    CHECK_IS(outcome(call), HF_OK);
    CHECK(hf_call_take_locks(call) == NULL);
    examination = hf_call_take_examination(call);
    CHECK(hf_call_take_examination(call) == NULL);
    hf_call_free(call);
    return examination;
}

static bool is_word(const char *text) {
    return *text && strspn(text, "abcdefghijklmnopqrstuvwxyz-") == strlen(text);
}

BOTH_FORMS(a_store_says_what_its_configuration_does_to_locks) {
    hf_client *a = open_client();
    hf_examination *found = examination_of(a);
    CHECK(found && found->size == sizeof *found);
    CHECK(!strcmp(found->tier, "strict") || !strcmp(found->tier, "timed") ||
          !strcmp(found->tier, "best effort"));
    CHECK(found->write_us >= -1 && found->slowest_us >= found->write_us);
    CHECK(found->count > 0);
    for (size_t i = 0; i < found->count; i++) {
        const hf_finding *finding = found->findings[i];
        CHECK_EQ_INT(finding->size, sizeof *finding);
        CHECK(finding->severity >= HF_FINE && finding->severity <= HF_PROBLEM);
        CHECK(is_word(finding->id));
        CHECK(*finding->found && *finding->means);
        CHECK(*finding->fix || finding->severity <= HF_NOTE); /* every problem has a fix */
    }
    CHECK(hf_examination_free(found) == NULL);
    CHECK(hf_examination_free(NULL) == NULL);
}

BOTH_FORMS(examining_touches_no_lock) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("examined");
    hf_hold *hold = get(a, name, as_exclusive(0));
    uint64_t token = hf_hold_token(hold);
    hf_examination_free(examination_of(b));
    CHECK_EQ_INT(holders(b, name), 1);
    CHECK_IS(hf_renew(hold, 0), HF_OK);
    let_go(hold);
    hf_hold *next = get(b, name, as_exclusive(0));
    CHECK(hf_hold_token(next) > token);
    let_go(next);
}

TEST(an_examination_that_nobody_takes_is_freed_with_its_call) {
    hf_client *a = open_client();
    hf_call *call;
    CHECK_IS(hf_examine_start(a, &call), HF_OK);
    CHECK_IS(hf_call_wait(call, PATIENCE_MS), HF_OK);
    hf_call_free(call);
    CHECK_IS(hf_examine_start(a, &call), HF_OK);
    hf_call_free(call);
    CHECK_IS(hf_examine(a, NULL), HF_BAD_ARGUMENT);
    CHECK_IS(hf_examine_start(a, NULL), HF_BAD_ARGUMENT);
}
