#include "store/schemes.h"

const struct store_scheme store_memory_schemes[] = {
    {.scheme = "memory",
     .tier = "timed",
     .summary = "threads of one process",
     .driver = &store_memory},
    {0},
};
