/* The table of locks that ls prints and watch draws: one row for each. */
#ifndef CLI_LOCK_TABLE_H
#define CLI_LOCK_TABLE_H

#include "cli/table.h"

#include <holdfast/holdfast.h>

extern const struct table_column lock_columns[];
enum { LOCK_COLUMNS = 7 };

/* False: no memory. */
bool lock_table_add(struct table *table, const hf_lock_info *info);

/* Its columns, for help texts. */
#define LOCK_TABLE_HELP                                                                            \
    "Columns: NAME; KIND (exclusive, shared, permits held/all); HOLDER (host, process, label or "  \
    "command:\n"                                                                                   \
    "the one that has held it for longest, and how many more there are); WAITERS; HELD FOR, LEFT " \
    "(of the\n"                                                                                    \
    "lease: the lock is then free, unless it is renewed) and TOKEN of that holder. In a "          \
    "set of "                                                                                      \
    "servers\n"                                                                                    \
    "HOLDER may be \"2 of 3 votes: \" and who has them: too few to hold the lock.\n"

#endif
