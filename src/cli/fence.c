/* holdfast fence: checks tokens on behalf of a resource. A file keeps the largest token seen for
 * each name. `fence check` refuses a smaller one: its holder was paused, has lost the lock, and
 * does not know it. `fence sql` prints the statement with which a database does the same.
 *
 * The file has one line for each name: the token, a space, and the name, safe to print. It is
 * replaced by a rename, under flock, so a crash leaves either the old file or the new one. */
#include "base/fence_sql.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EXIT_REFUSED = 1, NAME_SIZE = 1100, PATH_SIZE = 4096 };

/* All tokens are below. Something else that was taken for one, such as a time in nanoseconds, must
 * not be remembered: every token after it would be refused. */
static const uint64_t token_limit = UINT64_C(1) << 53;

struct settings {
    bool shared;
};

static const struct option options[] = {
    {0, OPTION_FLAG, "shared", offsetof(struct settings, shared), NULL,
     "the hold is a shared one: always refused"},
    {0},
};

/* Opens and locks the file that is at this path now; it may be replaced while we wait for the
 * lock. */
static int open_locked(const char *path) {
    for (;;) {
        struct stat ours, theirs;
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0)
            return -1;
        if (flock(fd, LOCK_EX) < 0 || fstat(fd, &ours) < 0) {
            close(fd);
            return -1;
        }
        if (stat(path, &theirs) == 0 && ours.st_ino == theirs.st_ino &&
            ours.st_dev == theirs.st_dev)
            return fd;
        close(fd);
    }
}

/* Copies all lines but that of `name` to `to`, and returns the name's token (0: none) in ret_token.
 * Negative if the file is not one of ours or cannot be written. */
static int copy_others(FILE *from, FILE *to, const char *name, uint64_t *ret_token) {
    char *line = NULL;
    size_t size = 0;
    int r = 0;
    *ret_token = 0;
    while (r == 0 && getline(&line, &size, from) > 0) {
        char *end;
        uint64_t token = strtoull(line, &end, 10);
        line[strcspn(line, "\n")] = 0;
        if (end == line || *end != ' ')
            r = -1;
        else if (strcmp(end + 1, name) == 0)
            *ret_token = token;
        else if (fprintf(to, "%s\n", line) < 0)
            r = -1;
    }
    free(line);
    return r;
}

static int cannot(const char *path, const char *why) {
    char safe[300];
    fail_say("cannot use %s (%s); fence keeps tokens there: name a file of its own that can be "
             "written, in a folder that can",
             text_safe(safe, sizeof(safe), path), why);
    return EXIT_CONFIG;
}

static int refuse(const char *name, uint64_t token, uint64_t seen) {
    fail_say("token %" PRIu64 " of %s is refused (a later holder came with %" PRIu64
             "); the lock was lost: stop",
             token, name, seen);
    return EXIT_REFUSED;
}

static int replace(FILE *from, const char *path, const char *name, uint64_t token) {
    char new_path[PATH_SIZE];
    uint64_t seen;
    snprintf(new_path, sizeof(new_path), "%s.new", path);
    FILE *to = fopen(new_path, "we");
    if (!to)
        return cannot(new_path, strerror(errno));
    int copied = copy_others(from, to, name, &seen);
    bool refused = copied == 0 && token < seen;
    bool written = copied == 0 && fprintf(to, "%" PRIu64 " %s\n", token, name) > 0 &&
                   fflush(to) == 0 && fsync(fileno(to)) == 0;
    written = fclose(to) == 0 && written;
    if (!refused && written && token > seen && rename(new_path, path) < 0)
        written = false;
    int error = errno;
    unlink(new_path);
    if (copied < 0)
        return cannot(path, "it was not written by fence");
    if (refused)
        return refuse(name, token, seen);
    return written ? EXIT_SUCCESS : cannot(path, strerror(error));
}

static int check_token(const char *path, const char *raw_name, uint64_t token) {
    char name[NAME_SIZE];
    text_safe(name, sizeof(name), raw_name);
    int fd = strlen(path) + 5 < PATH_SIZE ? open_locked(path) : -1;
    if (fd < 0)
        return cannot(path, strerror(errno));
    FILE *from = fdopen(fd, "r");
    if (!from) {
        close(fd);
        return cannot(path, strerror(errno));
    }
    int r = replace(from, path, name, token);
    fclose(from); /* and with it the lock */
    return r;
}

static const char *variable(const char *name, size_t number) {
    char key[40];
    snprintf(key, sizeof(key), number ? "%s_%zu" : "%s", name, number);
    return getenv(key);
}

/* Whether `run` or `acquire` has marked the name as shared: HOLDFAST_SHARED belongs to
 * HOLDFAST_LOCK, HOLDFAST_SHARED_1 to HOLDFAST_LOCK_1, and so on. */
static bool is_shared(const struct settings *s, const char *name) {
    const char *lock, *shared;
    for (size_t i = 0; (lock = variable("HOLDFAST_LOCK", i)); i++) {
        shared = variable("HOLDFAST_SHARED", i);
        if (shared && strcmp(shared, "1") == 0 && strcmp(lock, name) == 0)
            return true;
    }
    return s->shared;
}

/* ---- In a database ---- */

static int dialect_of(const char *word) {
    const char *known;
    for (int dialect = 1; (known = fence_sql_word(dialect)); dialect++) {
        if (strcmp(known, word) == 0)
            return dialect;
    }
    return 0;
}

static int print_statement(const char *word, const char *name, uint64_t token) {
    char statement[HF_FENCE_SQL_SIZE], safe[80];
    int dialect = dialect_of(word);
    if (!dialect)
        return fail_usage("DIALECT cannot be '%s'; it can be postgres or mysql",
                          text_safe(safe, sizeof(safe), word));
    struct fence_sql sql = {(hf_dialect)dialect, statement, sizeof(statement), 0};
    fence_sql_add(&sql, name, token);
    fence_sql_end(&sql);
    printf("%s;\n", statement);
    return EXIT_SUCCESS;
}

/* ---- The command ---- */

static const struct {
    const char *word;
    int (*run)(const char *where, const char *name, uint64_t token);
} forms[] = {{"check", check_token}, {"sql", print_statement}};

static int run(struct cli *cli, int argc, char **argv) {
    struct settings s = {0};
    const char *words[4];
    char safe[80], *end;
    size_t form = 0;
    int r = options_parse_words(cli, &fence_command, &s, argc, argv, 4, 4, words);
    if (r < 0)
        return options_exit_code(r);
    while (form < 2 && strcmp(words[0], forms[form].word) != 0)
        form++;
    if (form == 2)
        return fail_usage("fence %s is not a command; did you mean fence check or fence sql? try: "
                          "holdfast fence --help",
                          text_safe(safe, sizeof(safe), words[0]));
    r = fail_name(words[2]);
    if (r)
        return r;
    errno = 0;
    uint64_t token = strtoull(words[3], &end, 10);
    bool is_number = end != words[3] && !*end && !errno && words[3][0] != '-';
    if (!is_number || token == 0 || token >= token_limit)
        return fail_usage("TOKEN cannot be '%s' (it is the number in $HOLDFAST_TOKEN)",
                          text_safe(safe, sizeof(safe), words[3]));
    if (is_shared(&s, words[2])) {
        fail_say(
            "the token of a shared hold is refused (it does not order its holders); ask for the "
            "lock without -s or -p");
        return EXIT_REFUSED;
    }
    return forms[form].run(words[1], words[2], token);
}

const struct command fence_command = {
    .name = "fence",
    .summary = "the resource's side: refuse a token below the largest seen",
    .usage = "fence check FILE NAME TOKEN | fence sql DIALECT NAME TOKEN",
    .without_settings = true,
    .options = options,
    .run = run,
    .details = "check: FILE remembers the largest token that was seen for each NAME. Exit code 0: "
               "TOKEN is not\n"
               "below it, go on. 1: it is, so its holder has lost the lock, or it belongs to a "
               "shared hold.\n"
               "Check before the first read, and again in the same step as each write.\n"
               "\n"
               "sql: prints a statement that does the same in a database (DIALECT: postgres or "
               "mysql). Make it\n"
               "the first of the transaction that writes. If TOKEN is below the largest seen, it "
               "fails: roll back\n"
               "and stop. The database needs the schema of its store, which 'holdfast --url URL "
               "doctor' makes.\n"
               "\n"
               "Examples:\n"
               "  holdfast run deploy -c \\\n"
               "    'holdfast fence check /srv/app/fence \"$HOLDFAST_LOCK\" \"$HOLDFAST_TOKEN\" && "
               "./deploy'\n"
               "  holdfast run orders -c 'psql -1 -v ON_ERROR_STOP=1 -c \\\n"
               "    \"$(holdfast fence sql postgres \"$HOLDFAST_LOCK\" \"$HOLDFAST_TOKEN\")\" -f "
               "orders.sql'\n",
};
