/* The rules that nodes of a set share. */
#include "check.h"

#include "store/voting.h"

#include <stdlib.h>

TEST(a_vote_is_retaken_only_if_nobody_had_a_larger_token_since) {
    char *text = NULL;
    CHECK_EQ_INT(store_check_retake(41, 42, &text), HF_OK);
    CHECK_EQ_INT(store_check_retake(42, 42, &text), HF_OK);
    CHECK(!text);
    CHECK_EQ_INT(store_check_retake(43, 42, &text), HF_NOT_YOURS);
    CHECK_EQ_STR(text, "its token is now 43");
    free(text);
}

static void check_sets(const char *theirs, const char *ours, const char *expected) {
    char *difference = store_compare_sets(theirs, ours);
    CHECK_EQ_STR(difference, expected);
    free(difference);
}

TEST(what_differs_in_two_sets_is_named) {
    check_sets("a/5/3/60000", "a/3/2/60000",
               "the number of servers is 5 there and 3 here, the quorum is 3 there and 2 here");
    check_sets("a/b/3/2/60000", "a/b/3/2/30000", "max_lease in ms is 60000 there and 30000 here");
    check_sets("a/3/2/60000/durable", "a/3/2/60000", "durable is yes there and not set here");
    check_sets("0123456789abcdef/3/2/60000", "a/3/2/60000",
               "the servers differ, or have other names in the URL, or its id= differs");
    check_sets("what is this", "a/3/2/60000", "what is this is not the name of a set");
}
