/* holdfast schema: what an administrator executes where programs may not create tables. The texts
 * are those that the stores execute themselves. */
#include "cli/cli.h"
#include "cli/options.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Made from src/store/NAME/schema.sql by tools/embed_text. */
extern const char postgres_schema[], mysql_schema[];

static const char postgres_rights[] =
    "-- Each user then needs these rights, here app:\n"
    "-- GRANT USAGE ON SCHEMA holdfast TO app;\n"
    "-- GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.locks, holdfast.claims, holdfast.rows, "
    "holdfast.sessions TO app;\n"
    "-- GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.watchers TO app;\n"
    "-- GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.counters, holdfast.answers TO app;\n";
static const char mysql_rights[] =
    "-- Each user then needs these rights, here app:\n"
    "-- GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast_locks TO app@'%';\n"
    "-- GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast_claims TO app@'%';\n"
    "-- GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast_rows TO app@'%';\n"
    "-- GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast_sessions TO app@'%';\n"
    "-- GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast_counters TO app@'%';\n"
    "-- GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast_answers TO app@'%';\n"
    "-- GRANT EXECUTE ON PROCEDURE holdfast_acquire TO app@'%';\n"
    "-- GRANT EXECUTE ON PROCEDURE holdfast_release TO app@'%';\n"
    "-- GRANT EXECUTE ON PROCEDURE holdfast_break TO app@'%';\n"
    "-- GRANT EXECUTE ON PROCEDURE holdfast_draw TO app@'%';\n"
    "-- GRANT EXECUTE ON PROCEDURE holdfast_break_session TO app@'%';\n"
    "-- GRANT EXECUTE ON PROCEDURE holdfast_acquire_free TO app@'%';\n"
    "-- GRANT EXECUTE ON PROCEDURE holdfast_release_quiet TO app@'%';\n"
    "-- GRANT EXECUTE ON PROCEDURE holdfast_count TO app@'%';\n";

struct settings {
    const char *dialect;
};

static int run(struct cli *cli, int argc, char **argv) {
    struct settings settings = {0};
    int r = options_parse_words(cli, &schema_command, &settings, argc, argv, 0, 0, NULL);
    if (r < 0)
        return options_exit_code(r);
    if (!settings.dialect)
        return fail_usage("missing --dialect: postgres, mysql, mariadb or sqlite");
    if (strcmp(settings.dialect, "sqlite") == 0)
        printf("%s;\n", HF_FENCE_SQLITE_TABLE);
    else if (strcmp(settings.dialect, "postgres") == 0)
        printf("BEGIN;\n%sCOMMIT;\n%s", postgres_schema, postgres_rights);
    else
        printf("SET SESSION sql_mode = 'STRICT_ALL_TABLES';\nDELIMITER //\n%sDELIMITER ;\n%s",
               mysql_schema, mysql_rights);
    return EXIT_SUCCESS;
}

static const struct option options[] = {
    {'d', OPTION_CHOICE, "dialect", offsetof(struct settings, dialect),
     "postgres|mysql|mariadb|sqlite", "the database that it is for", NULL},
    {0},
};

const struct command schema_command = {
    .name = "schema",
    .summary = "print the tables and rights that a database needs",
    .usage = "schema --dialect postgres|mysql|mariadb|sqlite",
    .options = options,
    .without_settings = true,
    .run = run,
    .details =
        "A program that locks in a database creates the tables itself, if its user may. If not,\n"
        "an administrator executes what this prints, in the database that the store's\n"
        "URL names, and grants each user the rights in the last lines.\n"
        "\n"
        "sqlite: the table that 'holdfast fence sql sqlite' needs in your own database.\n"
        "\n"
        "Examples:\n"
        "  holdfast schema --dialect postgres | psql app\n"
        "  holdfast schema --dialect mariadb | mariadb app\n"
        "  holdfast schema --dialect sqlite | sqlite3 app.db\n",
};
