/* Which store a URL's scheme names: one that is built in, or the module that is loaded for it. A module
 * is "holdfast-SCHEME.so" in the module folder (HOLDFAST_MODULE_PATH, where a program that is not
 * set-uid may name another) and is never unloaded. */
#include "base/error.h"
#include "store/drivers.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct store_driver *const built_in[] = {&store_memory, &store_sqlite};

enum { BUILT_IN_COUNT = sizeof(built_in) / sizeof(built_in[0]) };

/* The modules of this version, with what people are told of them, and their further schemes. */
static const struct {
    hf_store_info info;
    const char *schemes[4];
} modules[] = {
    {{sizeof(hf_store_info), "redis", "all who reach one Redis server", "timed", 0,
      "libholdfast-redis"},
     {"redis+unix", "redis+sentinel", "redis+cluster"}},
};

enum { MODULE_COUNT = sizeof(modules) / sizeof(modules[0]) };

/* The module that a scheme is in: another's, or one of its own name, which may come from elsewhere. */
static const char *module_of(const char *scheme) {
    for (size_t i = 0; i < MODULE_COUNT; i++) {
        for (size_t j = 0; j < 4 && modules[i].schemes[j]; j++) {
            if (strcmp(modules[i].schemes[j], scheme) == 0)
                return modules[i].info.scheme;
        }
    }
    return scheme;
}

static const char *module_path(const char *scheme, char path[PATH_MAX]) {
    const char *folder = secure_getenv("HOLDFAST_MODULE_PATH");
    snprintf(path, PATH_MAX, "%s/holdfast-%s.so", folder ? folder : HOLDFAST_MODULE_DIR, scheme);
    return path;
}

static int load_module(const char *scheme, const struct store_driver **ret_driver,
                       char **ret_text) {
    char path[PATH_MAX];
    if (access(module_path(scheme, path), F_OK) < 0) {
        *ret_text = error_format("\"%s:\" is not built in, and its module %s does not exist; the "
                                 "package libholdfast-%s would have it",
                                 scheme, path, scheme);
        return HF_NO_STORE;
    }
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct store_driver *driver = module ? dlsym(module, STORE_MODULE_SYMBOL) : NULL;
    if (!driver) {
        *ret_text = error_format("the module cannot be loaded: %s", dlerror());
        return HF_NO_STORE;
    }
    if (driver->abi != STORE_ABI) {
        *ret_text = error_format("%s was built for another version of holdfast (%u, not %u)", path,
                                 driver->abi, (unsigned)STORE_ABI);
        return HF_NO_STORE;
    }
    *ret_driver = driver;
    return HF_OK;
}

int store_find(const char *scheme, const struct store_driver **ret_driver, char **ret_text) {
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
