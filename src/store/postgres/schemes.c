#include "store/schemes.h"

#include "store/postgres/capabilities.h"

#define SUMMARY "all who reach one PostgreSQL database"

const struct store_scheme store_postgres_schemes[] = {
    {"postgres", "strict", SUMMARY, NULL, POSTGRES_CAPABILITIES, {"postgres"}},
    {"postgresql", "strict", SUMMARY, NULL, POSTGRES_CAPABILITIES, {"postgres"}},
    {0},
};
