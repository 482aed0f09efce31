/* Which store the scheme of a URL names, and how it is described to people. Each store's folder has
 * a table of its schemes, store_NAME_schemes, with an empty row at its end. The table is built in
 * even if the store is a module. registry.c goes through the tables of the stores that meson.build
 * lists. */
#ifndef STORE_SCHEMES_H
#define STORE_SCHEMES_H

#include "store/store.h"

#define STORE_MODULES_MAX 2 /* of one scheme */

struct store_scheme {
    const char *scheme, *tier, *summary;
    const struct store_driver *driver; /* NULL: it is in the first of its modules */
    unsigned capabilities; /* of a driver in a module, which cannot be asked before it is loaded */
    const char *modules[STORE_MODULES_MAX];
};

/* The drivers that are built in. A majority of several stores is the driver of every scheme
 * "quorum+NAME". */
extern const struct store_driver store_memory, store_quorum, store_sqlite;

#endif
