#include "store/schemes.h"

const struct store_scheme store_memory_schemes[] = {
    {.scheme = "memory",
     .tier = "timed",
     .summary = "threads of one process",
     .capabilities = STORE_CAN_SHARE | STORE_CAN_PERMITS | STORE_CAN_QUEUE,
     .driver = &store_memory},
    {0},
};
