/* Compares the model with a real server, request by request:
 *
 *     differential_test zookeeper://127.0.0.1:PORT
 *
 * Both get the same random requests, over several connections with a session each. Their answers
 * and events are put into words and compared. What must differ is left out: session ids, passwords
 * and times. Transactions are counted from the first one of a run. */
#define TEST_JOBS_MOST 1 /* they share a server */
#include "check.h"
#include "sim/zookeeper/model.h"
#include "store/zookeeper/codec.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

enum {
    CONNECTIONS = 3,
    STEPS = 400,
    SEEDS = 4,
    WORDS_SIZE = 4000,
    FRAMES_MOST = 100,
    ANSWER_MS = 60000,
    START_US = 1000000,
    LONG_MS = 60000, /* more than any test takes */
};

/* One end of a connection: the frames that were sent to it, and the session. */
struct end {
    int fd; /* of a real one */
    struct codec_frames frames;
    struct ensemble_connection *model;
    struct codec_session session;
    bool is_closed;
};

struct pair {
    struct ensemble *e;
    uint64_t random;
    char root[16];
    struct {
        struct end real, model;
    } connections[CONNECTIONS];
    int64_t real_zxid, model_zxid; /* when the run began */
    char asked[300];               /* for people */
};

/* ---- Both ends ---- */

static void model_sent(void *context, const char *bytes, size_t size, bool pushed) {
    struct end *end = context;
    (void)pushed;
    CHECK(codec_frames_feed(&end->frames, bytes, size));
}

static void model_closed(void *context) {
    ((struct end *)context)->is_closed = true;
}

static void nothing_executed(void *context, const char *line, bool minor) {
    (void)context, (void)line, (void)minor;
}

static void nothing_committed(void *owner, const struct ensemble_txn *txn) {
    (void)owner, (void)txn;
}

static void nothing_noted(void *owner, const char *line) {
    (void)owner, (void)line;
}

static uint64_t no_chance(void *owner) {
    (void)owner;
    return 0;
}

static const struct ensemble_events events = {model_sent,        model_closed,  nothing_executed,
                                              nothing_committed, nothing_noted, no_chance};

static int connect_to(const char *url) {
    unsigned port = 0;
    CHECK(sscanf(url, "zookeeper://127.0.0.1:%u", &port) == 1);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    CHECK_EQ_INT(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

/* The next frame; false: the server closes the connection. The model's frame is already there. */
static bool next_frame(struct end *end, struct codec_in *ret) {
    int found;
    while ((found = codec_frames_next(&end->frames, ret)) == 0) {
        char bytes[4096];
        if (end->fd < 0)
            return false;
        struct pollfd polled = {.fd = end->fd, .events = POLLIN};
        CHECK(poll(&polled, 1, ANSWER_MS) == 1);
        ssize_t size = recv(end->fd, bytes, sizeof(bytes), 0);
        if (size <= 0)
            return false;
        CHECK(codec_frames_feed(&end->frames, bytes, (size_t)size));
    }
    CHECK(found > 0);
    return true;
}

static void send_both(struct pair *pair, int number, struct codec_out *out) {
    struct end *real = &pair->connections[number].real, *model = &pair->connections[number].model;
    CHECK(!out->failed);
    CHECK_EQ_INT(send(real->fd, out->bytes, out->size, MSG_NOSIGNAL), (ssize_t)out->size);
    for (size_t used = 0; used < out->size;)
        used += ensemble_feed(model->model, out->bytes + used, out->size - used);
    ensemble_run(pair->e);
    codec_out_free(out);
}

/* ---- Words ---- */

__attribute__((format(printf, 2, 3))) static void say(char *words, const char *format, ...) {
    size_t used = strlen(words);
    va_list values;
    va_start(values, format);
    vsnprintf(words + used, WORDS_SIZE - used, format, values);
    va_end(values);
}

static int64_t since(const struct pair *pair, bool real, int64_t zxid) {
    return zxid <= 0 ? zxid : zxid - (real ? pair->real_zxid : pair->model_zxid);
}

static const char *owner_word(const struct pair *pair, bool real, int64_t owner) {
    static char word[24];
    for (int i = 0; i < CONNECTIONS; i++) {
        const struct end *end = real ? &pair->connections[i].real : &pair->connections[i].model;
        snprintf(word, sizeof(word), "session %d", i);
        if (owner && owner == end->session.id)
            return word;
    }
    return owner ? "another" : "nobody";
}

static void say_stat(const struct pair *pair, bool real, struct codec_in *in, char *words) {
    struct codec_stat stat = codec_stat(in);
    say(words, " [%" PRId64 " %" PRId64 " %" PRId64 " v%d c%d a%d %d bytes %d children, %s]",
        since(pair, real, stat.czxid), since(pair, real, stat.mzxid), since(pair, real, stat.pzxid),
        stat.version, stat.cversion, stat.aversion, stat.data_size, stat.child_count,
        owner_word(pair, real, stat.owner));
}

static void say_text(struct codec_in *in, char *words) {
    struct codec_text text = codec_text(in);
    say(words, " \"%.*s\"", (int)text.size, text.bytes);
}

static int by_text(const void *a, const void *b) {
    const struct codec_text *x = a, *y = b;
    size_t size = x->size < y->size ? x->size : y->size;
    int order = memcmp(x->bytes, y->bytes, size);
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

/* A server lists children in its own order. */
static void say_children(struct codec_in *in, char *words) {
    struct codec_text names[200];
    size_t count = codec_count(in);
    CHECK(count <= 200);
    for (size_t i = 0; i < count; i++)
        names[i] = codec_text(in);
    qsort(names, count, sizeof(names[0]), by_text);
    for (size_t i = 0; i < count; i++)
        say(words, " %.*s", (int)names[i].size, names[i].bytes);
}

static void say_results(const struct pair *pair, bool real, struct codec_in *in, char *words) {
    for (;;) {
        int32_t type = codec_int(in);
        bool done = codec_bool(in);
        int32_t error = codec_int(in);
        if (done || in->failed)
            return;
        say(words, " {%d, %d", type, error);
        if (type == -1)
            say(words, " %d", codec_int(in));
        if (type == OP_CREATE_PLAIN)
            say_text(in, words);
        if (type == OP_SET_DATA)
            say_stat(pair, real, in, words);
        say(words, "}");
    }
}

/* A reply to a request of this type, or an event. */
static void say_frame(const struct pair *pair, bool real, int32_t op, struct codec_in *in,
                      char *words) {
    struct codec_header header = codec_header(in);
    words[0] = 0;
    say(words, "xid %d zxid %" PRId64 " error %d:", header.xid, since(pair, real, header.zxid),
        header.error);
    if (header.xid == XID_EVENT) {
        struct codec_event event = codec_event(in);
        say(words, " event %d state %d %.*s", event.type, event.state, (int)event.path.size,
            event.path.bytes);
    } else if (!header.error && op == OP_MULTI) {
        say_results(pair, real, in, words);
    } else if (!header.error) {
        if (op == OP_GET_CHILDREN)
            say_children(in, words);
        else if (op == OP_CREATE || op == OP_CREATE_CONTAINER || op == OP_GET_DATA)
            say_text(in, words);
        if (op != OP_DELETE && op != OP_PING && op != OP_SET_WATCHES && op != OP_AUTH &&
            op != OP_CLOSE_SESSION)
            say_stat(pair, real, in, words);
    }
    say(words, "%s, %zu bytes more", in->failed ? " broken" : "", in->left);
}

/* ---- Comparing ---- */

static void compare(const struct pair *pair, int number, const char *real, const char *model) {
    if (strcmp(real, model) != 0)
        test_fail(__FILE__, __LINE__, "connection %d, %s:\n# real:  %s\n# model: %s", number,
                  pair->asked, real, model);
}

static int by_words(const void *a, const void *b) {
    return strcmp(a, b);
}

/* Compares as many frames as the model has sent. When a session ends, its nodes go in any order. */
static void compare_frames(struct pair *pair, int number, int32_t op) {
    static char real_words[FRAMES_MOST][WORDS_SIZE], model_words[FRAMES_MOST][WORDS_SIZE];
    struct end *real = &pair->connections[number].real, *model = &pair->connections[number].model;
    struct codec_in in;
    size_t count = 0;
    for (; next_frame(model, &in); count++) {
        CHECK(count < FRAMES_MOST);
        say_frame(pair, false, op, &in, model_words[count]);
        if (!next_frame(real, &in))
            test_fail(__FILE__, __LINE__, "the server closed connection %d, %s:\n# model: %s",
                      number, pair->asked, model_words[count]);
        say_frame(pair, true, op, &in, real_words[count]);
    }
    if (op == OP_CLOSE_SESSION || op == OP_NONE) {
        qsort(real_words, count, WORDS_SIZE, by_words);
        qsort(model_words, count, WORDS_SIZE, by_words);
    }
    for (size_t i = 0; i < count; i++)
        compare(pair, number, real_words[i], model_words[i]);
}

/* The one that asked gets its answer; then come the events of the others. */
static void ask(struct pair *pair, int number, int32_t op, struct codec_out *out) {
    send_both(pair, number, out);
    compare_frames(pair, number, op);
    for (int i = 0; i < CONNECTIONS; i++)
        compare_frames(pair, i, OP_NONE);
}

/* ---- Sessions ---- */

static bool read_greeting(struct end *end) {
    struct codec_in in;
    CHECK(next_frame(end, &in));
    struct codec_session granted = codec_connected(&in);
    CHECK(!in.failed);
    granted.last_zxid = end->session.last_zxid;
    end->session = granted;
    return granted.id;
}

static void greet(struct pair *pair, int number, const struct codec_session *real,
                  const struct codec_session *model) {
    struct codec_out out = {0};
    struct end *theirs = &pair->connections[number].real, *ours = &pair->connections[number].model;
    ours->fd = -1;
    theirs->fd = connect_to(test_args[0]);
    ours->is_closed = false;
    ours->model = ensemble_connect(pair->e, 0, ours);
    codec_frames_start(&theirs->frames);
    codec_frames_start(&ours->frames);
    codec_connect(&out, real);
    CHECK_EQ_INT(send(theirs->fd, out.bytes, out.size, MSG_NOSIGNAL), (ssize_t)out.size);
    codec_out_free(&out);
    codec_connect(&out, model);
    ensemble_feed(ours->model, out.bytes, out.size);
    ensemble_run(pair->e);
    codec_out_free(&out);
    CHECK_EQ_INT(read_greeting(theirs), read_greeting(ours));
    CHECK_EQ_INT(theirs->session.timeout_ms, ours->session.timeout_ms);
}

static void open_session(struct pair *pair, int number, int32_t timeout_ms) {
    struct codec_session new = {.timeout_ms = timeout_ms};
    greet(pair, number, &new, &new);
}

static void cut(struct pair *pair, int number) {
    close(pair->connections[number].real.fd);
    ensemble_disconnect(pair->connections[number].model.model);
}

static void end_session(struct pair *pair, int number) {
    struct codec_out out = {0};
    codec_close_session(&out, 99);
    snprintf(pair->asked, sizeof(pair->asked), "closing");
    ask(pair, number, OP_CLOSE_SESSION, &out);
    struct codec_in in;
    CHECK(!next_frame(&pair->connections[number].real, &in));
    CHECK(pair->connections[number].model.is_closed);
    cut(pair, number);
}

static void free_frames(struct pair *pair) {
    for (int i = 0; i < CONNECTIONS; i++) {
        codec_frames_free(&pair->connections[i].real.frames);
        codec_frames_free(&pair->connections[i].model.frames);
    }
}

static struct ensemble *open_model(void) {
    return ensemble_new(&(struct ensemble_config){.events = &events,
                                                  .member_count = 1,
                                                  .tick_us = 3000000,
                                                  .containers_us = INT64_C(3600000000),
                                                  .sync_limit = 5},
                        START_US);
}

/* ---- Random requests ---- */

static uint64_t below(struct pair *pair, uint64_t limit) {
    pair->random = pair->random * 6364136223846793005u + 1442695040888963407u;
    return (pair->random >> 33) % limit;
}

static const char *choose_path(struct pair *pair) {
    static const char *const paths[] = {"", "/a", "/a/b", "/a/c", "/d", "/d/e", "/x/y", "/a/b/"};
    static char path[64];
    uint64_t which = below(pair, 12);
    if (which < 8)
        snprintf(path, sizeof(path), "%s%s", pair->root, paths[which]);
    else /* a node with a number */
        snprintf(path, sizeof(path), "%s/a/n-%010d", pair->root, (int)below(pair, 12));
    return path;
}

static const char *choose_data(struct pair *pair) {
    static const char *const data[] = {"", "x", "some data"};
    return data[below(pair, 3)];
}

static void set_watches(struct pair *pair, int number) {
    char paths[4][64];
    const char *nodes[2] = {paths[0], paths[1]}, *parents[2] = {paths[2], paths[3]};
    for (int i = 0; i < 4; i++)
        snprintf(paths[i], sizeof(paths[i]), "%s", choose_path(pair));
    int64_t back = (int64_t)below(pair, 30);
    struct codec_paths of_nodes = {nodes, 2}, of_children = {parents, 2};
    struct codec_out real = {0}, model = {0};
    struct end *theirs = &pair->connections[number].real, *ours = &pair->connections[number].model;
    int64_t now = ensemble_tree(pair->e)->last_zxid;
    codec_set_watches(&real, now - back - pair->model_zxid + pair->real_zxid, of_nodes,
                      of_children);
    codec_set_watches(&model, now - back, of_nodes, of_children);
    CHECK_EQ_INT(send(theirs->fd, real.bytes, real.size, MSG_NOSIGNAL), (ssize_t)real.size);
    ensemble_feed(ours->model, model.bytes, model.size);
    codec_out_free(&real);
    codec_out_free(&model);
    compare_frames(pair, number, OP_SET_WATCHES);
}

static void add_part(struct pair *pair, struct codec_out *out) {
    const char *path = choose_path(pair);
    int32_t version = (int32_t)below(pair, 4) - 1;
    switch (below(pair, 5)) {
    case 0:
        codec_multi_delete(out, path);
        break;
    case 1:
        codec_multi_set_data(out, path, choose_data(pair), version);
        break;
    case 2:
        codec_multi_create(out, path, choose_data(pair), ACL_ANYBODY);
        break;
    default:
        codec_multi_check(out, path, version);
    }
}

/* Continues the session over another connection; or tries to, with a wrong password. */
static void resume(struct pair *pair, int number) {
    struct end *theirs = &pair->connections[number].real, *ours = &pair->connections[number].model;
    struct codec_session real = theirs->session, model = ours->session;
    bool wrong = below(pair, 4) == 0;
    cut(pair, number);
    if (wrong) {
        struct codec_session bad_real = real, bad_model = model;
        bad_real.password[3] ^= 1;
        bad_model.password[3] ^= 1;
        greet(pair, number, &bad_real, &bad_model);
        CHECK_EQ_INT(ours->session.id, 0);
        cut(pair, number);
    }
    greet(pair, number, &real, &model);
    CHECK(theirs->session.id == real.id && ours->session.id == model.id);
}

static int32_t make_request(struct pair *pair, struct codec_out *out, int32_t xid) {
    const char *path = choose_path(pair);
    bool watch = below(pair, 2);
    char prefix[80];
    switch (below(pair, 11)) {
    case 0:
    case 1:
        codec_create(out, xid, path, choose_data(pair), ACL_ANYBODY);
        return OP_CREATE;
    case 2:
    case 3:
        snprintf(prefix, sizeof(prefix), "%s/%sn-", pair->root, watch ? "a/" : "d/");
        codec_create_claim(out, xid, prefix, choose_data(pair), ACL_ANYBODY);
        return OP_CREATE;
    case 4:
        codec_create_container(out, xid, path, ACL_ANYBODY);
        return OP_CREATE_CONTAINER;
    case 5:
        codec_delete(out, xid, path);
        return OP_DELETE;
    case 6:
        codec_get_data(out, xid, path, watch);
        return OP_GET_DATA;
    case 7:
        codec_set_data(out, xid, path, choose_data(pair), (int32_t)below(pair, 4) - 1);
        return OP_SET_DATA;
    case 8:
        codec_get_children(out, xid, path, watch);
        return OP_GET_CHILDREN;
    case 9:
        codec_multi_begin(out, xid);
        for (uint64_t i = below(pair, 4); i > 0; i--)
            add_part(pair, out);
        codec_multi_end(out);
        return OP_MULTI;
    default:
        codec_ping(out);
        return OP_PING;
    }
}

/* The first transaction of the run, from which the others are counted. */
static void begin(struct pair *pair, uint64_t seed) {
    struct codec_out out = {0};
    struct codec_in in;
    *pair = (struct pair){.e = open_model(), .random = seed};
    snprintf(pair->root, sizeof(pair->root), "/t%d-%d", (int)getpid(), (int)seed);
    for (int i = 0; i < CONNECTIONS; i++)
        open_session(pair, i, LONG_MS);
    codec_create(&out, 1, pair->root, "", ACL_ANYBODY);
    send_both(pair, 0, &out);
    CHECK(next_frame(&pair->connections[0].real, &in));
    pair->real_zxid = codec_header(&in).zxid;
    CHECK(next_frame(&pair->connections[0].model, &in));
    pair->model_zxid = codec_header(&in).zxid;
}

static void run(uint64_t seed) {
    struct pair pair;
    begin(&pair, seed);
    for (int step = 0; step < STEPS; step++) {
        int number = (int)below(&pair, CONNECTIONS), xid = step + 2;
        struct codec_out out = {0};
        snprintf(pair.asked, sizeof(pair.asked), "seed %d, step %d", (int)seed, step);
        uint64_t kind = below(&pair, 40);
        if (kind == 0) {
            resume(&pair, number);
        } else if (kind == 1) {
            set_watches(&pair, number);
        } else if (kind == 2) {
            end_session(&pair, number);
            open_session(&pair, number, LONG_MS);
        } else {
            int32_t op = make_request(&pair, &out, xid);
            ask(&pair, number, op, &out);
        }
    }
    for (int i = 0; i < CONNECTIONS; i++)
        end_session(&pair, i);
    ensemble_free(pair.e);
    free_frames(&pair);
}

TEST(the_model_answers_as_a_server_does) {
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        run(seed);
}

/* ---- Permissions ---- */

static void ask_get(struct pair *pair, int number, const char *path) {
    struct codec_out out = {0};
    snprintf(pair->asked, sizeof(pair->asked), "%d reads %s", number, path);
    codec_get_data(&out, 5, path, false);
    ask(pair, number, OP_GET_DATA, &out);
}

TEST(what_somebody_has_created_for_itself_is_closed_to_others) {
    struct pair pair;
    struct codec_out out = {0};
    char path[32], below_it[40];
    begin(&pair, 100);
    snprintf(path, sizeof(path), "%s/own", pair.root);
    snprintf(below_it, sizeof(below_it), "%s/sub", path);
    snprintf(pair.asked, sizeof(pair.asked), "creating");
    codec_create(&out, 2, path, "", ACL_CREATOR); /* nobody has logged in */
    ask(&pair, 0, OP_CREATE, &out);
    codec_auth(&out, "digest", "one:secret");
    ask(&pair, 0, OP_AUTH, &out);
    codec_auth(&out, "digest", "two:secret");
    ask(&pair, 1, OP_AUTH, &out);
    codec_create(&out, 3, path, "", ACL_CREATOR);
    ask(&pair, 0, OP_CREATE, &out);
    for (int i = 0; i < CONNECTIONS; i++) {
        ask_get(&pair, i, path);
        codec_set_data(&out, 4, path, "x", ANY_VERSION);
        ask(&pair, i, OP_SET_DATA, &out);
        codec_create(&out, 5, below_it, "", ACL_ANYBODY);
        ask(&pair, 2 - i, OP_CREATE, &out);
        codec_delete(&out, 6, below_it);
        ask(&pair, i, OP_DELETE, &out);
        codec_multi_begin(&out, 7);
        codec_multi_check(&out, pair.root, ANY_VERSION);
        codec_multi_check(&out, path, ANY_VERSION);
        codec_multi_end(&out);
        ask(&pair, i, OP_MULTI, &out);
    }
    for (int i = 0; i < CONNECTIONS; i++)
        end_session(&pair, i);
    ensemble_free(pair.e);
    free_frames(&pair);
}

/* ---- Sessions that end ---- */

/* The real server's clock is the real one: it takes a few seconds. */
TEST(a_session_that_falls_silent_ends_with_its_nodes) {
    enum { SHORT_MS = 6000 };
    struct pair pair;
    struct codec_out out = {0};
    char prefix[32], path[48];
    begin(&pair, 200);
    end_session(&pair, 1);
    open_session(&pair, 1, SHORT_MS);
    snprintf(prefix, sizeof(prefix), "%s/n-", pair.root);
    snprintf(path, sizeof(path), "%s0000000000", prefix);
    codec_create_claim(&out, 2, prefix, "", ACL_ANYBODY);
    ask(&pair, 1, OP_CREATE, &out);
    codec_get_data(&out, 3, path, true);
    ask(&pair, 0, OP_GET_DATA, &out);
    codec_get_children(&out, 4, pair.root, true);
    ask(&pair, 0, OP_GET_CHILDREN, &out);
    struct codec_session real = pair.connections[1].real.session;
    struct codec_session model = pair.connections[1].model.session;
    cut(&pair, 1);
    snprintf(pair.asked, sizeof(pair.asked), "silence");
    ensemble_set_time(pair.e, START_US + SHORT_MS * INT64_C(1000));
    ensemble_run(pair.e);
    compare_frames(&pair, 0, OP_NONE);
    ask_get(&pair, 0, path);
    greet(&pair, 1, &real, &model);
    CHECK_EQ_INT(pair.connections[1].model.session.id, 0);
    cut(&pair, 1);
    end_session(&pair, 0);
    end_session(&pair, 2);
    ensemble_free(pair.e);
    free_frames(&pair);
}
