/* A store module of the smallest kind, for the tests of the registry: it loads, it opens, and it
 * refuses whatever is asked of it with HF_DENIED. Built with another TEST_MODULE_ABI, it must not
 * be loaded; built with another TEST_MODULE_SYMBOL, it is a library that is no module at all. */
#include "store/store.h"

#include <stdlib.h>

#ifndef TEST_MODULE_ABI
#define TEST_MODULE_ABI STORE_ABI
#endif
#ifndef TEST_MODULE_SYMBOL
#define TEST_MODULE_SYMBOL holdfast_store_driver
#endif

struct test_store {
    struct store store;
    struct store_host *host;
};

extern const struct store_driver TEST_MODULE_SYMBOL;

static int test_open(struct store_host *host, const struct url *url, struct store **ret_store,
                     char **ret_text) {
    (void)url;
    (void)ret_text;
    struct test_store *self = malloc(sizeof(*self));
    if (!self)
        return HF_NO_MEMORY;
    *self = (struct test_store){{&TEST_MODULE_SYMBOL}, host};
    *ret_store = &self->store;
    return HF_OK;
}

static void test_submit(struct store *store, struct store_op *op) {
    store_refuse(container_of(store, struct test_store, store)->host, op, HF_DENIED, NULL);
}

static void test_close(struct store *store) {
    free(container_of(store, struct test_store, store));
}

__attribute__((visibility("default"))) const struct store_driver TEST_MODULE_SYMBOL = {
    .abi = TEST_MODULE_ABI,
    .scheme = "testmodule",
    .tier = "best effort",
    .capabilities = STORE_CAN_LOOK,
    .open = test_open,
    .submit = test_submit,
    .close = test_close,
};
