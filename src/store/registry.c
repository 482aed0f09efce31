/* Which store a URL's scheme names: one that is built in, or the module that is loaded for it, which has the
 * scheme's name (module.h). */
#include "base/error.h"
#include "store/drivers.h"
#include "store/module.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct store_driver *const built_in[] = {&store_memory, &store_sqlite, &store_quorum};

enum {
    BUILT_IN_COUNT = sizeof(built_in) / sizeof(built_in[0]),
    SCHEMES_MAX = 6, /* further ones of a module */
    SCHEME_MAX = 64, /* of which people are told */
};

/* The modules of this version, with what people are told of them, and their further schemes. */
static const struct {
    hf_store_info info;
    const char *schemes[SCHEMES_MAX];
} modules[] = {
    {{sizeof(hf_store_info), "redis", "all who reach one Redis server", "timed", 0,
      "libholdfast-redis"},
     {"redis+unix", "rediss", "redis+sentinel", "redis+cluster", "rediss+sentinel",
      "rediss+cluster"}},
};

enum { MODULE_COUNT = sizeof(modules) / sizeof(modules[0]) };

/* The module that a scheme is in: another's, or one of its own name, which may come from elsewhere. */
static const char *module_of(const char *scheme) {
    for (size_t i = 0; i < MODULE_COUNT; i++) {
        for (size_t j = 0; j < SCHEMES_MAX && modules[i].schemes[j]; j++) {
            if (strcmp(modules[i].schemes[j], scheme) == 0)
                return modules[i].info.scheme;
        }
    }
    return scheme;
}

static int load_module(const char *scheme, const struct store_driver **ret_driver,
                       char **ret_text) {
    char what[SCHEME_MAX + 4], path[PATH_MAX];
    snprintf(what, sizeof(what), "\"%s:\"", scheme);
    const void *symbol;
    int r = module_load(what, scheme, STORE_MODULE_SYMBOL, &symbol, ret_text);
    if (r < 0)
        return r;
    const struct store_driver *driver = symbol;
    if (driver->abi != STORE_ABI) {
        *ret_text = error_format("%s was built for another version of holdfast (%u, not %u)",
                                 module_path(scheme, path), driver->abi, (unsigned)STORE_ABI);
        return HF_NO_STORE;
    }
    *ret_driver = driver;
    return HF_OK;
}

int store_find(const char *scheme, const struct store_driver **ret_driver, char **ret_text) {
    if (strncmp(scheme, "quorum+", 7) == 0) {
        *ret_driver = &store_quorum;
        return HF_OK;
    }
    for (size_t i = 0; i < BUILT_IN_COUNT; i++) {
        if (strcmp(built_in[i]->info.scheme, scheme) == 0) {
            *ret_driver = built_in[i];
            return HF_OK;
        }
    }
    return load_module(module_of(scheme), ret_driver, ret_text);
}

const hf_store_info *hf_store_at(size_t index) {
    static _Thread_local hf_store_info found;
    if (index < BUILT_IN_COUNT)
        return &built_in[index]->info;
    if (index - BUILT_IN_COUNT >= MODULE_COUNT)
        return NULL;
    char path[PATH_MAX];
    found = modules[index - BUILT_IN_COUNT].info;
    found.available = access(module_path(found.scheme, path), F_OK) == 0;
    return &found;
}
