/* Modules: parts of the library that are loaded when they are needed, each a "holdfast-NAME.so"
 * with one symbol. They are never unloaded. Any thread may load one.
 *
 * They are searched for in the folder of the object that this code is in (the library, or a module
 * that needs another), in its subfolder "holdfast", and then where the build installs them. So they
 * are found in the build tree, and in an installation that was staged or moved. A program that is
 * linked statically looks only where the build installs them, and so does a set-uid program. If
 * HOLDFAST_MODULE_PATH is set, it is the only folder. */
#ifndef BASE_MODULE_H
#define BASE_MODULE_H

#include <limits.h>
#include <stdbool.h>

/* Whether the module exists, and its path. */
bool module_find(const char *name, char path[PATH_MAX]);

/* A sentence about a missing module: where it was searched for, and how to get it. Returns
 * `text`. */
enum { MODULE_TEXT_SIZE = 1024 };
const char *module_missing(const char *name, char text[MODULE_TEXT_SIZE]);

/* Loads it, and finds its symbol. HF_OK, or HF_NO_STORE with malloc'd particulars. */
int module_load(const char *name, const char *symbol, const void **ret_symbol, char **ret_text);

#endif
