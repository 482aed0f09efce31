/* Modules: parts of the library that are loaded when something asks for them, each "holdfast-NAME.so" with one symbol.
 * They are never unloaded. Any thread may load.
 *
 * They are looked for beside the object that this code is in (the library, or a module that needs another), in its
 * folder "holdfast", and then where the build was told to install them. So they are found in the build tree, and in
 * an installation that was staged or moved. A program that is linked statically has only the last of these. If
 * HOLDFAST_MODULE_PATH is set, it is the only folder. A set-uid program looks nowhere but where the build said. */
#ifndef BASE_MODULE_H
#define BASE_MODULE_H

#include <limits.h>
#include <stdbool.h>

/* Whether the module is there, and where; if not, `path` has no meaning. */
bool module_find(const char *name, char path[PATH_MAX]);

/* A sentence on a module that is not there: where it was looked for, and what would bring it. Returns `text`. */
enum { MODULE_TEXT_SIZE = 1024 };
const char *module_missing(const char *name, char text[MODULE_TEXT_SIZE]);

/* Loads it, and finds its symbol. HF_OK, or HF_NO_STORE with malloc'd particulars. */
int module_load(const char *name, const char *symbol, const void **ret_symbol, char **ret_text);

#endif
