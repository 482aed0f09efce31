#include "store/module.h"

#include "base/error.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *module_path(const char *name, char path[PATH_MAX]) {
    const char *folder = secure_getenv("HOLDFAST_MODULE_PATH");
    snprintf(path, PATH_MAX, "%s/holdfast-%s.so", folder ? folder : HOLDFAST_MODULE_DIR, name);
    return path;
}

int module_load(const char *what, const char *name, const char *symbol, const void **ret_symbol,
                char **ret_text) {
    char path[PATH_MAX];
    if (access(module_path(name, path), F_OK) < 0) {
        *ret_text = error_format("%s is not built in, and its module %s does not exist; the "
                                 "package libholdfast-%s would have it",
                                 what, path, name);
        return HF_NO_STORE;
    }
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const void *found = module ? dlsym(module, symbol) : NULL;
    if (!found) {
        *ret_text = error_format("the module cannot be loaded: %s", dlerror());
        return HF_NO_STORE;
    }
    *ret_symbol = found;
    return HF_OK;
}
