/* Replies, made from RESP: the object functions of hiredis' reader. It limits the depth itself (to
 * 7). */
#include "store/redis/reply.h"

#include <assert.h>
#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

void reply_free(struct reply *reply) {
    if (!reply)
        return;
    for (size_t i = 0; i < reply->count; i++)
        reply_free(reply->items[i]);
    free(reply);
}

/* ---- What the reader calls ---- */

/* Puts a new object into its array. An array is freed from its root. */
static void *place(const redisReadTask *task, struct reply *reply) {
    if (reply && task->parent) {
        struct reply *parent = task->parent->obj;
        assert(parent->type == REPLY_ARRAY && (size_t)task->idx < parent->count);
        parent->items[task->idx] = reply;
    }
    return reply;
}

/* A reply with an empty text, and `room` bytes after the struct for what follows. (calloc would be
 * slow for small objects.) */
static struct reply *make(const redisReadTask *task, enum reply_type type, size_t room) {
    struct reply_reader *reader = task->privdata;
    if (++reader->elements > REPLY_ELEMENTS_MAX || reader->bytes > REPLY_BYTES_MAX)
        return NULL;
    struct reply *reply = malloc(sizeof(*reply) + room);
    if (!reply)
        return NULL;
    *reply = (struct reply){.type = type};
    reply->text[0] = 0;
    return reply;
}

static void *make_string(const redisReadTask *task, char *bytes, size_t size) {
    struct reply_reader *reader = task->privdata;
    reader->bytes += size;
    struct reply *reply =
        make(task, task->type == REDIS_REPLY_ERROR ? REPLY_ERROR : REPLY_STRING, size + 1);
    if (reply) {
        memcpy(reply->text, bytes, size);
        reply->text[size] = 0;
        reply->size = size;
    }
    return place(task, reply);
}

#if HIREDIS_MAJOR >= 1
typedef size_t array_count;
#else
typedef int array_count;
#endif

static void *make_array(const redisReadTask *task, array_count count) {
    struct reply_reader *reader = task->privdata;
    if ((size_t)count > REPLY_ELEMENTS_MAX - reader->elements) /* or it is negative */
        return NULL;
    size_t items_size = ((size_t)count + 1) * sizeof(struct reply *); /* 1 more: the empty text */
    struct reply *reply = make(task, REPLY_ARRAY, items_size);
    if (!reply)
        return NULL;
    struct reply **behind = memset(reply + 1, 0, items_size);
    reply->count = (size_t)count;
    reply->items = behind + 1;
    return place(task, reply);
}

static void *make_integer(const redisReadTask *task, long long value) {
    struct reply *reply = make(task, REPLY_INTEGER, 1);
    if (reply)
        reply->integer = value;
    return place(task, reply);
}

static void *make_nil(const redisReadTask *task) {
    return place(task, make(task, REPLY_NIL, 1));
}

static void free_object(void *object) {
    reply_free(object);
}

#if HIREDIS_MAJOR >= 1
/* Types of RESP3, which nobody asked for. */
static void *refuse_double(const redisReadTask *task, double value, char *bytes, size_t size) {
    (void)task, (void)value, (void)bytes, (void)size;
    return NULL;
}

static void *refuse_bool(const redisReadTask *task, int value) {
    (void)task, (void)value;
    return NULL;
}
#endif

static redisReplyObjectFunctions functions = {
    .createString = make_string,
    .createArray = make_array,
    .createInteger = make_integer,
#if HIREDIS_MAJOR >= 1
    .createDouble = refuse_double,
    .createBool = refuse_bool,
#endif
    .createNil = make_nil,
    .freeObject = free_object,
};

/* ---- The reader ---- */

void reply_reader_end(struct reply_reader *reader) {
    if (reader->reader)
        redisReaderFree(reader->reader);
    reader->reader = NULL;
}

bool reply_reader_start(struct reply_reader *reader) {
    reply_reader_end(reader);
    reader->reader = redisReaderCreateWithFunctions(&functions);
    if (!reader->reader)
        return false;
    reader->reader->privdata = reader;
    reader->elements = reader->bytes = 0;
    return true;
}

bool reply_reader_feed(struct reply_reader *reader, const char *bytes, size_t size) {
    const redisReader *r = reader->reader;
    return r->len - r->pos + size <= REPLY_BYTES_MAX &&
           redisReaderFeed(reader->reader, bytes, size) == REDIS_OK;
}

bool reply_reader_next(struct reply_reader *reader, struct reply **ret_reply) {
    void *reply = NULL;
    if (redisReaderGetReply(reader->reader, &reply) != REDIS_OK)
        return false;
    if (reply)
        reader->elements = reader->bytes = 0;
    *ret_reply = reply;
    return true;
}

/* ---- Looking at them ---- */

const struct reply *reply_at(const struct reply *reply, size_t index) {
    static const union {
        struct reply reply;
        char with_text[sizeof(struct reply) + 1];
    } nil = {.reply = {.type = REPLY_NIL}};
    return reply->type == REPLY_ARRAY && index < reply->count ? reply->items[index] : &nil.reply;
}

/* The server may write a score as 1.78e+15. (strtod would depend on the program's locale.) */
static bool parse_score(const char *text, int64_t *ret) {
    char *end;
    double number = (double)strtoll(text, &end, 10), unit = *text == '-' ? -0.1 : 0.1;
    if (end == text)
        return false;
    if (*end == '.') {
        for (end++; *end >= '0' && *end <= '9'; end++, unit /= 10)
            number += (*end - '0') * unit;
    }
    if (*end == 'e') {
        long power = strtol(end + 1, &end, 10);
        if (power < 0 || power > 18)
            return false;
        while (power-- > 0)
            number *= 10;
    }
    if (*end || !(number > -9.2e18 && number < 9.2e18))
        return false;
    *ret = (int64_t)(number < 0 ? number - 0.5 : number + 0.5);
    return true;
}

int64_t reply_number(const struct reply *reply, int64_t otherwise) {
    if (reply->type == REPLY_INTEGER)
        return reply->integer;
    if (reply->type != REPLY_STRING || strlen(reply->text) != reply->size)
        return otherwise;
    char *end;
    errno = 0;
    int64_t number = strtoll(reply->text, &end, 10);
    if (end == reply->text || errno)
        return otherwise;
    return !*end || parse_score(reply->text, &number) ? number : otherwise;
}

bool reply_is(const struct reply *reply, const char *text) {
    return reply->type == REPLY_STRING && strcmp(reply->text, text) == 0;
}

bool reply_is_error(const struct reply *reply, const char *code) {
    return reply->type == REPLY_ERROR && strncmp(reply->text, code, strlen(code)) == 0;
}
