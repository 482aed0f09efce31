#include "store/schemes.h"

#include "store/mysql/capabilities.h"

#define SUMMARY "all who reach one MySQL or MariaDB database"

const struct store_scheme store_mysql_schemes[] = {
    {"mysqls", "strict", SUMMARY ", over TLS", NULL, MYSQL_CAPABILITIES, {"mysql", "tls"}},
    {"mysql", "strict", SUMMARY ", in plaintext", NULL, MYSQL_CAPABILITIES, {"mysql"}},
    {"mariadbs", "strict", "the same as mysqls:", NULL, MYSQL_CAPABILITIES, {"mysql", "tls"}},
    {"mariadb", "strict", "the same as mysql:", NULL, MYSQL_CAPABILITIES, {"mysql"}},
    {0},
};
