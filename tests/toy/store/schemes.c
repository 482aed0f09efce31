#include "store/schemes.h"
#include "store/toy/toy.h"

const struct store_scheme store_toy_schemes[] = {
    {.scheme = "toy",
     .tier = "timed",
     .summary = "threads of one process, as a toy",
     .capabilities = TOY_CAPABILITIES,
     .modules = {"toy"}},
    {0},
};
