/* What a URL says about TLS and plaintext. */
#include "net/security.h"

#include "check.h"

#include <holdfast/holdfast.h>

static struct net_security security;
static char *text;

static int open_url(const char *whole) {
    struct url url;
    const char *why;
    setenv("HOLDFAST_MODULE_PATH", TLS_MODULE_DIR, 1);
    CHECK_EQ_INT(url_parse(whole, &url, &why), HF_OK);
    int r = net_security_open(&security, &url, "anys", NULL, &text);
    url_free(&url);
    return r;
}

static void check_refused(const char *url, const char *words) {
    int r = open_url(url);
    if (r != HF_BAD_URL)
        test_fail(__FILE__, __LINE__, "%s is %s", url, r ? hf_error_name(r) : "accepted");
    if (!text || !strstr(text, words))
        test_fail(__FILE__, __LINE__, "%s: \"%s\" does not say \"%s\"", url, text ? text : "",
                  words);
    CHECK(!strstr(text, "hunter2"));
    free(text);
    text = NULL;
    net_security_close(&security);
}

TEST(the_scheme_decides_on_tls) {
    CHECK_EQ_INT(open_url("any://host"), HF_OK);
    CHECK(!security.tls && !security.exposed);
    net_security_close(&security);
    CHECK_EQ_INT(open_url("anys://host"), HF_OK);
    CHECK(security.tls);
    net_security_close(&security);
    CHECK(!security.tls);
}

TEST(plaintext_to_a_public_address_is_refused_unless_it_is_asked_for) {
    static const char *const elsewhere[] = {"128.0.0.1", "0.0.0.0",     "[::]",
                                            "[::2]",     "203.0.113.5", "[::ffff:203.0.113.5]"};
    char url[128];
    for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++) {
        snprintf(url, sizeof(url), "any://jo:hunter2@%s", elsewhere[i]);
        check_refused(url, "use anys://, which is TLS, or add the option plaintext=yes");
        strcat(url, "?plaintext=yes");
        CHECK_EQ_INT(open_url(url), HF_OK);
        CHECK(security.exposed);
    }
    check_refused("any://127.0.0.1,203.0.113.5", "any:// to 203.0.113.5");
    check_refused("any://localhost?plaintext=no", "it can only be \"yes\"");
}

TEST(plaintext_within_private_networks_needs_no_option) {
    static const char *const near[] = {"localhost",         "127.0.0.1", "[::1]", "10.0.0.7",
                                       "[::ffff:10.0.0.7]", "[fe80::1]", "a-name"};
    char url[128];
    for (size_t i = 0; i < sizeof(near) / sizeof(near[0]); i++) {
        snprintf(url, sizeof(url), "any://%s", near[i]);
        CHECK_EQ_INT(open_url(url), HF_OK);
        CHECK(!security.exposed);
    }
}

TEST(files_of_tls_that_are_wrong_are_a_bad_url) {
    check_refused("anys://host?cert=/a", "must both be given");
    check_refused("anys://host?key=/a", "must both be given");
    check_refused("anys://host?ca=/does/not/exist", "cannot read the CA /does/not/exist");
    check_refused("anys://host?server_name=.", "is not a name that a certificate can have");
}

TEST(a_module_that_is_missing_is_reported) {
    struct url url;
    const char *why;
    setenv("HOLDFAST_MODULE_PATH", "/does/not/exist", 1);
    CHECK_EQ_INT(url_parse("anys://host", &url, &why), HF_OK);
    CHECK_EQ_INT(net_security_open(&security, &url, "anys", NULL, &text), HF_NO_STORE);
    CHECK(strstr(text, "holdfast-tls.so is not in /does/not/exist"));
    free(text);
    net_security_close(&security);
    url_free(&url);
}
