/* Modules: parts of the library that are loaded when something asks for them, each "holdfast-NAME.so" in the
 * module folder (HOLDFAST_MODULE_PATH, where a program that is not set-uid may name another), with one
 * symbol. They are never unloaded. Any thread may load. */
#ifndef STORE_MODULE_H
#define STORE_MODULE_H

#include <limits.h>

/* Where the module is, or would be; returns `path`. */
const char *module_path(const char *name, char path[PATH_MAX]);

/* Loads it, and finds its symbol. `what` is what it is for, in people's words. HF_OK, or HF_NO_STORE with
 * malloc'd particulars; a module that is missing is told with the package that would have it. */
int module_load(const char *what, const char *name, const char *symbol, const void **ret_symbol,
                char **ret_text);

#endif
