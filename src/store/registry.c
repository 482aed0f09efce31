/* The stores: which one a URL's scheme names, what people are told of it, and the modules that it needs. A scheme that
 * is not listed here may still have a module of its own, from elsewhere (module.h). */
#include "base/error.h"
#include "base/module.h"
#include "store/drivers.h"

#include <stdio.h>
#include <string.h>

enum {
    MODULES_MAX = 2, /* of one store */
    SCHEME_MAX = 64, /* of which people are told */
    ONE_SERVER = STORE_CAN_SHARE | STORE_CAN_PERMITS | STORE_CAN_QUEUE,
    A_SET = STORE_CAN_SHARE
};

#define REDIS \
    { "redis" }
#define REDIS_TLS \
    { "redis", "tls" }

static const struct known {
    const char *scheme, *tier, *summary;
    unsigned can;                      /* STORE_CAN_SHARE, _PERMITS, _QUEUE */
    const struct store_driver *driver; /* NULL: it is in the first of its modules */
    const char *modules[MODULES_MAX];
} stores[] = {
    {"memory", "timed", "threads of one process", ONE_SERVER, &store_memory, {0}},
    {"sqlite", "timed", "processes of one host, in a file", ONE_SERVER, &store_sqlite, {0}},
    {"rediss", "timed", "all who reach one Redis server, over TLS", ONE_SERVER, NULL, REDIS_TLS},
    {"redis", "timed", "all who reach one Redis server, in plaintext", ONE_SERVER, NULL, REDIS},
    {"redis+unix", "timed", "processes of one host, by a Redis server's socket", ONE_SERVER, NULL,
     REDIS},
    {"rediss+sentinel", "best effort", "a Redis master that sentinels watch, over TLS", ONE_SERVER,
     NULL, REDIS_TLS},
    {"redis+sentinel", "best effort", "a Redis master that sentinels watch, in plaintext",
     ONE_SERVER, NULL, REDIS},
    {"rediss+cluster", "best effort", "a Redis Cluster, over TLS", ONE_SERVER, NULL, REDIS_TLS},
    {"redis+cluster", "best effort", "a Redis Cluster, in plaintext", ONE_SERVER, NULL, REDIS},
    {"quorum+rediss", "strict", "a majority of independent Redis servers (Redlock), over TLS",
     A_SET, &store_quorum, REDIS_TLS},
    {"quorum+redis", "strict", "a majority of independent Redis servers (Redlock), in plaintext",
     A_SET, &store_quorum, REDIS},
};

enum { STORE_COUNT = sizeof(stores) / sizeof(stores[0]) };

static const struct known *find_known(const char *scheme) {
    for (size_t i = 0; i < STORE_COUNT; i++) {
        if (strcmp(stores[i].scheme, scheme) == 0)
            return &stores[i];
    }
    return NULL;
}

static int load_driver(const char *module, const struct store_driver **ret_driver,
                       char **ret_text) {
    char path[PATH_MAX];
    const void *symbol;
    int r = module_load(module, STORE_MODULE_SYMBOL, &symbol, ret_text);
    if (r < 0)
        return r;
    const struct store_driver *driver = symbol;
    if (driver->abi != STORE_ABI) {
        *ret_text = error_format("%s was built for another version of holdfast (%u, not %u)",
                                 module_find(module, path) ? path : module, driver->abi,
                                 (unsigned)STORE_ABI);
        return HF_NO_STORE;
    }
    *ret_driver = driver;
    return HF_OK;
}

static char *name_stores(const char *unknown) {
    char names[256] = "";
    for (size_t i = 0; i < STORE_COUNT; i++)
        error_append(names, sizeof(names), "%s%s:", i ? ", " : "", stores[i].scheme);
    return error_format("\"%.*s:\" is none of %s", SCHEME_MAX, unknown, names);
}

int store_find(const char *scheme, const struct store_driver **ret_driver, char **ret_text) {
    const struct known *known = find_known(scheme);
    char path[PATH_MAX];
    bool is_set = strncmp(scheme, "quorum+", 7) == 0;
    if (is_set || (known && known->driver)) {
        *ret_driver = is_set ? &store_quorum : known->driver;
        return HF_OK;
    }
    if (!known && !module_find(scheme, path)) {
        *ret_text = name_stores(scheme);
        return HF_NO_STORE;
    }
    return load_driver(known ? known->modules[0] : scheme, ret_driver, ret_text);
}

const hf_store_info *hf_store_at(size_t index) {
    static _Thread_local hf_store_info info;
    static _Thread_local char text[MODULE_TEXT_SIZE];
    if (index >= STORE_COUNT)
        return NULL;
    const struct known *known = &stores[index];
    info = (hf_store_info){
        .size = sizeof(info),
        .scheme = known->scheme,
        .summary = known->summary,
        .tier = known->tier,
        .available = 1,
        .missing = "",
        .shares = !!(known->can & STORE_CAN_SHARE),
        .permits = !!(known->can & STORE_CAN_PERMITS),
        .queues = !!(known->can & STORE_CAN_QUEUE),
    };
    char path[PATH_MAX];
    for (size_t i = 0; i < MODULES_MAX && known->modules[i] && info.available; i++) {
        info.available = module_find(known->modules[i], path);
        info.missing = info.available ? "" : module_missing(known->modules[i], text);
    }
    return &info;
}
