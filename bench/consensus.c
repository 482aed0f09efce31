#include "consensus.h"

#include "crew.h"

#include <errno.h>
#include <holdfast/holdfast.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SPAWNS = 5, SLICE_MS = 200, WAITING = 16, WARM_MS = 3000 };

extern char **environ;

static const struct consensus *consensus;
static const char *url;
static char host[64], endpoint[80], port_text[8];
static uint16_t port;

void die(const char *what, const char *why) {
    fprintf(stderr, "bench: %s: %s\n", what, why);
    exit(1);
}

static void must(int result, const char *what) {
    if (result < 0)
        die(what, hf_last_error());
}

/* ---- The store, and bare connections ---- */

static void own_pair(struct crew *crew, int index, const char *name) {
    hf_hold *hold;
    must(hf_acquire(crew->arg, name, NULL, &hold), "acquire");
    crew_holds(crew, index);
    must(hf_release(hold), "release");
    hf_hold_free(hold);
}

struct bare {
    void (*pair)(struct raw *to, const char *name);
    struct raw *to[CREW_MAX];
};

static void bare_pair(struct crew *crew, int index, const char *name) {
    const struct bare *bare = crew->arg;
    bare->pair(bare->to[index], name);
}

/* ---- Peers ---- */

struct side {
    int fd;
    FILE *from;
    pid_t pid;
    const char *measures; /* "pairs" or "changes" */
    int count;
};

static void start_peer(struct side *side, const struct peer *peer) {
    int ends[2];
    char *words[10];
    size_t count = 0;
    for (; peer->words[count]; count++)
        words[count] = (char *)peer->words[count];
    words[count++] = port_text;
    words[count] = NULL;
    posix_spawn_file_actions_t actions;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        die("socketpair", strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    int error = posix_spawnp(&side->pid, words[0], &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error)
        die(words[0], strerror(error));
    side->fd = ends[0];
    side->from = fdopen(ends[0], "r");
}

static double ask_peer(struct side *side, int ms) {
    char line[64];
    dprintf(side->fd, "%s %d %d\n", side->measures, side->count, ms);
    if (!fgets(line, sizeof(line), side->from))
        die("a peer", "it has ended");
    return strtod(line, NULL);
}

static double peer_slice(void *arg) {
    return ask_peer(arg, SLICE_MS);
}

static void end_peer(struct side *side) {
    shutdown(side->fd, SHUT_WR);
    waitpid(side->pid, NULL, 0);
    fclose(side->from);
}

/* ---- Parts ---- */

/* `changes`: of holder, on one name. What there is to compare with is then pairs of one
 * connection, one after the other: a change takes an acquire and a release. */
static void measure(int count, bool changes) {
    static struct bare bare[2];
    static struct crew crews[3];
    static struct side sides[2];
    static struct comparison c;
    struct contender contenders[COMPARE_CONTENDERS_MAX];
    int raw_count = changes ? 1 : count;
    size_t n = 0;
    hf_client *client;
    must(hf_client_open(url, NULL, &client), "open");
    for (size_t i = 0; i < 2; i++) {
        bare[i].pair = consensus->ways[i].pair;
        for (int j = 0; j < raw_count; j++)
            bare[i].to[j] = i ? bare[0].to[j] : raw_connect(host, port);
        crews[i] =
            (struct crew){.count = raw_count, .names = "bare", .pair = bare_pair, .arg = &bare[i]};
    }
    crews[2] = (struct crew){
        .count = count, .one_name = changes, .names = "own", .pair = own_pair, .arg = client};
    contenders[n++] = (struct contender){consensus->ways[0].what, crew_slice, &crews[0], NULL};
    contenders[n++] = (struct contender){"holdfast, one client", crew_slice, &crews[2],
                                         changes ? NULL : ">= 0.95"};
    contenders[n++] = (struct contender){consensus->ways[1].what, crew_slice, &crews[1], NULL};
    for (size_t i = 0; i < consensus->peer_count; i++) {
        start_peer(&sides[i], &consensus->peers[i]);
        sides[i].measures = changes ? "changes" : "pairs";
        sides[i].count = count;
        ask_peer(&sides[i], WARM_MS); /* it connects, and compiles itself */
        contenders[n++] = (struct contender){consensus->peers[i].what, peer_slice, &sides[i], NULL};
    }
    char title[100];
    snprintf(title, sizeof(title), "%d thread%s on %s", count, count == 1 ? "" : "s",
             changes      ? "one name (the limit: by one, without a lock)"
             : count == 1 ? "a free lock"
                          : "as many names, a bare connection each");
    compare(title, changes ? "changes/s" : "pairs/s", contenders, n, &c);
    for (size_t i = 0; i < consensus->peer_count; i++) {
        snprintf(title, sizeof(title), "holdfast, to %s", consensus->peers[i].what);
        compare_others(&c, 1, 3 + (int)i, title, "> 1");
        end_peer(&sides[i]);
    }
    for (int j = 0; j < raw_count; j++)
        raw_close(bare[0].to[j]);
    hf_client_close(client);
}

/* ---- The command ---- */

static double spawn_slice(void *arg) {
    char *const *words = arg;
    int64_t began = compare_now_ns();
    for (int i = 0; i < SPAWNS; i++) {
        pid_t child;
        int status, error = posix_spawnp(&child, words[0], NULL, NULL, words, environ);
        if (error || waitpid(child, &status, 0) < 0 || status != 0)
            die(words[0], error ? strerror(error) : "it failed");
    }
    return (double)(compare_now_ns() - began) / 1e6 / SPAWNS;
}

static void measure_command(void) {
    const char *command = getenv("HOLDFAST");
    const char *words[12] = {consensus->command[0], consensus->endpoint, endpoint};
    for (size_t i = 1; consensus->command[i]; i++)
        words[i + 2] = consensus->command[i];
    if (!command)
        die("run", "HOLDFAST does not name the command");
    setenv("HOLDFAST_URL", url, 1);
    const struct contender contenders[] = {
        {consensus->command_name, spawn_slice, words, NULL},
        {"holdfast run x -- true", spawn_slice,
         (const char *[]){command, "run", "x", "--", "true", NULL}, "<= 0.25"},
    };
    static struct comparison c;
    compare("A command under a lock", "ms", contenders, 2, &c);
}

int consensus_main(int argc, char **argv, const struct consensus *of) {
    int option;
    consensus = of;
    while ((option = getopt(argc, argv, "r:")) != -1) {
        if (option == '?')
            return 2;
        compare_rounds = atoi(optarg);
    }
    if (optind >= argc || compare_rounds < 1 || compare_rounds > COMPARE_ROUNDS_MAX)
        die("usage", "[-r ROUNDS] URL");
    url = argv[optind];
    if (sscanf(url, "%*[^:]://%63[^:]:%7[0-9]", host, port_text) != 2)
        die("the URL", url);
    port = (uint16_t)strtoul(port_text, NULL, 10);
    snprintf(endpoint, sizeof(endpoint), "%s:%s", host, port_text);
    printf("medians of %d interleaved rounds\n", compare_rounds);
    measure(1, false);
    measure(CREW_MAX, false);
    measure(WAITING, true);
    if (consensus->command[0])
        measure_command();
    return 0;
}
