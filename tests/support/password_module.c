/* A store that wants a password, for the tests of the command: it opens for the user "app" with the
 * right one and then grants whatever is asked for. */
#include "base/url.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

static const char right[] = "p@ss/w:rd %#?";

struct password_store {
    struct store store;
    struct store_host *host;
};

extern const struct store_driver holdfast_store_driver;

static int password_open(struct store_host *host, const struct url *url, struct store **ret_store,
                         char **ret_text) {
    (void)ret_text;
    if (!url->user || strcmp(url->user, "app") != 0 || !url->password ||
        strcmp(url->password, right) != 0)
        return HF_DENIED;
    struct password_store *self = malloc(sizeof(*self));
    if (!self)
        return HF_NO_MEMORY;
    *self = (struct password_store){{&holdfast_store_driver}, host};
    *ret_store = &self->store;
    return HF_OK;
}

static void password_submit(struct store *store, struct store_op *op) {
    struct store_host *host = container_of(store, struct password_store, store)->host;
    if (op->type == STORE_ACQUIRE)
        op->token = op->floor ? op->floor : 1;
    for (size_t i = 0; op->type == STORE_RENEW && i < op->renewal_count; i++)
        op->renewals[i].outcome = STORE_DONE;
    if (op->type == STORE_ACQUIRE || op->type == STORE_RENEW || op->type == STORE_RELEASE)
        store_complete(host, op, STORE_DONE);
    else
        store_refuse(host, op, HF_DENIED, NULL);
}

static void password_close(struct store *store) {
    free(container_of(store, struct password_store, store));
}

__attribute__((visibility("default"))) const struct store_driver holdfast_store_driver = {
    .abi = STORE_ABI,
    .scheme = "testpassword",
    .tier = "best effort",
    .capabilities = STORE_CAN_SHARE,
    .open = password_open,
    .submit = password_submit,
    .close = password_close,
};
