#include "base/module.h"

#include "base/error.h"
#include "places.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* Where the object that this code is in was loaded from; NULL or "": it is the main program, of
 * which the loader does not know that. */
static const char *own_path(void) {
    static const char here;
    Dl_info info;
    struct link_map *object = NULL;
    return dladdr1(&here, &info, (void **)&object, RTLD_DL_LINKMAP) ? object->l_name : NULL;
}

/* With a relative path in LD_LIBRARY_PATH, the loader knows a relative path, which means something
 * only until the program changes its folder. So it is resolved when the library is loaded. */
static char resolved_path[PATH_MAX];

__attribute__((constructor)) static void resolve_relative_path(void) {
    const char *path = own_path();
    if (path && *path && *path != '/' && !realpath(path, resolved_path))
        *resolved_path = 0;
}

/* The folder of the object that this code is in. */
static bool find_own_folder(char ret_folder[PATH_MAX]) {
    const char *path = *resolved_path ? resolved_path : own_path();
    bool is_known = !getauxval(AT_SECURE) && path && path[0] == '/' && realpath(path, ret_folder);
    if (is_known)
        *strrchr(ret_folder, '/') = 0;
    return is_known;
}

/* The folders to search for modules, one after the other; false after the last. */
static bool folder_at(int index, char ret_folder[PATH_MAX]) {
    const char *only = secure_getenv("HOLDFAST_MODULE_PATH");
    char own[PATH_MAX];
    if (only)
        return index == 0 && snprintf(ret_folder, PATH_MAX, "%s", only) < PATH_MAX;
    if (!find_own_folder(own))
        return index == 0 && snprintf(ret_folder, PATH_MAX, "%s", HOLDFAST_MODULE_DIR) < PATH_MAX;
    switch (index) {
    case 0:
        return snprintf(ret_folder, PATH_MAX, "%s", own) < PATH_MAX;
    case 1:
        return snprintf(ret_folder, PATH_MAX, "%s/holdfast", own) < PATH_MAX;
    case 2:
        return snprintf(ret_folder, PATH_MAX, "%s", HOLDFAST_MODULE_DIR) < PATH_MAX;
    default:
        return false;
    }
}

bool module_find(const char *name, char path[PATH_MAX]) {
    char folder[PATH_MAX];
    for (int i = 0; folder_at(i, folder); i++) {
        if (snprintf(path, PATH_MAX, "%s/holdfast-%s.so", folder, name) < PATH_MAX &&
            access(path, F_OK) == 0)
            return true;
    }
    return false;
}

const char *module_missing(const char *name, char text[MODULE_TEXT_SIZE]) {
    char folder[PATH_MAX];
    snprintf(text, MODULE_TEXT_SIZE, "the module holdfast-%s.so is not in ", name);
    for (int i = 0; folder_at(i, folder); i++)
        error_append(text, MODULE_TEXT_SIZE, "%s%.200s", i ? ", " : "", folder);
    if (*HOLDFAST_MODULE_PACKAGE)
        error_append(text, MODULE_TEXT_SIZE, "; install the package %s%s", HOLDFAST_MODULE_PACKAGE,
                     name);
    else
        error_append(
            text, MODULE_TEXT_SIZE,
            "; \"make install\" of this build puts it into %.200s, and HOLDFAST_MODULE_PATH "
            "can name another folder",
            HOLDFAST_MODULE_DIR);
    return text;
}

int module_load(const char *name, const char *symbol, const void **ret_symbol, char **ret_text) {
    char path[PATH_MAX], text[MODULE_TEXT_SIZE];
    if (!module_find(name, path)) {
        *ret_text = error_format("%s", module_missing(name, text));
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
