#include "store/schemes.h"

const struct store_scheme store_sqlite_schemes[] = {
    {.scheme = "sqlite",
     .tier = "timed",
     .summary = "processes of one host, in a file",
     .capabilities = STORE_CAN_SHARE | STORE_CAN_PERMITS | STORE_CAN_QUEUE,
     .driver = &store_sqlite},
    {0},
};
