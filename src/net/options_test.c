/* Numbers and switches in URLs. */
#include "net/options.h"

#include "check.h"

#include <holdfast/holdfast.h>

static struct url url;
static char *text;

static void open_url(const char *options) {
    char whole[256];
    const char *why;
    snprintf(whole, sizeof(whole), "any://host?%s", options);
    CHECK_EQ_INT(url_parse(whole, &url, &why), HF_OK);
}

static void check_refused(int r, const char *sentence) {
    CHECK_EQ_INT(r, HF_BAD_URL);
    CHECK_EQ_STR(text, sentence);
    free(text);
    text = NULL;
}

static uint64_t number_of(const char *options) {
    uint64_t number = 7;
    open_url(options);
    CHECK_EQ_INT(net_option_number(&url, "size", 2, 1000, &number, &text), HF_OK);
    url_free(&url);
    return number;
}

static void check_no_number(const char *options) {
    uint64_t number = 7;
    open_url(options);
    int r = net_option_number(&url, "size", 2, 1000, &number, &text);
    check_refused(r, "size is not a number from 2 to 1000");
    CHECK_EQ_INT(number, 7);
    url_free(&url);
}

TEST(a_number_is_decimal_and_in_its_range) {
    CHECK_EQ_INT(number_of("size=2"), 2);
    CHECK_EQ_INT(number_of("size=1000"), 1000);
    CHECK_EQ_INT(number_of("size=010"), 10);
}

TEST(an_option_that_is_not_given_leaves_the_default) {
    CHECK_EQ_INT(number_of("other=2"), 7);
}

TEST(what_is_no_number_or_out_of_range_is_refused) {
    static const char *const wrong[] = {"size=",
                                        "size=1",
                                        "size=1001",
                                        "size=-5",
                                        "size=+5",
                                        "size=x",
                                        "size=%205",
                                        "size=5s",
                                        "size=5.0",
                                        "size=5 ",
                                        "size=0x10",
                                        "size=5e1",
                                        "size=18446744073709551618"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        check_no_number(wrong[i]);
}

TEST(a_number_that_does_not_fit_64_bits_is_refused_whatever_the_range) {
    uint64_t number = 7;
    int r = net_parse_number("18446744073709551616", "it", 0, UINT64_MAX, &number, &text);
    check_refused(r, "it is not a number from 0 to 18446744073709551615");
    CHECK_EQ_INT(net_parse_number("18446744073709551615", "it", 0, UINT64_MAX, &number, &text),
                 HF_OK);
    CHECK(number == UINT64_MAX);
}

TEST(a_time_is_milliseconds_in_the_url_and_microseconds_in_the_program) {
    int64_t us = 5;
    open_url("timeout=250");
    CHECK_EQ_INT(net_option_ms(&url, "timeout", 1000, &us, &text), HF_OK);
    CHECK_EQ_INT(us, 250000);
    CHECK_EQ_INT(net_option_ms(&url, "other", 1000, &us, &text), HF_OK);
    CHECK_EQ_INT(us, 250000);
    url_free(&url);
    open_url("timeout=0");
    check_refused(net_option_ms(&url, "timeout", 1000, &us, &text),
                  "timeout is not a number from 1 to 1000");
    CHECK_EQ_INT(us, 250000);
    url_free(&url);
}

TEST(a_switch_is_yes_and_nothing_else) {
    bool is_on = false;
    open_url("a=yes&b=no&c=");
    CHECK_EQ_INT(net_option_yes(&url, "missing", &is_on, &text), HF_OK);
    CHECK(!is_on);
    CHECK_EQ_INT(net_option_yes(&url, "a", &is_on, &text), HF_OK);
    CHECK(is_on);
    check_refused(net_option_yes(&url, "b", &is_on, &text), "b is \"no\"; it can only be \"yes\"");
    check_refused(net_option_yes(&url, "c", &is_on, &text), "c is \"\"; it can only be \"yes\"");
    url_free(&url);
}
