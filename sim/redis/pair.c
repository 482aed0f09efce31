#include "sim/redis/pair.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEEN_MOST = 4096 };

struct real_connection {
    int fd;
    struct text input;
    size_t taken; /* of the input */
};

struct pair {
    const char *url;
    uint64_t seed, random;
    uint64_t steps;
    _Atomic int64_t *clock_us;
    struct real_connection real, real_listener, aside;
    struct model_redis *model;
    struct model_connection *connection, *listener;
    struct text heard, listener_heard; /* what the model sent to its two connections */
    struct text reply;                 /* the real server's */
    struct request request;            /* of pair_ask_words */
    enum model_mode mode;
    char unsaved[600];           /* the folder that makes saving fail, if it exists */
    struct real_connection busy; /* for a slow script, or for loading */
};

/* A test is a process (check.h): ending the process like this fails the test. */
static void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
static void fail(const char *format, ...) {
    va_list list;
    va_start(list, format);
    printf("# ");
    vprintf(format, list);
    printf("\n");
    va_end(list);
    fflush(stdout);
    _exit(1);
}

#define EXPECT(condition) \
    ((condition) ? (void)0 : fail("%s:%d: %s", __FILE__, __LINE__, #condition))

/* ---- Requests ---- */

void request_start(struct request *request, const char *command) {
    request->bytes.size = request->count = 0;
    request_add(request, command, strlen(command));
}

void request_add(struct request *request, const void *bytes, size_t size) {
    EXPECT(request->count < WORDS_MOST);
    text_add(&request->bytes, bytes, size);
    request->ends[request->count++] = request->bytes.size;
}

void request_format(struct request *request, const char *format, ...) {
    char *text;
    va_list list;
    va_start(list, format);
    int size = vasprintf(&text, format, list);
    va_end(list);
    EXPECT(size >= 0);
    request_add(request, text, (size_t)size);
    free(text);
}

static struct slice request_word(const struct request *request, size_t place) {
    size_t start = place ? request->ends[place - 1] : 0;
    return (struct slice){request->bytes.bytes + start, request->ends[place] - start};
}

static struct text request_encode(const struct request *request) {
    struct text text = {NULL, 0, 0};
    answer_array(&text, request->count);
    for (size_t i = 0; i < request->count; i++)
        answer_bulk(&text, request_word(request, i));
    return text;
}

static void request_split(struct request *request, const char *words) {
    request->bytes.size = request->count = 0;
    while (*words) {
        size_t size = strcspn(words, " ");
        request_add(request, words, size);
        words += size + (words[size] == ' ');
    }
}

/* ---- The real server ---- */

static struct real_connection real_connect(const char *url) {
    unsigned port;
    EXPECT(sscanf(url, "redis://127.0.0.1:%u/0", &port) == 1);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct real_connection connection = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    EXPECT(connect(connection.fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    int one = 1;
    setsockopt(connection.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return connection;
}

static void real_send(const struct real_connection *connection, const struct request *request) {
    struct text bytes = request_encode(request);
    for (size_t sent = 0; sent < bytes.size;) {
        ssize_t size = write(connection->fd, bytes.bytes + sent, bytes.size - sent);
        EXPECT(size > 0);
        sent += (size_t)size;
    }
    text_free(&bytes);
}

/* The size of the reply at the start; 0: it is not complete. */
static size_t reply_size(const char *bytes, size_t size) {
    const char *end = size ? memchr(bytes, '\n', size) : NULL;
    if (!end)
        return 0;
    size_t used = (size_t)(end - bytes) + 1;
    long long number = strtoll(bytes + 1, NULL, 10);
    if (bytes[0] == '$' && number >= 0)
        used += (size_t)number + 2;
    for (long long i = 0; bytes[0] == '*' && i < number; i++) {
        size_t item = used < size ? reply_size(bytes + used, size - used) : 0;
        if (!item)
            return 0;
        used += item;
    }
    return used <= size ? used : 0;
}

/* Adds the next reply to the text. */
static void real_read(struct real_connection *connection, struct text *ret_reply) {
    struct text *input = &connection->input;
    size_t size;
    while (
        !(size = reply_size(input->bytes + connection->taken, input->size - connection->taken))) {
        char bytes[16384];
        if (connection->taken) {
            input->size -= connection->taken;
            memmove(input->bytes, input->bytes + connection->taken, input->size);
            connection->taken = 0;
        }
        ssize_t got = read(connection->fd, bytes, sizeof(bytes));
        if (got <= 0)
            fail("the real server hung up");
        text_add(input, bytes, (size_t)got);
    }
    text_add(ret_reply, input->bytes + connection->taken, size);
    connection->taken += size;
}

static void real_close(struct real_connection *connection) {
    close(connection->fd);
    text_free(&connection->input);
}

/* Sends pair->request only to the real server, over a separate connection. */
static struct slice ask_aside(struct pair *pair) {
    real_send(&pair->aside, &pair->request);
    pair->reply.size = 0;
    real_read(&pair->aside, &pair->reply);
    return (struct slice){pair->reply.bytes, pair->reply.size};
}

static struct slice ask_real(struct pair *pair, const char *words) {
    request_split(&pair->request, words);
    return ask_aside(pair);
}

static void set_real(struct pair *pair, const char *words) {
    struct slice reply = ask_real(pair, words);
    if (strcmp(reply.bytes, "+OK\r\n") != 0)
        fail("%s: %s", words, reply.bytes);
}

/* ---- Comparing ---- */

static void add_escaped(struct text *text, const char *bytes, size_t size) {
    for (size_t i = 0; i < size && text->size < SEEN_MOST; i++) {
        if (bytes[i] == '\n')
            text_format(text, "\\n");
        else if (bytes[i] == '\r')
            text_format(text, "\\r");
        else
            text_format(text, isprint((unsigned char)bytes[i]) ? "%c" : "\\x%02x",
                        (unsigned char)bytes[i]);
    }
}

static void differ(const struct pair *pair, const char *what, const struct request *request,
                   struct text real, struct text model) {
    struct text seen = {NULL, 0, 0};
    for (size_t i = 0; i < request->count; i++) {
        struct slice word = request_word(request, i);
        text_format(&seen, "%s\"", i ? " " : "");
        add_escaped(&seen, word.bytes, word.size < 300 ? word.size : 300);
        text_format(&seen, "\"");
    }
    printf("# seed %" PRIu64 ", step %" PRIu64 ", at %" PRId64 " us, mode %d: %s differ\n# %.*s\n",
           pair->seed, pair->steps, pair_now_us(pair), pair->mode, what, (int)seen.size,
           seen.bytes);
    seen.size = 0;
    text_format(&seen, "real:  ");
    add_escaped(&seen, real.bytes, real.size);
    printf("# %.*s\n", (int)seen.size, seen.bytes);
    seen.size = 0;
    text_format(&seen, "model: ");
    add_escaped(&seen, model.bytes, model.size);
    printf("# %.*s\n", (int)seen.size, seen.bytes);
    fail("the model is no Redis");
}

static void compare(const struct pair *pair, const char *what, const struct request *request,
                    struct text real, struct text model) {
    bool same =
        real.size == model.size && (!real.size || memcmp(real.bytes, model.bytes, real.size) == 0);
    if (!same)
        differ(pair, what, request, real, model);
}

static int order_words(const void *a, const void *b) {
    return slice_compare(*(const struct slice *)a, *(const struct slice *)b);
}

/* "*2 $1 0 *n ...", with the n items sorted. */
static void sort_scanned(struct text *reply) {
    static const char start[] = "*2\r\n$1\r\n0\r\n*";
    enum { KEYS_MOST = 256 };
    struct slice keys[KEYS_MOST];
    size_t count = 0;
    if (reply->size < sizeof(start) || memcmp(reply->bytes, start, sizeof(start) - 1) != 0)
        return;
    const char *end = reply->bytes + reply->size;
    const char *at = (const char *)memchr(reply->bytes + sizeof(start), '\n', reply->size) + 1;
    struct text sorted = {NULL, 0, 0};
    text_add(&sorted, reply->bytes, (size_t)(at - reply->bytes));
    for (; at < end; at += keys[count++].size) {
        EXPECT(count < KEYS_MOST);
        keys[count] = (struct slice){at, reply_size(at, (size_t)(end - at))};
    }
    qsort(keys, count, sizeof(keys[0]), order_words);
    for (size_t i = 0; i < count; i++)
        text_add(&sorted, keys[i].bytes, keys[i].size);
    text_free(reply);
    *reply = sorted;
}

/* The reply to a PING follows all messages that were published before it. */
static void compare_heard(struct pair *pair, const struct request *request) {
    static const char pong[] = "*2\r\n$4\r\npong\r\n$0\r\n\r\n", ping[] = "*1\r\n$4\r\nPING\r\n";
    struct text real = {NULL, 0, 0};
    size_t start;
    EXPECT(write(pair->real_listener.fd, ping, sizeof(ping) - 1) == sizeof(ping) - 1);
    do {
        start = real.size;
        real_read(&pair->real_listener, &real);
        if (real.bytes[start] == '-')
            break; /* PING is not allowed now, but its error also follows the messages */
    } while (real.size - start != sizeof(pong) - 1 ||
             memcmp(real.bytes + start, pong, sizeof(pong) - 1) != 0);
    EXPECT(model_feed(pair->listener, ping, sizeof(ping) - 1));
    compare(pair, "published messages", request, real, pair->listener_heard);
    pair->listener_heard.size = 0;
    text_free(&real);
}

struct slice pair_ask(struct pair *pair, const struct request *request) {
    pair->steps++;
    pair->reply.size = pair->heard.size = 0;
    real_send(&pair->real, request);
    struct text bytes = request_encode(request);
    EXPECT(model_feed(pair->connection, bytes.bytes, bytes.size));
    text_free(&bytes);
    for (size_t at = 0; at < pair->heard.size;) { /* UNSUBSCRIBE has several replies */
        real_read(&pair->real, &pair->reply);
        at += reply_size(pair->heard.bytes + at, pair->heard.size - at);
    }
    if (slice_is(request_word(request, 0), "scan")) {
        sort_scanned(&pair->reply);
        sort_scanned(&pair->heard);
    }
    compare(pair, "replies", request, pair->reply, pair->heard);
    compare_heard(pair, request);
    return (struct slice){pair->reply.bytes, pair->reply.size};
}

struct slice pair_ask_words(struct pair *pair, const char *words) {
    request_split(&pair->request, words);
    return pair_ask(pair, &pair->request);
}

void pair_subscribe(struct pair *pair, const char *channel) {
    request_start(&pair->request, "SUBSCRIBE");
    request_format(&pair->request, "%s", channel);
    struct text bytes = request_encode(&pair->request);
    real_send(&pair->real_listener, &pair->request);
    EXPECT(model_feed(pair->listener, bytes.bytes, bytes.size));
    text_free(&bytes);
    compare_heard(pair, &pair->request);
}

/* ---- Modes ---- */

/* Puts a folder where the real server wants to save, and makes it try. */
static void make_saving_fail(struct pair *pair) {
    char folder[512];
    struct slice reply = ask_real(pair, "CONFIG GET dir");
    EXPECT(sscanf(reply.bytes, "*2\r\n$3\r\ndir\r\n$%*d\r\n%500s", folder) == 1);
    snprintf(pair->unsaved, sizeof(pair->unsaved), "%s/dump.rdb", folder);
    unlink(pair->unsaved);
    EXPECT(mkdir(pair->unsaved, 0700) == 0 || errno == EEXIST);
    EXPECT(ask_real(pair, "BGSAVE").bytes[0] == '+');
    while (!strstr(ask_real(pair, "INFO persistence").bytes, "rdb_bgsave_in_progress:0"))
        usleep(1000);
    EXPECT(strstr(ask_real(pair, "INFO persistence").bytes, "rdb_last_bgsave_status:err"));
    request_start(&pair->request, "CONFIG");
    request_format(&pair->request, "SET");
    request_format(&pair->request, "save");
    request_format(&pair->request, "86400000 1"); /* it matters only if the server is to save */
    ask_aside(pair);
    EXPECT(pair->reply.bytes[0] == '+');
}

/* Asks for something slow, and waits until the server answers all others with this error. */
static void keep_busy(struct pair *pair, const struct request *request, const char *word) {
    pair->busy = real_connect(pair->url);
    real_send(&pair->busy, request);
    while (strncmp(ask_real(pair, "GET x").bytes + 1, word, strlen(word)) != 0)
        usleep(100);
}

static void run_slow_script(struct pair *pair) {
    set_real(pair, "CONFIG SET busy-reply-threshold 1");
    request_start(&pair->request, "EVAL");
    request_format(&pair->request, "while true do end");
    request_format(&pair->request, "0");
    keep_busy(pair, &pair->request, "BUSY");
}

/* Makes the real server save and load its keys, some milliseconds for each. The values must be
 * larger than what it loads before it looks at its clients. */
static void load_slowly(struct pair *pair) {
    set_real(pair, "CONFIG SET loading-process-events-interval-bytes 1024");
    set_real(pair, "CONFIG SET key-load-delay 2000");
    request_start(&pair->request, "DEBUG");
    request_format(&pair->request, "RELOAD");
    keep_busy(pair, &pair->request, "LOADING");
}

static void stop_being_busy(struct pair *pair) {
    pair->reply.size = 0;
    real_read(&pair->busy, &pair->reply);
    real_close(&pair->busy);
    pair->busy = (struct real_connection){.fd = -1};
}

static void leave_mode(struct pair *pair) {
    if (pair->mode == MODEL_OOM) {
        set_real(pair, "CONFIG SET maxmemory 0");
    } else if (pair->mode == MODEL_READONLY) {
        set_real(pair, "REPLICAOF NO ONE");
    } else if (pair->mode == MODEL_MISCONF) {
        set_real(pair, "CONFIG SET stop-writes-on-bgsave-error no");
    } else if (pair->mode == MODEL_BUSY) {
        set_real(pair, "SCRIPT KILL");
        stop_being_busy(pair);
    } else if (pair->mode == MODEL_LOADING) {
        set_real(pair, "CONFIG SET key-load-delay 0");
        stop_being_busy(pair);
    }
}

void pair_set_mode(struct pair *pair, enum model_mode mode) {
    if (mode == pair->mode)
        return;
    leave_mode(pair);
    if (mode == MODEL_OOM) {
        set_real(pair, "CONFIG SET maxmemory 1");
    } else if (mode == MODEL_READONLY) {
        set_real(pair, "REPLICAOF 127.0.0.1 1"); /* a port where nobody listens */
    } else if (mode == MODEL_MISCONF) {
        if (!pair->unsaved[0])
            make_saving_fail(pair);
        set_real(pair, "CONFIG SET stop-writes-on-bgsave-error yes");
    } else if (mode == MODEL_BUSY) {
        run_slow_script(pair);
    } else if (mode == MODEL_LOADING) {
        load_slowly(pair);
    }
    pair->mode = mode;
    model_set_mode(pair->model, mode);
}

/* ---- Both ---- */

static void model_said(void *context, const char *bytes, size_t size) {
    text_add(context, bytes, size);
}

int64_t pair_now_us(const struct pair *pair) {
    return atomic_load(pair->clock_us);
}

void pair_set_time(struct pair *pair, int64_t wall_us) {
    atomic_store(pair->clock_us, wall_us);
    model_set_time(pair->model, wall_us);
}

static void make_real_definite(struct pair *pair) {
    set_real(pair, "CONFIG SET hash-max-listpack-value 1000000");
    set_real(pair, "CONFIG SET hash-max-listpack-entries 1000000");
    set_real(pair, "CONFIG SET stop-writes-on-bgsave-error no");
    set_real(pair, "CONFIG SET maxmemory 0");
    set_real(pair, "REPLICAOF NO ONE");
    set_real(pair, "DEBUG SET-ACTIVE-EXPIRE 0");
    set_real(pair, "FLUSHALL");
    set_real(pair, "SCRIPT FLUSH");
}

struct pair *pair_open(const char *url, const char *clock, uint64_t seed) {
    struct pair *pair = calloc(1, sizeof(*pair));
    struct model_config config = {.output = model_said};
    EXPECT(pair);
    pair->url = url;
    pair->seed = pair->random = seed;
    pair->real = real_connect(url);
    pair->real_listener = real_connect(url);
    pair->aside = real_connect(url);
    int fd = open(clock, O_RDWR | O_CLOEXEC);
    EXPECT(fd >= 0);
    pair->clock_us = mmap(NULL, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT(pair->clock_us != MAP_FAILED);
    close(fd);
    pair->model = model_new(&config);
    pair->connection = model_connect(pair->model, &pair->heard);
    pair->listener = model_connect(pair->model, &pair->listener_heard);
    make_real_definite(pair);
    pair_subscribe(pair, "everybody");
    pair_set_time(pair, INT64_C(1700000000000000) + (int64_t)pair_below(pair, 1000000));
    return pair;
}

void pair_close(struct pair *pair) {
    pair_set_mode(pair, MODEL_OK);
    if (pair->unsaved[0])
        rmdir(pair->unsaved);
    munmap((void *)pair->clock_us, sizeof(int64_t));
    real_close(&pair->real);
    real_close(&pair->real_listener);
    real_close(&pair->aside);
    model_free(pair->model);
    text_free(&pair->heard);
    text_free(&pair->listener_heard);
    text_free(&pair->reply);
    text_free(&pair->request.bytes);
    free(pair);
}

/* ---- Chance ---- */

/* SplitMix64. */
uint64_t pair_random(struct pair *pair) {
    uint64_t z = pair->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t pair_below(struct pair *pair, uint64_t limit) {
    return pair_random(pair) % limit;
}

bool pair_chance(struct pair *pair, unsigned per_cent) {
    return pair_below(pair, 100) < per_cent;
}
