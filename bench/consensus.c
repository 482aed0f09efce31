#include "consensus.h"

#include "crew.h"
#include "process.h"
#include "result.h"

#include <holdfast/holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLICE_MS = 200, WAITING = 16, WARM_MS = 3000 };

static const struct consensus *consensus;
static const char *url;
static char host[64], endpoint[80], port_text[8];
static uint16_t port;

static void must(int result, const char *what) {
    if (result < 0)
        result_die(what, hf_last_error());
}

/* "etcd/pair-1" */
static const char *name_of(const char *part) {
    static char name[64];
    snprintf(name, sizeof(name), "%s/%s", consensus->name, part);
    return name;
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

static struct peer *start_peer(const struct consensus_peer *peer) {
    const char *words[10];
    size_t count = 0;
    for (; peer->words[count]; count++)
        words[count] = peer->words[count];
    words[count++] = port_text;
    words[count] = NULL;
    return peer_start(words);
}

/* ---- Parts ---- */

/* `changes`: measures changes of holder, on one name. The bare side then makes pairs on one
 * connection, one after the other: a change takes an acquire and a release. */
static void measure(const char *part, const char *title, int count, bool changes) {
    static struct bare bare[2];
    static struct crew crews[3];
    static struct peer_slice sides[2];
    struct contender contenders[RESULT_CONTENDERS_MAX];
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
    contenders[n++] = (struct contender){consensus->ways[0].what, crew_slice, &crews[0]};
    contenders[n++] = (struct contender){"holdfast, one client", crew_slice, &crews[2]};
    contenders[n++] = (struct contender){consensus->ways[1].what, crew_slice, &crews[1]};
    for (size_t i = 0; i < consensus->peer_count; i++) {
        const struct consensus_peer *peer = &consensus->peers[i];
        sides[i] = (struct peer_slice){start_peer(peer), changes ? "changes" : "pairs", peer->kind,
                                       count, WARM_MS};
        peer_slice(&sides[i]); /* it connects, and compiles itself */
        sides[i].ms = SLICE_MS;
        contenders[n++] = (struct contender){peer->what, peer_slice, &sides[i]};
    }
    result_compare(name_of(part), title, changes ? "changes/s" : "pairs/s", contenders, n);
    for (size_t i = 0; i < consensus->peer_count; i++)
        peer_end(sides[i].peer);
    for (int j = 0; j < raw_count; j++)
        raw_close(bare[0].to[j]);
    hf_client_close(client);
}

static void measure_one(void) {
    measure("pair-1", "A free lock, one thread", 1, false);
}

static void measure_many(void) {
    measure("pair-64", "64 threads on as many names, a bare connection each", CREW_MAX, false);
}

static void measure_changes(void) {
    measure("one-name-16", "16 threads on one name; bare: one connection, pair after pair", WAITING,
            true);
}

static void measure_command(void) {
    const char *command = getenv("HOLDFAST");
    const char *words[12] = {consensus->command[0], consensus->endpoint, endpoint};
    if (!consensus->command[0])
        return;
    for (size_t i = 1; consensus->command[i]; i++)
        words[i + 2] = consensus->command[i];
    if (!command)
        result_die("run", "HOLDFAST does not name the command");
    setenv("HOLDFAST_URL", url, 1);
    const struct contender contenders[] = {
        {consensus->command_name, process_command_slice, words},
        {"holdfast run x -- true", process_command_slice,
         (const char *[]){command, "run", "x", "--", "true", NULL}},
    };
    result_compare(name_of("run"), "A command under a lock", "ms", contenders, 2);
}

int consensus_main(int argc, char **argv, const struct consensus *of) {
    consensus = of;
    if (argc != 2)
        result_die("usage", "URL");
    url = argv[1];
    if (sscanf(url, "%*[^:]://%63[^:]:%7[0-9]", host, port_text) != 2)
        result_die("the URL", url);
    port = (uint16_t)strtoul(port_text, NULL, 10);
    snprintf(endpoint, sizeof(endpoint), "%s:%s", host, port_text);
    result_run((const struct result_part[]){{"pair-1", measure_one},
                                            {"pair-64", measure_many},
                                            {"one-name-16", measure_changes},
                                            {"run", measure_command}},
               4);
    return 0;
}
