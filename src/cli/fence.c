/* holdfast fence: checks tokens on behalf of a resource, which refuses a token below the largest it
 * has seen: its holder was paused, has lost the lock, and does not know it. `check` keeps the
 * tokens in a file, and `write` replaces a file in the same step. `sql` and `redis` print what a
 * server must be sent to do so. */
#include "base/fence_file.h"
#include "base/fence_sql.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/text.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_REFUSED = 1, WORDS = 4, SAFE_SIZE = 300, CHUNK = 65536 };

/* All tokens are below this. A number that is not a token, such as a time in nanoseconds, must not
 * be remembered: every token after it would be refused. */
static const uint64_t token_limit = UINT64_C(1) << 53;

struct settings {
    bool shared;
};

static const struct option options[] = {
    {0, OPTION_FLAG, "shared", offsetof(struct settings, shared), NULL,
     "the hold is a shared one: always refused"},
    {0},
};

/* What the words after the options say. */
struct request {
    const char *where; /* FILE, DIALECT or KEY */
    struct fence_token token;
    char **rest; /* the words after these */
    int rest_count;
};

/* ---- A file ---- */

/* Reports why the file of tokens, or the file that it guards, could not be used. */
static int explain(const struct fence_file *file, int r) {
    char safe[SAFE_SIZE], name[SAFE_SIZE];
    if (r == HF_LOST) {
        fail_say("token %" PRIu64 " of %s is refused (a later holder came with %" PRIu64
                 "); the lock was lost: stop",
                 file->refused.token, text_safe(name, sizeof(name), file->refused.name),
                 file->seen);
        return EXIT_REFUSED;
    }
    fail_say("%s; fence needs a file of its own for tokens, in a folder that can be read and "
             "written",
             text_safe(safe, sizeof(safe), file->why));
    return EXIT_CONFIG;
}

static int check_token(const struct request *request) {
    struct fence_file file;
    int r = fence_file_enter(&file, request->where, "", &request->token, 1);
    if (r)
        return explain(&file, r);
    fence_file_leave(&file);
    return EXIT_SUCCESS;
}

/* Everything from standard input, for the caller to free; NULL if it cannot be read. */
static char *read_input(size_t *ret_size) {
    char *data = NULL, *more;
    ssize_t got = 1;
    *ret_size = 0;
    while (got > 0 && (more = realloc(data, *ret_size + CHUNK))) {
        data = more;
        do
            got = read(STDIN_FILENO, data + *ret_size, CHUNK);
        while (got < 0 && errno == EINTR);
        *ret_size += got > 0 ? (size_t)got : 0;
    }
    if (got == 0)
        return data;
    free(data);
    return NULL;
}

/* The token is checked only after all input has been read, so that nobody has to wait for the lock
 * while this process waits for input. */
static int write_file(const struct request *request) {
    struct fence_file file;
    size_t size;
    char *data = read_input(&size);
    if (!data) {
        fail_say("cannot read standard input (%s)", strerror(errno));
        return EXIT_INTERNAL;
    }
    int r = fence_file_enter(&file, request->where, ".fence", &request->token, 1);
    if (!r) {
        r = fence_file_replace(&file, fence_file_base(request->where), data, size);
        fence_file_leave(&file);
    }
    free(data);
    return r ? explain(&file, r) : EXIT_SUCCESS;
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

static int print_statement(const struct request *request) {
    char statement[HF_FENCE_SQL_SIZE], safe[80];
    int dialect = dialect_of(request->where);
    if (!dialect)
        return fail_usage("DIALECT cannot be '%s'; it can be postgres, mysql or sqlite",
                          text_safe(safe, sizeof(safe), request->where));
    struct fence_sql sql = {(hf_dialect)dialect, statement, sizeof(statement), 0};
    fence_sql_add(&sql, request->token.name, request->token.token);
    fence_sql_end(&sql);
    printf("%s;\n", statement);
    return EXIT_SUCCESS;
}

/* ---- In Redis ---- */

static int print_word(const char *word) {
    char *quoted = text_shell_quoted(word);
    if (!quoted)
        return -1;
    printf(" %s", quoted);
    free(quoted);
    return 0;
}

/* Prints the arguments of a redis-cli, for a shell's eval. */
static int print_eval(const struct request *request) {
    char token[32];
    snprintf(token, sizeof(token), "%" PRIu64, request->token.token);
    const char *const words[] = {HF_FENCE_REDIS, "1", request->where, request->token.name, token};
    int r = 0;
    printf("EVAL");
    for (size_t i = 0; !r && i < sizeof(words) / sizeof(words[0]); i++)
        r = print_word(words[i]);
    for (int i = 0; !r && i < request->rest_count; i++)
        r = print_word(request->rest[i]);
    putchar('\n');
    if (!r)
        return EXIT_SUCCESS;
    fail_say("out of memory");
    return EXIT_INTERNAL;
}

/* ---- The command ---- */

static const struct form {
    const char *word;
    int (*run)(const struct request *request);
    bool takes_rest;
} forms[] = {{"check", check_token, false},
             {"write", write_file, false},
             {"redis", print_eval, true},
             {"sql", print_statement, false}};

static const struct form *form_of(const char *word) {
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (strcmp(forms[i].word, word) == 0)
            return &forms[i];
    }
    return NULL;
}

/* Options may stand among the first words. What follows them is a command for Redis. Returns 0, or
 * a negative number for options_exit_code. */
static int parse(struct cli *cli, struct settings *s, int argc, char **argv, const char **words,
                 struct request *ret) {
    int at = 1, used = 0;
    for (int count = 0; used >= 0 && count < WORDS && at < argc; count++) {
        used = options_parse(cli, &fence_command, s, argc - at, argv + at);
        at += used;
        if (used >= 0 && at < argc)
            words[count] = argv[at++];
    }
    if (used < 0)
        return used;
    const struct form *form = words[0] ? form_of(words[0]) : NULL;
    int known = form && form->takes_rest ? at : argc;
    used = options_parse_words(cli, &fence_command, s, known - at + 1, argv + at - 1,
                               words[WORDS - 1] ? 0 : 1, 0, NULL);
    ret->rest = argv + at;
    ret->rest_count = argc - at;
    return used;
}

static int parse_token(const char *word, uint64_t *ret_token) {
    char safe[80], *end;
    errno = 0;
    *ret_token = strtoull(word, &end, 10);
    bool is_number = end != word && !*end && !errno && word[0] != '-';
    if (is_number && *ret_token > 0 && *ret_token < token_limit)
        return 0;
    return fail_usage("TOKEN cannot be '%s' (it is the number in $HOLDFAST_TOKEN)",
                      text_safe(safe, sizeof(safe), word));
}

static int run_form(struct cli *cli, int argc, char **argv, const char **words) {
    struct settings s = {0};
    struct request request = {0};
    char safe[80];
    int r = parse(cli, &s, argc, argv, words, &request);
    if (r < 0)
        return options_exit_code(r);
    assert(words[0] && words[WORDS - 1]); /* else parse has reported a missing argument */
    const struct form *form = form_of(words[0]);
    if (!form)
        return fail_usage("fence %s is not a command; it can be check, write, redis or sql; try: "
                          "holdfast fence --help",
                          text_safe(safe, sizeof(safe), words[0]));
    request.where = words[1];
    request.token.name = words[2];
    r = fail_name(words[2]);
    if (!r)
        r = parse_token(words[3], &request.token.token);
    if (r)
        return r;
    if (is_shared(&s, words[2])) {
        fail_say(
            "the token of a shared hold is refused (it does not order its holders); ask for the "
            "lock without -s or -p");
        return EXIT_REFUSED;
    }
    return form->run(&request);
}

/* What `redis` prints is evaluated by a shell, and that must then fail as well. */
static int run(struct cli *cli, int argc, char **argv) {
    const char *words[WORDS] = {0};
    int code = run_form(cli, argc, argv, words);
    if (code && words[0] && strcmp(words[0], "redis") == 0)
        printf(" (exit %d)\n", code);
    return code;
}

const struct command fence_command = {
    .name = "fence",
    .summary = "the resource's side: refuse a token below the largest seen",
    .usage = "fence check FILE NAME TOKEN | fence write FILE NAME TOKEN | "
             "fence redis KEY NAME TOKEN [WORD...] | fence sql DIALECT NAME TOKEN",
    .without_settings = true,
    .options = options,
    .run = run,
    .details =
        "Register the token before the first read, and check it again in the same step as each "
        "write.\n"
        "Exit code 1: TOKEN is below the largest seen for NAME, so its holder has lost the lock, "
        "or it\n"
        "belongs to a shared hold.\n"
        "\n"
        "check: FILE remembers the tokens. This check and a later write are not one step.\n"
        "write: replaces FILE with standard input if the token passes, in one step, durably. "
        "FILE.fence\n"
        "remembers the tokens: to register one, use 'fence check FILE.fence'.\n"
        "redis: prints the arguments for redis-cli, which then checks the token and executes the\n"
        "command in the WORDs, in one step. The hash KEY remembers the tokens. Without WORDs it\n"
        "registers the token.\n"
        "sql: prints a statement (DIALECT: postgres, mysql or sqlite). Make it the first of the\n"
        "transaction that writes. It fails if the token is refused: roll back and stop. The "
        "database needs\n"
        "the table that 'holdfast schema' prints.\n"
        "\n"
        "Examples:\n"
        "  ./report | holdfast fence write report.txt \"$HOLDFAST_LOCK\" \"$HOLDFAST_TOKEN\"\n"
        "  eval \"redis-cli -e $(holdfast fence redis fences \"$HOLDFAST_LOCK\" "
        "\"$HOLDFAST_TOKEN\" SET report done)\"\n"
        "  guard=$(holdfast fence sql postgres \"$HOLDFAST_LOCK\" \"$HOLDFAST_TOKEN\") &&\n"
        "    psql -1 -v ON_ERROR_STOP=1 -c \"$guard\" -f orders.sql\n",
};
