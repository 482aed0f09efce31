/* Replies of the server: RESP, taken apart by hiredis' reader into objects of ours, with limits that no
 * honest server reaches. A server that is not what it seems costs a connection, not the process. */
#ifndef REDIS_REPLY_H
#define REDIS_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    REPLY_ELEMENTS_MAX = 1 << 20, /* in one reply, however nested */
    REPLY_BYTES_MAX = 64 << 20,   /* of one reply, its strings together */
};

enum reply_type { REPLY_NIL, REPLY_INTEGER, REPLY_STRING, REPLY_ERROR, REPLY_ARRAY };

struct reply {
    enum reply_type type;
    int64_t integer;
    size_t count;         /* of items */
    struct reply **items; /* ARRAY: none of them is NULL */
    size_t size;
    char text[]; /* STRING (a status, too) and ERROR; with a NUL behind it */
};

void reply_free(struct reply *reply);

/* The item of an array, or a nil if there is none or it is no array. Never NULL. */
const struct reply *reply_at(const struct reply *reply, size_t index);

/* A number, from an integer or from text; `otherwise` where there is none. */
int64_t reply_number(const struct reply *reply, int64_t otherwise);

/* Whether it is a string, or an error, that is (begins with) this. */
bool reply_is(const struct reply *reply, const char *text);
bool reply_is_error(const struct reply *reply, const char *code);

struct reply_reader {
    struct redisReader *reader; /* NULL: none yet */
    size_t elements, bytes;     /* of the reply that is being read */
};

/* Forgets what was read halfway; false when there is no memory. */
bool reply_reader_start(struct reply_reader *reader);
void reply_reader_end(struct reply_reader *reader);

/* False: more than any reply may have, or no memory. Then, as after a failing next, the reader is of no
 * use until it is started again. */
bool reply_reader_feed(struct reply_reader *reader, const char *bytes, size_t size);

/* The next reply, to be freed; NULL in it when there is none yet. False: this is no RESP, or too much. */
bool reply_reader_next(struct reply_reader *reader, struct reply **ret_reply);

#endif
