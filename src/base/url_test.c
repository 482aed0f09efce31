/* Each form of a URL, each refusal with its sentence, what redaction hides and what it leaves, and
 * what happens without memory. */
#include "base/url.h"
#include "check.h"
#include "support/failing.h"

#include <holdfast/holdfast.h>

static struct url parsed(const char *text) {
    struct url url = {0};
    const char *why = NULL;
    if (url_parse(text, &url, &why) != HF_OK)
        test_fail(__FILE__, __LINE__, "\"%s\" was refused: %s", text, why ? why : "no reason");
    CHECK(!why);
    return url;
}

static void check_refused(const char *text, const char *expected) {
    struct url url = {.host_count = 77};
    const char *why = NULL;
    if (url_parse(text, &url, &why) != HF_BAD_URL)
        test_fail(__FILE__, __LINE__, "\"%s\" was accepted", text);
    CHECK_EQ_STR(why, expected);
    CHECK_EQ_INT(url.host_count, 77);
}

static void check_redacted(const char *text, const char *expected) {
    char *redacted = url_redacted(text);
    CHECK_EQ_STR(redacted, expected);
    free(redacted);
}

/* A URL that begins with `head`, then has `part` `count` times, then `tail`. */
static char *repeated(const char *head, const char *part, size_t count, const char *tail) {
    char *text = malloc(strlen(head) + strlen(part) * count + strlen(tail) + 1);
    char *to = stpcpy(text, head);
    while (count--)
        to = stpcpy(to, part);
    strcpy(to, tail);
    return text;
}

/* ---- Forms -------------------------------------------------------------------------------- */

TEST(a_scheme_alone_has_an_empty_path_and_nothing_else) {
    struct url url = parsed("memory:");
    CHECK_EQ_STR(url.scheme, "memory");
    CHECK_EQ_STR(url.path, "");
    CHECK_EQ_STR(url.user, NULL);
    CHECK_EQ_STR(url.password, NULL);
    CHECK_EQ_INT(url.host_count, 0);
    CHECK_EQ_INT(url.option_count, 0);
    url_free(&url);
}

TEST(without_two_slashes_what_follows_the_scheme_is_the_path) {
    struct url url = parsed("memory:jobs");
    CHECK_EQ_STR(url.path, "jobs");
    CHECK_EQ_INT(url.host_count, 0);
    url_free(&url);
}

TEST(a_file_may_be_relative_or_absolute_and_have_escapes_and_spaces) {
    static const char *const cases[][2] = {
        {"sqlite:locks.db", "locks.db"},
        {"sqlite:./a/b.db", "./a/b.db"},
        {"sqlite:/var/lib/locks.db", "/var/lib/locks.db"},
        {"sqlite:///var/lib/locks.db", "/var/lib/locks.db"},
        {"sqlite:/home/jo@corp/my locks.db", "/home/jo@corp/my locks.db"},
        {"sqlite:/a%20b%3fc%2Fd%25.db", "/a b?c/d%.db"},
        {"sqlite:/z\xc3\xbcrich.db", "/z\xc3\xbcrich.db"},
        {"sqlite:/a:b,c=d&e.db", "/a:b,c=d&e.db"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct url url = parsed(cases[i][0]);
        CHECK_EQ_STR(url.scheme, "sqlite");
        CHECK_EQ_STR(url.path, cases[i][1]);
        CHECK_EQ_INT(url.host_count, 0);
        url_free(&url);
    }
}

TEST(a_file_may_have_options) {
    struct url url = parsed("sqlite:locks.db?sync=full");
    CHECK_EQ_STR(url.path, "locks.db");
    CHECK_EQ_STR(url_option(&url, "sync"), "full");
    url_free(&url);
}

TEST(a_server_has_user_password_host_port_path_and_options) {
    struct url url = parsed("redis://jo:s3cret@db.example:6380/2?prefix=app:&timeout_ms=500");
    CHECK_EQ_STR(url.scheme, "redis");
    CHECK_EQ_STR(url.user, "jo");
    CHECK_EQ_STR(url.password, "s3cret");
    CHECK_EQ_INT(url.host_count, 1);
    CHECK_EQ_STR(url.hosts[0].host, "db.example");
    CHECK_EQ_INT(url.hosts[0].port, 6380);
    CHECK_EQ_STR(url.path, "/2");
    CHECK_EQ_INT(url.option_count, 2);
    CHECK_EQ_STR(url_option(&url, "prefix"), "app:");
    CHECK_EQ_STR(url_option(&url, "timeout_ms"), "500");
    CHECK_EQ_STR(url_option(&url, "timeout"), NULL);
    url_free(&url);
}

TEST(everything_but_the_host_may_be_left_out) {
    struct url url = parsed("redis://db");
    CHECK_EQ_STR(url.hosts[0].host, "db");
    CHECK_EQ_INT(url.hosts[0].port, 0);
    CHECK_EQ_STR(url.user, NULL);
    CHECK_EQ_STR(url.password, NULL);
    CHECK_EQ_STR(url.path, "");
    url_free(&url);
}

TEST(a_user_needs_no_password_and_a_password_no_user) {
    struct url user = parsed("redis://jo@db");
    CHECK_EQ_STR(user.user, "jo");
    CHECK_EQ_STR(user.password, NULL);
    url_free(&user);
    struct url password = parsed("redis://:s3cret@db");
    CHECK_EQ_STR(password.user, NULL);
    CHECK_EQ_STR(password.password, "s3cret");
    url_free(&password);
}

TEST(user_and_password_are_decoded_after_they_are_told_apart) {
    struct url url = parsed("redis://j%3Ao:a%40b%2fc:d,e@db");
    CHECK_EQ_STR(url.user, "j:o");
    CHECK_EQ_STR(url.password, "a@b/c:d,e");
    CHECK_EQ_STR(url.hosts[0].host, "db");
    url_free(&url);
}

TEST(a_socket_has_a_path_and_no_host) {
    struct url url = parsed("redis+unix://jo:s3cret@/run/redis.sock?db=2");
    CHECK_EQ_STR(url.scheme, "redis+unix");
    CHECK_EQ_STR(url.user, "jo");
    CHECK_EQ_INT(url.host_count, 0);
    CHECK_EQ_STR(url.path, "/run/redis.sock");
    CHECK_EQ_STR(url_option(&url, "db"), "2");
    url_free(&url);
}

TEST(an_ipv6_address_stands_in_brackets_and_loses_them) {
    struct url url =
        parsed("redis://[::1]:6379,[2001:db8::7],[fe80::1%25eth0]:1,[::ffff:10.0.0.1]");
    CHECK_EQ_INT(url.host_count, 4);
    CHECK_EQ_STR(url.hosts[0].host, "::1");
    CHECK_EQ_INT(url.hosts[0].port, 6379);
    CHECK_EQ_STR(url.hosts[1].host, "2001:db8::7");
    CHECK_EQ_INT(url.hosts[1].port, 0);
    CHECK_EQ_STR(url.hosts[2].host, "fe80::1%eth0");
    CHECK_EQ_INT(url.hosts[2].port, 1);
    CHECK_EQ_STR(url.hosts[3].host, "::ffff:10.0.0.1");
    url_free(&url);
}

TEST(several_hosts_have_a_port_each_or_none) {
    struct url url = parsed("redis+sentinel://h1,h2:26379,h3/service");
    CHECK_EQ_INT(url.host_count, 3);
    CHECK_EQ_STR(url.hosts[0].host, "h1");
    CHECK_EQ_INT(url.hosts[0].port, 0);
    CHECK_EQ_STR(url.hosts[1].host, "h2");
    CHECK_EQ_INT(url.hosts[1].port, 26379);
    CHECK_EQ_STR(url.hosts[2].host, "h3");
    CHECK_EQ_INT(url.hosts[2].port, 0);
    CHECK_EQ_STR(url.path, "/service");
    url_free(&url);
}

TEST(options_may_follow_the_hosts_directly) {
    struct url url = parsed("quorum+redis://h1,h2,h3,h4,h5?quorum=3");
    CHECK_EQ_INT(url.host_count, 5);
    CHECK_EQ_STR(url.hosts[4].host, "h5");
    CHECK_EQ_STR(url.path, "");
    CHECK_EQ_STR(url_option(&url, "quorum"), "3");
    url_free(&url);
}

TEST(a_value_may_be_empty_and_contain_delimiters_and_escapes) {
    struct url url = parsed("redis://db?prefix=&label=a=b?c/d%26e+f");
    CHECK_EQ_STR(url_option(&url, "prefix"), "");
    CHECK_EQ_STR(url_option(&url, "label"), "a=b?c/d&e+f");
    url_free(&url);
}

TEST(the_largest_of_everything_is_accepted) {
    char *longest = repeated("sqlite:", "x", URL_LENGTH_MAX - 7, "");
    char *hosts = repeated("redis://h", ",h", URL_HOSTS_MAX - 1, ":65535");
    char options[URL_OPTIONS_MAX * 8] = "memory:?k=v";
    for (int i = 1; i < URL_OPTIONS_MAX; i++)
        sprintf(options + strlen(options), "&k%d=v", i);
    struct url url = parsed(longest);
    CHECK_EQ_INT(strlen(url.path), URL_LENGTH_MAX - 7);
    url_free(&url);
    url = parsed(hosts);
    CHECK_EQ_INT(url.host_count, URL_HOSTS_MAX);
    CHECK_EQ_INT(url.hosts[URL_HOSTS_MAX - 1].port, 65535);
    url_free(&url);
    url = parsed(options);
    CHECK_EQ_INT(url.option_count, URL_OPTIONS_MAX);
    url_free(&url);
    free(longest);
    free(hosts);
}

TEST(freeing_leaves_nothing_behind_and_may_be_repeated) {
    struct url url = parsed("redis://jo:s3cret@db?a=b");
    url_free(&url);
    CHECK_EQ_STR(url.scheme, NULL);
    CHECK_EQ_STR(url_option(&url, "a"), NULL);
    url_free(&url);
}

/* ---- Refusals ----------------------------------------------------------------------------- */

TEST(a_url_without_a_scheme_is_refused) {
    const char *why = "a URL begins with a scheme and ':', such as redis: or sqlite:";
    check_refused("", why);
    check_refused("jobs", why);
    check_refused("/var/lib/locks.db", why);
}

TEST(a_scheme_of_other_characters_is_refused) {
    const char *why = "the scheme must be lower-case letters, digits, '+', '-' and '.', and begin "
                      "with a letter";
    check_refused(":", why);
    check_refused("://db", why);
    check_refused("Redis://db", why);
    check_refused("6redis://db", why);
    check_refused("re dis://db", why);
    check_refused("r%65dis://db", why);
    check_refused("db.example/0:1", why);
}

TEST(control_characters_are_refused_wherever_they_are) {
    const char *why = "there is a control character (a line end?) in the URL";
    check_refused("redis://db\n", why);
    check_refused("redis://db/\x1b[31m", why);
    check_refused("\tredis://db", why);
    check_refused("sqlite:a\x7f", why);
}

TEST(a_hash_sign_is_refused) {
    check_refused("redis://jo:a#b@db", "a '#' must be written %23");
    check_refused("sqlite:a#b", "a '#' must be written %23");
}

TEST(bad_escapes_are_refused) {
    const char *why = "a '%' must be followed by two hexadecimal digits; write '%' itself as %25";
    check_refused("sqlite:100%", why);
    check_refused("sqlite:%4", why);
    check_refused("sqlite:%4?a=b", why);
    check_refused("sqlite:%g0", why);
    check_refused("sqlite:%0x", why);
    check_refused("redis://j%o@db", why);
    check_refused("redis://jo:%%@db", why);
    check_refused("redis://db?a=%", why);
}

TEST(an_escaped_nul_is_refused) {
    check_refused("sqlite:a%00b", "%00 cannot be part of a URL");
    check_refused("redis://jo:%00@db", "%00 cannot be part of a URL");
    check_refused("memory:?a=%00", "%00 cannot be part of a URL");
}

TEST(empty_user_info_is_refused) {
    check_refused("redis://@db", "the user info before '@' is empty");
    check_refused("redis://jo:@db", "the password between ':' and '@' is empty");
    check_refused("redis://:@db", "the password between ':' and '@' is empty");
}

TEST(a_second_at_sign_behind_the_slashes_is_refused) {
    const char *why = "an '@' other than the one before the hosts must be written %40, and in a "
                      "password '/' and '?' as %2F and %3F";
    check_refused("redis://jo:a@b@db", why);
    check_refused("redis://jo:a@h1,jo:a@h2", why);
    check_refused("redis://jo:12/a@db", why);
    check_refused("redis://jo:12?a=@db", why);
}

TEST(empty_hosts_are_refused) {
    const char *why = "a host is empty: hosts follow \"//\" or '@', separated by ','";
    check_refused("redis://", why);
    check_refused("redis://?a=b", why);
    check_refused("redis://:6379", why);
    check_refused("redis://jo@", why);
    check_refused("redis://h1,,h2", why);
    check_refused("redis://h1,", why);
    check_refused("redis://,/0", why);
    check_refused("redis://[]", why);
}

TEST(hosts_of_other_characters_are_refused) {
    const char *why = "a host may have letters, digits, '-', '.' and '_'";
    check_refused("redis://d b", why);
    check_refused("redis://d%62", why);
    check_refused("redis://z\xc3\xbcrich", why);
    check_refused("redis://db]", why);
    check_refused("redis://x[::1]", why);
}

TEST(bad_brackets_are_refused) {
    const char *why = "an address in '[' must end with ']', and only ':' and a port may follow";
    check_refused("redis://[::1", why);
    check_refused("redis://[::1,h2]", why);
    check_refused("redis://[::1]6379", why);
    check_refused("redis://[::1]]", why);
}

TEST(what_is_no_ipv6_address_is_refused_in_brackets) {
    const char *why = "the text between '[' and ']' is not an IPv6 address (with %25 and a zone)";
    check_refused("redis://[db]", why);
    check_refused("redis://[10.0.0.1]", why);
    check_refused("redis://[1:2:3]", why);
    check_refused("redis://[fe80::1%25]", why);
    check_refused("redis://[fe80::1%25e%20h]", why);
    check_refused("redis://[fe80::1%eth0]", why);
    check_refused("redis://[fe80::%31]", why);
    check_refused("redis://[0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000]", why);
}

TEST(ports_outside_of_1_to_65535_are_refused) {
    const char *why = "the port after a host's ':' must be a number from 1 to 65535";
    check_refused("redis://db:", why);
    check_refused("redis://db:/0", why);
    check_refused("redis://db:0", why);
    check_refused("redis://db:65536", why);
    check_refused("redis://db:000080", why);
    check_refused("redis://db:+80", why);
    check_refused("redis://db:8o", why);
    check_refused("redis://::1", "a host is empty: hosts follow \"//\" or '@', separated by ','");
    check_refused("redis://fe80::1", why);
    check_refused("redis://[::1]:", why);
}

TEST(options_that_are_not_key_and_value_are_refused) {
    const char *why = "each option after '?' or '&' must be written key=value";
    check_refused("memory:?", why);
    check_refused("memory:?a", why);
    check_refused("memory:?=b", why);
    check_refused("memory:?a=b&", why);
    check_refused("memory:?a=b&&c=d", why);
}

TEST(keys_of_other_characters_are_refused) {
    const char *why = "an option's key may have lower-case letters, digits, '-', '.' and '_'";
    check_refused("memory:?Prefix=a", why);
    check_refused("memory:?p%61ssword=a", why);
    check_refused("memory:?a b=c", why);
}

TEST(an_option_given_twice_is_refused) {
    check_refused("memory:?a=1&b=2&a=1", "an option is given twice");
}

TEST(more_than_the_largest_of_anything_is_refused) {
    char *length = repeated("sqlite:", "x", URL_LENGTH_MAX - 6, "");
    char *hosts = repeated("redis://h", ",h", URL_HOSTS_MAX, "");
    char options[URL_OPTIONS_MAX * 8] = "memory:?k=v";
    for (int i = 1; i <= URL_OPTIONS_MAX; i++)
        sprintf(options + strlen(options), "&k%d=v", i);
    check_refused(length, "the URL is longer than 4096 bytes");
    check_refused(hosts, "there are more than 64 hosts");
    check_refused(options, "there are more than 64 options");
    free(length);
    free(hosts);
}

/* ---- Redaction ---------------------------------------------------------------------------- */

TEST(a_url_without_secrets_is_shown_as_it_is) {
    static const char *const texts[] = {
        "memory:jobs",
        "sqlite:/home/jo@corp/a:b/locks.db",
        "redis://jo@db:6379/0?prefix=app:&timeout_ms=5",
        "redis://[fe80::1%25eth0]:6379,h2:6380/0",
        "redis+unix:///run/redis.sock?password_file=/run/secret&password_env=PW&password_fd=3",
        "quorum+redis://h1,h2:7000,h3?quorum=2",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct url url = parsed(texts[i]);
        check_redacted(texts[i], texts[i]);
        url_free(&url);
    }
}

TEST(the_password_of_the_user_info_is_hidden) {
    check_redacted("redis://jo:s3cret@db:6379/0?a=b", "redis://jo:***@db:6379/0?a=b");
    check_redacted("redis://:s3cret@db", "redis://:***@db");
    check_redacted("redis://jo:a:b,c;d&e=f@db", "redis://jo:***@db");
    check_redacted("redis+unix://jo:s3cret@/run/redis.sock", "redis+unix://jo:***@/run/redis.sock");
}

TEST(options_that_look_like_secrets_are_hidden) {
    check_redacted("redis://db?password=s3cret&a=b", "redis://db?password=***&a=b");
    check_redacted("redis://db?a=b&sentinel_password=s3;c?r=et",
                   "redis://db?a=b&sentinel_password=***");
    check_redacted("memory:?PassWord=s3cret", "memory:?PassWord=***");
    check_redacted("memory:?client-secret=s3cret", "memory:?client-secret=***");
    check_redacted("memory:?passphrase=x&pwd=y&credentials=z",
                   "memory:?passphrase=***&pwd=***&credentials=***");
    check_redacted("memory:?token=x&apikey=y&token_floor=7",
                   "memory:?token=***&apikey=***&token_floor=7");
    check_redacted("quorum+sqlite:a,b,c", "quorum+sqlite:a,b,c");
    check_redacted("quorum+memory:a,b,c?id=x", "quorum+memory:a,b,c?id=x");
    check_redacted("sqlite:/home/jo@corp/x?password=s3cret", "sqlite:/home/jo@corp/x?password=***");
}

TEST(an_empty_secret_is_shown_to_be_empty) {
    check_redacted("redis://jo:@db?password=&a=b", "redis://jo:@db?password=&a=b");
}

TEST(a_password_that_was_not_escaped_is_hidden_whole) {
    check_redacted("redis://jo:s3@cret@db/0", "redis://jo:***");
    check_redacted("redis://jo:s3/cret@db/0", "redis://jo:***");
    check_redacted("redis://jo:12/cret@db/0", "redis://jo:***");
    check_redacted("redis://jo:s3?cret@db/0", "redis://jo:***");
    check_redacted("redis://jo:s3#cret@db/0", "redis://jo:***");
    check_redacted("redis://h1:a@h2,jo:b@h3", "redis://h1:***");
    check_redacted("redis://db?password=s3&cret&a=b", "redis://db?password=***&a=b");
    check_redacted("redis://db?password=s3&cret", "redis://db?password=***");
    check_redacted("redis://db?password=s3@cret", "redis://db?password=***");
    check_redacted("redis://db?password=s3:c@ret", "redis://db?password=******");
    check_redacted("redis://jo:a@db?password=s3@cret", "redis://jo:***");
}

TEST(a_password_whose_end_was_cut_off_is_hidden) {
    check_redacted("redis://jo:s3cret", "redis://jo:***");
    check_redacted("redis://:s3cret", "redis://:***");
    check_redacted("redis://jo:12cret/0", "redis://jo:***");
    check_redacted("redis://[::1]:6379,jo:s3cret", "redis://[::1]:6379,jo:***");
    check_redacted("redis://jo@corp:s3cret", "redis://jo@corp:***");
}

TEST(a_password_is_hidden_when_the_scheme_is_wrong_or_missing) {
    check_redacted("jo:s3cret@db", "jo:***@db");
    check_redacted("jo:s3cret", "jo:***");
    check_redacted("redis:jo:s3cret@db", "redis:***@db");
    check_redacted("redis//jo:s3cret@db", "redis//jo:***");
    check_redacted("redis:/jo:s3cret@db", "redis:***");
    check_redacted(" redis://jo:s3cret@db", " redis://jo:***@db");
    check_redacted("REDIS://jo:s3cret@db", "REDIS://jo:***@db");
}

TEST(a_secret_is_hidden_though_its_key_is_no_valid_one) {
    check_redacted("memory:?p%61ssword=s3cret", "memory:?p%61ssword=***");
    check_redacted("memory:? password =s3cret", "memory:? password =***");
    check_redacted("memory:#password=s3cret", "memory:#password=***");
    check_redacted("memory:?a=?password=s3cret", "memory:?a=?password=***");
    check_redacted("password=s3cret", "password=s3cret"); /* not a URL in any sense */
}

TEST(what_is_not_printable_is_shown_escaped) {
    check_redacted("a\x1b[31m\nb\x7f", "a%1B[31m%0Ab%7F");
    check_redacted("sqlite:/z\xc3\xbcrich\x9b", "sqlite:/z%C3%BCrich%9B");
    check_redacted("redis://\x01:\x02@\x03?pass\x04=\x05", "redis://%01:***@%03?pass%04=***");
}

TEST(texts_that_are_no_urls_are_shown) {
    check_redacted("", "");
    check_redacted(":", ":");
    check_redacted("@", "@");
    check_redacted("://", "://");
    check_redacted("?&;#=", "?&;#=");
    check_redacted("localhost:6379", "localhost:6379");
}

/* ---- Memory ------------------------------------------------------------------------------- */

TEST(without_memory_parsing_says_so_and_touches_nothing) {
    int failures = 0;
    while (fail_next(FAIL_ALL_AFTER)) {
        struct url url = {.host_count = 77};
        const char *why = NULL;
        int r = url_parse("redis://jo:s3cret@h1,[::1]:1/0?a=b&c=d", &url, &why);
        CHECK_EQ_INT(r, fail_happened() ? HF_NO_MEMORY : HF_OK);
        CHECK(!why);
        if (r == HF_OK)
            url_free(&url);
        else
            CHECK_EQ_INT(url.host_count, 77);
        failures += fail_happened();
    }
    CHECK(failures > 0);
}

TEST(without_memory_redaction_shows_nothing) {
    int failures = 0;
    while (fail_next(FAIL_ALL_AFTER)) {
        char *redacted = url_redacted("redis://jo:s3cret@db");
        CHECK_EQ_STR(redacted, fail_happened() ? NULL : "redis://jo:***@db");
        free(redacted);
        failures += fail_happened();
    }
    CHECK(failures > 0);
}
