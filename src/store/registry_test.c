/* Which store a URL names: built in, or a module that is loaded. The modules are those that
 * tests/meson.build makes of tests/support/test_module.c. */
#include "check.h"
#include "places.h"
#include "store/store.h"

#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>

static void set_module_path(const char *path) {
    CHECK(setenv("HOLDFAST_MODULE_PATH", path, 1) == 0);
}

/* The particulars of a failure to find, for the test to free. */
static char *why_not(const char *scheme) {
    const struct store_driver *driver = NULL;
    char *text = NULL;
    CHECK_EQ_INT(store_find(scheme, &driver, &text), HF_NO_STORE);
    CHECK(driver == NULL && text != NULL);
    return text;
}

static void check_says(const char *scheme, const char *words) {
    char *text = why_not(scheme);
    if (!strstr(text, words))
        test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", text, words);
    free(text);
}

TEST(the_memory_store_is_built_in) {
    const struct store_driver *driver;
    char *text = NULL;
    CHECK_EQ_INT(store_find("memory", &driver, &text), HF_OK);
    CHECK_EQ_STR(driver->scheme, "memory");
    CHECK(text == NULL);
}

TEST(the_stores_are_listed) {
    const hf_store_info *first = hf_store_at(0);
    CHECK_EQ_STR(first->scheme, "memory");
    CHECK_EQ_STR(first->missing, "");
    CHECK(first->shares && first->permits && first->queues);
    CHECK(first->lease_each && first->token_floor);
    CHECK(first->available && first->summary[0] && first->tier[0]);
    size_t count = 0;
    while (hf_store_at(count))
        count++;
    CHECK(hf_store_at(count) == NULL && hf_store_at(SIZE_MAX) == NULL);
}

TEST(a_module_is_loaded_for_its_scheme) {
    set_module_path(TEST_MODULE_DIR);
    const struct store_driver *driver, *again;
    char *text = NULL;
    CHECK_EQ_INT(store_find("testmodule", &driver, &text), HF_OK);
    CHECK_EQ_INT(driver->abi, STORE_ABI);
    CHECK_EQ_STR(driver->scheme, "testmodule");
    CHECK_EQ_INT(store_find("testmodule", &again, &text), HF_OK);
    CHECK(again == driver);
}

TEST(a_client_works_on_a_module) {
    set_module_path(TEST_MODULE_DIR);
    hf_client *client;
    hf_hold *hold;
    hf_locks *locks;
    CHECK_EQ_INT(hf_client_open("testmodule:anything", NULL, &client), HF_OK);
    CHECK_EQ_INT(hf_acquire(client, "x", NULL, &hold), HF_DENIED);
    CHECK_EQ_INT(hf_inspect(client, "x", &locks), HF_DENIED);
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.kind = HF_SHARED;
    CHECK_EQ_INT(hf_acquire(client, "x", &options, &hold), HF_UNSUPPORTED);
    CHECK(strstr(hf_last_error(), "testmodule: has no shared holds") != NULL);
    options.kind = HF_PERMITS;
    CHECK_EQ_INT(hf_acquire(client, "x", &options, &hold), HF_UNSUPPORTED);
    hf_client_close(client);
}

static hf_store_info info_of(const char *scheme) {
    const hf_store_info *info;
    for (size_t i = 0; (info = hf_store_at(i)); i++) {
        if (strcmp(info->scheme, scheme) == 0)
            return *info;
    }
    test_fail(__FILE__, __LINE__, "\"%s:\" is not listed", scheme);
    return (hf_store_info){0};
}

TEST(a_missing_module_is_named_with_what_would_bring_it) {
    set_module_path("/nonexistent");
    check_says("redis", "holdfast-redis.so is not in /nonexistent;");
    check_says("redis", "make install");
    check_says("rediss+sentinel", "holdfast-redis.so");
    check_says("rediss+cluster", "holdfast-redis.so");
    hf_client *client;
    CHECK_EQ_INT(hf_client_open("redis://user:secret@localhost/0", NULL, &client), HF_NO_STORE);
    CHECK(strstr(hf_last_error(), "holdfast-redis.so") != NULL);
    CHECK(strstr(hf_last_error(), "secret") == NULL);
}

/* In a folder that has only the Redis module. */
TEST(a_store_is_ready_only_if_all_its_modules_are_there) {
    set_module_path("/nonexistent");
    CHECK(!info_of("redis").available && !info_of("quorum+redis").available);
    CHECK(info_of("sqlite").available);
    char folder[] = "/tmp/holdfast-registry-XXXXXX", path[PATH_MAX];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/holdfast-redis.so", folder);
    fclose(fopen(path, "w"));
    set_module_path(folder);
    bool one = info_of("redis").available && info_of("quorum+redis").available;
    bool two = info_of("rediss").available || info_of("quorum+rediss").available;
    CHECK(strstr(info_of("rediss").missing, "holdfast-tls.so") != NULL);
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
    CHECK(one && !two);
}

TEST(what_stores_can_do_is_listed) {
    hf_store_info set = info_of("quorum+redis"), redis = info_of("redis");
    CHECK(set.shares && !set.permits && !set.queues && set.lease_each && set.token_floor);
    CHECK(redis.shares && redis.permits && redis.queues && redis.lease_each && redis.token_floor);
}

static bool can_the_same(const hf_store_info *a, const hf_store_info *b) {
    return a->shares == b->shares && a->permits == b->permits && a->queues == b->queues &&
           a->lease_each == b->lease_each && a->token_floor == b->token_floor;
}

/* The list must be available before a module is loaded. */
TEST(the_list_says_of_each_store_what_its_driver_says) {
    set_module_path(TLS_MODULE_DIR);
    const hf_store_info *info;
    for (size_t i = 0; (info = hf_store_at(i)); i++) {
        const struct store_driver *driver;
        char *text = NULL;
        hf_store_info listed = *info;
        CHECK_EQ_INT(store_find(listed.scheme, &driver, &text), HF_OK);
        hf_store_info described = store_describe(listed.scheme, driver);
        CHECK_EQ_STR(described.tier, listed.tier);
        if (!can_the_same(&described, &listed))
            test_fail(__FILE__, __LINE__, "%s: can do something else than is listed",
                      listed.scheme);
    }
}

TEST(a_client_says_what_its_store_is) {
    hf_client *client;
    CHECK(hf_client_store(NULL) == NULL);
    CHECK_EQ_INT(hf_client_open("memory:", NULL, &client), HF_OK);
    const hf_store_info *memory = hf_client_store(client);
    hf_store_info listed = info_of("memory");
    CHECK_EQ_INT(memory->size, sizeof *memory);
    CHECK_EQ_STR(memory->scheme, "memory");
    CHECK_EQ_STR(memory->summary, listed.summary);
    CHECK(memory->available && can_the_same(memory, &listed));
    hf_client_close(client);
    CHECK_EQ_INT(hf_client_open("quorum+memory:a,b,c", NULL, &client), HF_OK); /* not listed */
    const hf_store_info *set = hf_client_store(client);
    CHECK_EQ_STR(set->scheme, "quorum");
    CHECK_EQ_STR(set->summary, "");
    CHECK_EQ_STR(set->tier, "strict");
    CHECK(set->shares && !set->permits && !set->queues);
    hf_client_close(client);
    set_module_path(TEST_MODULE_DIR);
    CHECK_EQ_INT(hf_client_open("testmodule:x", NULL, &client), HF_OK);
    const hf_store_info *module = hf_client_store(client);
    CHECK_EQ_STR(module->scheme, "testmodule");
    CHECK(!module->shares && !module->permits && !module->queues);
    CHECK(!module->lease_each && !module->token_floor);
    hf_client_close(client);
}

TEST(a_token_floor_is_refused_where_there_can_be_none) {
    set_module_path(TEST_MODULE_DIR);
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    hf_client *client;
    options.token_floor = 1;
    CHECK_EQ_INT(hf_client_open("testmodule:x", &options, &client), HF_UNSUPPORTED);
    CHECK(strstr(hf_last_error(), "testmodule: has no token floor") != NULL);
    CHECK_EQ_INT(hf_client_open("memory:", &options, &client), HF_OK);
    hf_client_close(client);
}

/* This program is linked statically: it has no library to look beside. */
TEST(without_a_path_the_installed_modules_are_looked_for) {
    unsetenv("HOLDFAST_MODULE_PATH");
    hf_store_info info = info_of("redis");
    CHECK(info.available || strstr(info.missing, "is not in " HOLDFAST_MODULE_DIR ";"));
}

TEST(a_scheme_that_nobody_knows_is_reported_with_those_that_there_are) {
    unsetenv("HOLDFAST_MODULE_PATH");
    check_says("nosuchstore", "\"nosuchstore:\" is not one of memory:, sqlite:, ");
}

TEST(a_store_that_cannot_vote_is_no_node_of_a_set) {
    hf_client *client;
    CHECK_EQ_INT(hf_client_open("quorum+sqlite:/tmp/a,/tmp/b,/tmp/c", NULL, &client),
                 HF_UNSUPPORTED);
    CHECK(strstr(hf_last_error(), "sqlite: cannot be a node of a set") != NULL);
    CHECK_EQ_INT(hf_client_open("quorum+quorum+memory:a,b,c", NULL, &client), HF_UNSUPPORTED);
    CHECK_EQ_INT(hf_client_open("quorum+memory:a,b,c", NULL, &client), HF_OK);
    hf_client_close(client);
}

TEST(a_module_of_another_version_is_refused) {
    set_module_path(TEST_MODULE_DIR);
    check_says("testoldabi", "another version of holdfast");
    check_says("testoldabi", "holdfast-testoldabi.so");
}

TEST(a_library_that_is_no_module_is_refused) {
    set_module_path(TEST_MODULE_DIR);
    check_says("testnosymbol", "holdfast_store_driver");
}

TEST(a_file_that_is_no_library_is_refused) {
    char folder[] = "/tmp/holdfast-registry-XXXXXX", path[PATH_MAX];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/holdfast-text.so", folder);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fputs("not a library\n", file);
    fclose(file);
    set_module_path(folder);
    char *text = why_not("text");
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
    CHECK(strstr(text, "cannot be loaded") && strstr(text, path));
    free(text);
}

/* A path that is cut off must not name another file than was meant. */
TEST(a_path_that_is_too_long_finds_nothing) {
    char path[2 * PATH_MAX];
    memset(path, 'x', sizeof path - 1);
    path[0] = '/';
    path[sizeof path - 1] = 0;
    set_module_path(path);
    free(why_not("testmodule"));
}

static void *find_module(void *arg) {
    (void)arg;
    for (int i = 0; i < 50; i++) {
        const struct store_driver *driver;
        char *text = NULL;
        CHECK_EQ_INT(store_find("testmodule", &driver, &text), HF_OK);
        CHECK_EQ_INT(store_find("testnosymbol", &driver, &text), HF_NO_STORE);
        free(text);
    }
    return NULL;
}

TEST(threads_may_load_at_once) {
    set_module_path(TEST_MODULE_DIR);
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, find_module, NULL) == 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}
