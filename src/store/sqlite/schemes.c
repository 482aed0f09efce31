#include "store/schemes.h"

const struct store_scheme store_sqlite_schemes[] = {
    {.scheme = "sqlite",
     .tier = "timed",
     .summary = "processes of one host, in a file",
     .driver = &store_sqlite},
    {0},
};
