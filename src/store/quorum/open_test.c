/* The name of a set: the same for all ways to write the same servers, and another for other
 * servers. */
#include "base/url.h"
#include "set_test.h"

#include <stdlib.h>

/* The name of the set of a URL, which is opened and never used. */
static void name_set(const char *text, char ret_name[256]) {
    struct url url;
    const char *why;
    char *particulars = NULL;
    struct store *store;
    setenv("HOLDFAST_MODULE_PATH", TLS_MODULE_DIR, 1);
    set_host(&set.host);
    CHECK_EQ_INT(url_parse(text, &url, &why), HF_OK);
    int r = store_quorum.open(&set.host, &url, &store, &particulars);
    if (r < 0)
        test_fail(__FILE__, __LINE__, "%s: %s", text, particulars ? particulars : "");
    snprintf(ret_name, 256, "%s", container_of(store, struct quorum, store)->set_name);
    store_quorum.close(store);
    world_close(set.host.world);
    url_free(&url);
}

static bool is_one_set(const char *a, const char *b) {
    char name_a[256], name_b[256];
    name_set(a, name_a);
    name_set(b, name_b);
    return strcmp(name_a, name_b) == 0;
}

TEST(the_same_servers_written_in_another_way_are_the_same_set) {
    CHECK(is_one_set("quorum+redis://a,b,c", "quorum+redis://c,a,b"));
    CHECK(is_one_set("quorum+redis://a,b,c", "quorum+redis://a:6379,b,c:6379"));
    CHECK(is_one_set("quorum+redis://a.example,b,c", "quorum+redis://A.Example.,B,c"));
    CHECK(is_one_set("quorum+redis://localhost:1,127.0.0.1:2,LOCALHOST:3",
                     "quorum+redis://127.0.0.1:1,localhost:2,127.0.0.1:3"));
    CHECK(is_one_set("quorum+redis://[fd00:0:0::0a],10.0.0.1,c",
                     "quorum+redis://[FD00::A],[::ffff:10.0.0.1],c"));
}

TEST(other_servers_are_another_set) {
    CHECK(!is_one_set("quorum+redis://a,b,c", "quorum+redis://a,b,d"));
    CHECK(!is_one_set("quorum+redis://a,b,c", "quorum+redis://a:6380,b,c"));
    CHECK(!is_one_set("quorum+redis://a,b,c", "quorum+redis://a.example,b,c"));
    CHECK(!is_one_set("quorum+redis://[::1]:1,b,c", "quorum+redis://127.0.0.1:1,b,c"));
    CHECK(!is_one_set("quorum+redis://[fe80::1],b,c", "quorum+redis://[fe80::2],b,c"));
}
