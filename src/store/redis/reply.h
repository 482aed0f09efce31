/* Replies of the server: RESP, which hiredis' reader parses into our objects, with limits that no
 * honest server reaches. A malicious server can cost a connection, but not the process. */
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
    struct reply **items; /* ARRAY: none of them is NULL; they follow this struct */
    size_t size;
    char text[]; /* of a STRING (also a status) or ERROR, with a NUL after it; else empty */
};

void reply_free(struct reply *reply);

/* An item of an array; a nil if there is none, or if it is not an array. Never NULL. */
const struct reply *reply_at(const struct reply *reply, size_t index);

/* A number, from an integer or from text; `otherwise` if there is none. */
int64_t reply_number(const struct reply *reply, int64_t otherwise);

/* Whether it is a string with this text; whether it is an error that begins with this text. */
bool reply_is(const struct reply *reply, const char *text);
bool reply_is_error(const struct reply *reply, const char *code);

struct reply_reader {
    struct redisReader *reader; /* NULL: none yet */
    size_t elements, bytes;     /* of the reply that is being read */
};

/* Drops a reply that was read in part. False: no memory. */
bool reply_reader_start(struct reply_reader *reader);
void reply_reader_end(struct reply_reader *reader);

/* False: the reply is too large, or no memory. Then, and after reply_reader_next has failed, the
 * reader must be started again. */
bool reply_reader_feed(struct reply_reader *reader, const char *bytes, size_t size);

/* The next reply, to be freed; NULL if there is none yet. False: this is not RESP, or too large. */
bool reply_reader_next(struct reply_reader *reader, struct reply **ret_reply);

#endif
