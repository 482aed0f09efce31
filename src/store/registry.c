/* The stores: which one a URL's scheme names, how it is described to people, and the modules that
 * it needs (schemes.h). A scheme that is in no table may still have its own module, from elsewhere
 * (module.h). */
#include "base/error.h"
#include "base/module.h"
#include "store/schemes.h"
#include "store/stores.h" /* generated from the list in meson.build */

#include <stdio.h>
#include <string.h>

enum { SCHEME_MAX = 64 }; /* how much of an unknown scheme a message shows */

#define DECLARE(store) extern const struct store_scheme store_##store##_schemes[];
STORES(DECLARE)
#define LIST(store) store_##store##_schemes,
static const struct store_scheme *const tables[] = {STORES(LIST)};

enum { TABLE_COUNT = sizeof(tables) / sizeof(tables[0]) };

static const struct store_scheme *scheme_at(size_t index) {
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        for (const struct store_scheme *row = tables[i]; row->scheme; row++) {
            if (index-- == 0)
                return row;
        }
    }
    return NULL;
}

static const struct store_scheme *find_scheme(const char *scheme) {
    const struct store_scheme *row;
    for (size_t i = 0; (row = scheme_at(i)); i++) {
        if (strcmp(row->scheme, scheme) == 0)
            return row;
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
    const struct store_scheme *row;
    for (size_t i = 0; (row = scheme_at(i)); i++)
        error_append(names, sizeof(names), "%s%s:", i ? ", " : "", row->scheme);
    return error_format("\"%.*s:\" is not one of %s", SCHEME_MAX, unknown, names);
}

int store_find(const char *scheme, const struct store_driver **ret_driver, char **ret_text) {
    const struct store_scheme *known = find_scheme(scheme);
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

static hf_store_info info_of(const char *scheme, const char *tier, const char *summary,
                             unsigned capabilities) {
    return (hf_store_info){
        .size = sizeof(hf_store_info),
        .scheme = scheme,
        .summary = summary,
        .tier = capabilities & STORE_SESSION_BOUND ? "best effort" : tier,
        .available = 1,
        .missing = "",
        .shares = !!(capabilities & STORE_CAN_SHARE),
        .permits = !!(capabilities & STORE_CAN_PERMITS),
        .queues = !!(capabilities & STORE_CAN_QUEUE),
        .lease_each = !!(capabilities & STORE_CAN_LEASE_EACH),
        .token_floor = !!(capabilities & STORE_CAN_FLOOR),
        .pushes = !!(capabilities & STORE_CAN_PUSH),
        .barges = !(capabilities & STORE_IN_ORDER),
        .session_bound = !!(capabilities & STORE_SESSION_BOUND),
        .counts = !!(capabilities & STORE_CAN_COUNT),
        .keeps = !!(capabilities & STORE_CAN_KEEP),
    };
}

static unsigned capabilities_of(const struct store_scheme *row) {
    return row->driver ? row->driver->capabilities : row->capabilities;
}

hf_store_info store_describe(const char *scheme, const struct store_driver *driver) {
    const struct store_scheme *row = find_scheme(scheme);
    return row ? info_of(row->scheme, row->tier, row->summary, driver->capabilities)
               : info_of(driver->scheme, driver->tier, "", driver->capabilities);
}

const hf_store_info *hf_store_at(size_t index) {
    static _Thread_local hf_store_info info;
    static _Thread_local char text[MODULE_TEXT_SIZE];
    const struct store_scheme *row = scheme_at(index);
    if (!row)
        return NULL;
    info = info_of(row->scheme, row->tier, row->summary, capabilities_of(row));
    char path[PATH_MAX];
    for (size_t i = 0; i < STORE_MODULES_MAX && row->modules[i] && info.available; i++) {
        info.available = module_find(row->modules[i], path);
        info.missing = info.available ? "" : module_missing(row->modules[i], text);
    }
    return &info;
}
