/* A program that makes calls of the public API on command, so that tests can hold locks in several
 * real processes, and stop and kill them. It reads commands from stdin, one on a line:
 *
 *    open URL [MAX_LEASE_MS] [WAIT_LEASE_MS] [DRIFT_PPM] [TOKEN_FLOOR]
 *    acquire ID NAME KIND LEASE_MS WAIT_MS [FLAGS] [MIN_LEFT_MS]
 *    cancel ID | check ID NEED_MS | left ID | owner ID | renew ID LEASE_MS | release ID
 *    fd ID | free ID
 *    break NAME TOKEN REASON... | inspect NAME | close | quit
 *
 * KIND is mutex, read, write, K/N for K of N permits, or all: mutexes of several names, separated
 * by commas, as are then their tokens. FLAGS are barge, reentrant and no_renew, separated by
 * commas. "-" stands for the default of an optional argument. It writes one line for each result
 * and event, each beginning with the time (CLOCK_BOOTTIME, us):
 *
 *    opened | closed | freed ID | left ID MS | owner ID OWNER | fd ID READABLE | lost ID WHY
 *    acquired ID TOKEN LEFT_MS        failed ID ERROR TEXT, for an acquire; failed open ERROR TEXT
 *    checked ID, renewed ID, released ID, broke NAME and OK, or ERROR TEXT
 *    inspected NAME OK kind=N capacity=N token=N holders=TOKEN:PID:LEFT_MS,... waiters=...
 *              broken=TOKEN:REASON
 *
 * ERROR is the word after HF_. Requests to the store never block the program: it is one loop over
 * stdin and hf_fd, and a cancelled or closed call still has its line. A command that it does not
 * understand ends it with status 2; quit, or the end of stdin, closes and frees everything, and
 * ends it with 0. */
#include <assert.h>
#include <holdfast/holdfast.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORDS_MAX = 16, LINE_MAX_BYTES = 16384, NAME_MAX_BYTES = 256, NAMES_MAX = 16 };

/* An ID of the tests: a lock that was requested, and its hold once granted. */
struct lock {
    struct lock *next;
    char id[NAME_MAX_BYTES];
    hf_hold *hold;
};

/* A call in flight. */
struct task {
    struct task *next;
    const char *what; /* "released": what its line begins with */
    char id[NAME_MAX_BYTES];
    hf_call *call;
};

static hf_client *client;
static struct lock *locks;
static struct task *tasks;

/* ---- Words in, lines out ------------------------------------------------------------------ */

/* Lines leave as they are complete: stdout is line-buffered. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    printf("%" PRId64 " ", now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

static const char *word_of(int error) {
    return error == HF_OK ? "OK" : hf_error_name(error) + strlen("HF_");
}

_Noreturn static void not_understood(const char *what) {
    fprintf(stderr, "puppet: not understood: %s\n", what ? what : "too few words");
    exit(2);
}

static const char *need(const char *word) {
    if (!word)
        not_understood(word);
    return word;
}

static bool is_given(const char *word) {
    return word && strcmp(word, "-") != 0;
}

static int64_t number(const char *word, int64_t otherwise) {
    if (!is_given(word))
        return otherwise;
    char *end;
    int64_t value = strtoll(word, &end, 10);
    if (end == word || *end)
        not_understood(word);
    return value;
}

static void copy(char to[NAME_MAX_BYTES], const char *from) {
    if (snprintf(to, NAME_MAX_BYTES, "%s", from) >= NAME_MAX_BYTES)
        not_understood(from);
}

/* ---- Locks and tasks ---------------------------------------------------------------------- */

static struct lock **find_lock(const char *id) {
    struct lock **at = &locks;
    while (*at && strcmp((*at)->id, id) != 0)
        at = &(*at)->next;
    return at;
}

static struct lock *lock_of(const char *id) {
    struct lock *lock = *find_lock(need(id));
    if (!lock)
        not_understood(id);
    return lock;
}

/* The hold of an ID whose lock was granted. */
static hf_hold *hold_of(const char *id) {
    hf_hold *hold = lock_of(id)->hold;
    if (!hold)
        not_understood(id);
    return hold;
}

static void free_lock(struct lock **at) {
    struct lock *lock = *at;
    assert(lock);
    *at = lock->next;
    hf_hold_free(lock->hold);
    free(lock);
}

static void free_task(struct task **at) {
    struct task *task = *at;
    *at = task->next;
    hf_call_free(task->call);
    free(task);
}

static struct task **find_acquire(const char *id) {
    struct task **at = &tasks;
    while (*at && (strcmp((*at)->what, "acquired") != 0 || strcmp((*at)->id, id) != 0))
        at = &(*at)->next;
    return at;
}

/* Prints the line for a call that has ended. */
static void say_end(const char *what, const char *id, int error, const char *text) {
    if (error == HF_OK)
        say("%s %s OK", what, id);
    else
        say("%s %s %s %s", strcmp(what, "acquired") == 0 ? "failed" : what, id, word_of(error),
            text);
}

/* Follows a call whose start returned `r`. If that is an error, prints its line at once. */
static void follow(const char *what, const char *id, int r, hf_call *call) {
    if (r < 0) {
        say_end(what, id, r, hf_last_error());
        return;
    }
    struct task *task = calloc(1, sizeof(*task));
    assert(task);
    *task = (struct task){.next = tasks, .what = what, .call = call};
    copy(task->id, id);
    tasks = task;
    r = hf_call_queue(call, task);
    assert(r == HF_OK);
}

/* ---- What completes ----------------------------------------------------------------------- */

static void print_parties(FILE *to, const char *what, const hf_party *const *parties,
                          size_t count) {
    fprintf(to, " %s=", what);
    for (size_t i = 0; i < count; i++)
        fprintf(to, "%s%" PRIu64 ":%" PRId64 ":%" PRId64, i ? "," : "", parties[i]->token,
                parties[i]->pid, parties[i]->left_ms);
}

static void say_inspected(struct task *task) {
    char *text;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    assert(to);
    hf_locks *found = hf_call_take_locks(task->call);
    const hf_lock_info *info = hf_locks_at(found, 0);
    if (info) {
        fprintf(to, " kind=%d capacity=%" PRIu32 " token=%" PRIu64, (int)info->kind, info->capacity,
                info->token);
        print_parties(to, "holders", info->holders, info->holder_count);
        print_parties(to, "waiters", info->waiters, info->waiter_count);
        fprintf(to, " broken=%" PRIu64 ":%s", info->broken_token, info->broken_reason);
    }
    hf_locks_free(found);
    fclose(to);
    say("inspected %s OK%s", task->id, text);
    free(text);
}

static void say_acquired(struct task *task) {
    struct lock *lock = lock_of(task->id);
    char tokens[NAMES_MAX * 24];
    int used = 0;
    lock->hold = hf_call_take_hold(task->call);
    for (size_t i = 0; i < NAMES_MAX && hf_hold_token_at(lock->hold, i); i++)
        used += snprintf(tokens + used, sizeof(tokens) - (size_t)used, "%s%" PRIu64, i ? "," : "",
                         hf_hold_token_at(lock->hold, i));
    say("acquired %s %s %" PRId64, lock->id, tokens, hf_hold_left_ms(lock->hold));
}

/* Prints how a task ended, and frees it. */
static void finish(struct task **at) {
    struct task *task = *at;
    bool is_acquire = strcmp(task->what, "acquired") == 0;
    int error = hf_call_status(task->call);
    if (error == HF_OK && is_acquire)
        say_acquired(task);
    else if (error == HF_OK && strcmp(task->what, "inspected") == 0)
        say_inspected(task);
    else
        say_end(task->what, task->id, error, hf_call_error(task->call));
    if (error < 0 && is_acquire)
        free_lock(find_lock(task->id));
    free_task(at);
}

static void finish_completed(void) {
    hf_call *call;
    while ((call = hf_call_next(client))) {
        struct task **at = &tasks;
        while (*at != hf_call_data(call))
            at = &(*at)->next;
        finish(at);
    }
}

/* ---- The commands: words[0] is the command's own name, the last is followed by NULL -------- */

static void do_open(char **words) {
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    const char *url = need(words[1]);
    if (client)
        not_understood("open, twice");
    options.max_lease_ms = number(words[2], options.max_lease_ms);
    options.wait_lease_ms = number(words[3], options.wait_lease_ms);
    options.drift_ppm = (uint32_t)number(words[4], options.drift_ppm);
    options.token_floor = (uint64_t)number(words[5], 0);
    int r = hf_client_open(url, &options, &client);
    if (r == HF_OK && (r = hf_fd(client)) < 0)
        client = hf_client_close(client);
    if (r < 0)
        say("failed open %s %s", word_of(r), hf_last_error());
    else
        say("opened");
}

static void lost(hf_hold *hold, void *arg) {
    (void)hold;
    say("lost %s %s", ((struct lock *)arg)->id, hf_last_error());
}

/* The names of KIND all. */
static int start_all(char *names, const hf_acquire_options *options, hf_call **ret_call) {
    hf_want wants[NAMES_MAX];
    const hf_want *pointers[NAMES_MAX];
    size_t count = 0;
    char *rest = NULL;
    for (char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        if (count == NAMES_MAX)
            not_understood("so many names");
        wants[count] = (hf_want)HF_WANT_INIT;
        wants[count].name = name;
        pointers[count] = &wants[count];
        count++;
    }
    return hf_acquire_all_start(client, pointers, count, options, ret_call);
}

static void read_kind(const char *word, hf_acquire_options *options) {
    if (strcmp(word, "exclusive") == 0)
        options->kind = HF_EXCLUSIVE;
    else if (strcmp(word, "shared") == 0)
        options->kind = HF_SHARED;
    else if (sscanf(word, "%" SCNu32 "/%" SCNu32, &options->permits, &options->capacity) ==
             2) // NOLINT
        options->kind = HF_PERMITS;
    else
        not_understood(word);
}

static unsigned read_flags(char *words) {
    unsigned flags = 0;
    char *rest = NULL;
    for (char *word = strtok_r(words, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        if (strcmp(word, "barge") == 0)
            flags |= HF_BARGE;
        else if (strcmp(word, "reentrant") == 0)
            flags |= HF_REENTRANT;
        else if (strcmp(word, "no_renew") == 0)
            flags |= HF_NO_RENEW;
        else
            not_understood(word);
    }
    return flags;
}

static void do_acquire(char **words) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    for (int i = 1; i < 6; i++)
        need(words[i]);
    const char *id = words[1];
    if (*find_lock(id))
        not_understood(id);
    bool is_all = strcmp(words[3], "all") == 0;
    if (!is_all)
        read_kind(words[3], &options);
    options.lease_ms = number(words[4], options.lease_ms);
    options.wait_ms = number(words[5], options.wait_ms);
    options.flags = is_given(words[6]) ? read_flags(words[6]) : 0;
    options.min_left_ms = number(words[7], 0);

    struct lock *lock = calloc(1, sizeof(*lock));
    assert(lock);
    copy(lock->id, id);
    lock->next = locks;
    locks = lock;
    options.on_lost = lost;
    options.on_lost_arg = lock;
    hf_call *call = NULL;
    int r = is_all ? start_all(words[2], &options, &call)
                   : hf_acquire_start(client, words[2], &options, &call);
    follow("acquired", id, r, call);
    if (r < 0)
        free_lock(find_lock(id));
}

/* The result is in the line of the acquire. */
static void do_cancel(char **words) {
    struct task *task = *find_acquire(need(words[1]));
    if (task)
        hf_call_cancel(task->call);
}

static void do_check(char **words) {
    int r = hf_check(hold_of(words[1]), number(need(words[2]), 0));
    say_end("checked", words[1], r, hf_error_string(r));
}

static void do_left(char **words) {
    say("left %s %" PRId64, words[1], hf_hold_left_ms(hold_of(words[1])));
}

static void do_owner(char **words) {
    say("owner %s %s", words[1], hf_hold_owner(hold_of(words[1])));
}

static void do_renew(char **words) {
    hf_call *call = NULL;
    int r = hf_renew_start(hold_of(words[1]), number(need(words[2]), 0), &call);
    follow("renewed", words[1], r, call);
}

static void do_release(char **words) {
    hf_call *call = NULL;
    int r = hf_release_start(hold_of(words[1]), &call);
    follow("released", words[1], r, call);
}

static void do_fd(char **words) {
    struct pollfd fd = {.fd = hf_hold_fd(hold_of(words[1])), .events = POLLIN};
    if (fd.fd < 0)
        say("fd %s %s %s", words[1], word_of(fd.fd), hf_last_error());
    else
        say("fd %s %d", words[1], poll(&fd, 1, 0));
}

static void do_free(char **words) {
    lock_of(words[1]);
    struct task **acquire = find_acquire(words[1]);
    if (*acquire)
        free_task(acquire);
    free_lock(find_lock(words[1]));
    say("freed %s", words[1]);
}

/* Joins the words of the reason again. */
static void do_break(char **words) {
    char reason[LINE_MAX_BYTES] = "";
    hf_call *call = NULL;
    uint64_t token = (uint64_t)number(need(words[2]), 0);
    for (char **word = words + 3; *word; word++) {
        strcat(reason, *word);
        strcat(reason, word[1] ? " " : "");
    }
    int r = hf_break_start(client, words[1], token, reason, &call);
    follow("broke", words[1], r, call);
}

static void do_inspect(char **words) {
    hf_call *call = NULL;
    int r = hf_inspect_start(client, need(words[1]), &call);
    follow("inspected", words[1], r, call);
}

static void do_close(char **words) {
    (void)words;
    client = hf_client_close(client);
    while (tasks)
        finish(&tasks);
    say("closed");
}

_Noreturn static void do_quit(char **words) {
    if (client)
        do_close(words);
    while (locks)
        free_lock(&locks);
    exit(0);
}

static const struct command {
    const char *word;
    void (*run)(char **words);
} commands[] = {
    {"open", do_open},   {"acquire", do_acquire}, {"cancel", do_cancel},   {"check", do_check},
    {"left", do_left},   {"renew", do_renew},     {"release", do_release}, {"fd", do_fd},
    {"free", do_free},   {"break", do_break},     {"inspect", do_inspect}, {"close", do_close},
    {"owner", do_owner}, {"quit", do_quit},
};

/* ---- The loop ----------------------------------------------------------------------------- */

static void obey(char *line) {
    char *words[WORDS_MAX + 1] = {NULL};
    char *rest = NULL;
    size_t count = 0;
    for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (count == WORDS_MAX)
            not_understood(word);
        words[count++] = word;
    }
    need(words[0]);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(commands[i].word, words[0]) == 0) {
            commands[i].run(words);
            return;
        }
    }
    not_understood(words[0]);
}

/* Reads what has arrived and executes each complete line. */
static void read_commands(void) {
    static char buffer[LINE_MAX_BYTES];
    static size_t used;
    ssize_t got = read(STDIN_FILENO, buffer + used, sizeof(buffer) - used);
    if (got <= 0)
        do_quit(NULL);
    used += (size_t)got;
    char *end;
    while ((end = memchr(buffer, '\n', used))) {
        *end = '\0';
        obey(buffer);
        used -= (size_t)(end + 1 - buffer);
        memmove(buffer, end + 1, used);
    }
    if (used == sizeof(buffer))
        not_understood("a line that long");
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (;;) {
        struct pollfd fds[] = {
            {.fd = STDIN_FILENO, .events = POLLIN},
            {.fd = client ? hf_fd(client) : -1, .events = POLLIN},
        };
        if (poll(fds, 2, -1) < 0)
            continue; /* a signal, for example when it was stopped */
        if (fds[0].revents)
            read_commands();
        if (client) {
            hf_process(client);
            finish_completed();
        }
    }
}
