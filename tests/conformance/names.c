/* Names of every spelling: each is a separate lock, and is listed as it was given. */
#include "suite.h"

BOTH_FORMS(names_may_begin_with_each_other) {
    hf_client *a = open_client(), *b = open_client();
    const char *base = fresh_name("prefix");
    static const char *const tails[] = {"", "*", "*1", "/", "/1", "/1/2", "[a]", "_", "a", "ab"};
    enum { COUNT = sizeof tails / sizeof *tails };
    char *names[COUNT];
    hf_hold *holds[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        CHECK(asprintf(&names[i], "%s%s", base, tails[i]) > 0);
    hold_all(a, names, COUNT, holds);
    check_each_is_busy(b, names, COUNT);
    check_list(b, base, 3, names, COUNT);
    check_list(b, names[1], 2, names + 1, 2); /* a prefix is not a pattern */
    check_list(b, names[3], 2, names + 3, 3);
    check_list(b, names[6], 2, names + 6, 1);
    check_list(b, names[7], 2, names + 7, 1);
    check_list(b, names[9], 2, names + 9, 1);
    for (size_t i = 0; i < COUNT; i++) {
        let_go(holds[i]);
        CHECK_IS(attempt(b, names[i], as_exclusive(0)), HF_OK);
        free(names[i]);
    }
}

TEST(names_may_have_every_byte_but_nul) {
    hf_client *a = open_client(), *b = open_client();
    const char *base = fresh_name("bytes");
    enum { COUNT = 255 };
    char *names[COUNT];
    hf_hold *holds[COUNT];
    for (int i = 0; i < COUNT; i++)
        CHECK(asprintf(&names[i], "%s%c", base, i + 1) > 0);
    hold_all(a, names, COUNT, holds);
    check_each_is_busy(b, names, COUNT);
    check_list(b, base, 100, names, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        let_go(holds[i]);
        free(names[i]);
    }
}
