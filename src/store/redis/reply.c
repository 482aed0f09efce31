/* Replies, made from RESP: the object functions of hiredis' reader. It limits the depth itself (to 7). */
#include "store/redis/reply.h"

#include <assert.h>
#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

void reply_free(struct reply *reply) {
    if (!reply)
        return;
    for (size_t i = 0; i < reply->count; i++)
        reply_free(reply->items[i]);
    free(reply->items);
    free(reply);
}

/* ---- What the reader calls ---- */

/* Puts a new object into its array. Whole arrays are freed from their root. */
static void *place(const redisReadTask *task, struct reply *reply) {
    if (reply && task->parent) {
        struct reply *parent = task->parent->obj;
        assert(parent->type == REPLY_ARRAY && (size_t)task->idx < parent->count);
        parent->items[task->idx] = reply;
    }
    return reply;
}

static struct reply *make(const redisReadTask *task, enum reply_type type, size_t size) {
    struct reply_reader *reader = task->privdata;
    if (++reader->elements > REPLY_ELEMENTS_MAX)
        return NULL;
    struct reply *reply = calloc(1, sizeof(*reply) + size + 1);
    if (!reply)
        return NULL;
    reply->type = type;
    reply->size = size;
    return reply;
}

static void *make_string(const redisReadTask *task, char *bytes, size_t size) {
    struct reply *reply =
        make(task, task->type == REDIS_REPLY_ERROR ? REPLY_ERROR : REPLY_STRING, size);
    if (reply)
        memcpy(reply->text, bytes, size);
    return place(task, reply);
}

static void *make_array(const redisReadTask *task, int count) {
    struct reply_reader *reader = task->privdata;
    if (count < 0 || (size_t)count > REPLY_ELEMENTS_MAX - reader->elements)
        return NULL;
    struct reply *reply = make(task, REPLY_ARRAY, 0);
    if (!reply)
        return NULL;
    reply->items = calloc((size_t)count + 1, sizeof(struct reply *));
    if (!reply->items) {
        free(reply);
        return NULL;
    }
    reply->count = (size_t)count;
    return place(task, reply);
}

static void *make_integer(const redisReadTask *task, long long value) {
    struct reply *reply = make(task, REPLY_INTEGER, 0);
    if (reply)
        reply->integer = value;
    return place(task, reply);
}

static void *make_nil(const redisReadTask *task) {
    return place(task, make(task, REPLY_NIL, 0));
}

static void free_object(void *object) {
    reply_free(object);
}

static redisReplyObjectFunctions functions = {make_string, make_array, make_integer, make_nil,
                                              free_object};

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
    reader->elements = 0;
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
        reader->elements = 0;
    *ret_reply = reply;
    return true;
}

/* ---- Looking at them ---- */

const struct reply *reply_at(const struct reply *reply, size_t index) {
    static const struct reply nil = {.type = REPLY_NIL};
    return reply->type == REPLY_ARRAY && index < reply->count ? reply->items[index] : &nil;
}

int64_t reply_number(const struct reply *reply, int64_t otherwise) {
    if (reply->type == REPLY_INTEGER)
        return reply->integer;
    if (reply->type != REPLY_STRING || !reply->size)
        return otherwise;
    /* Not strtoll: the server may write the score 1.78e+15 so. */
    char *end;
    double number = strtod(reply->text, &end);
    return *end || !(number > -9.2e18 && number < 9.2e18) ? otherwise : (int64_t)number;
}

bool reply_is(const struct reply *reply, const char *text) {
    return reply->type == REPLY_STRING && strcmp(reply->text, text) == 0;
}

bool reply_is_error(const struct reply *reply, const char *code) {
    return reply->type == REPLY_ERROR && strncmp(reply->text, code, strlen(code)) == 0;
}
