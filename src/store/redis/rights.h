/* The permissions that the store needs on a server. They are found out by trying: each command is
 * sent in a form that does nothing, and the server's refusals are noted. So doctor needs no
 * permission to list permissions. examine.c does the sending. */
#ifndef REDIS_RIGHTS_H
#define REDIS_RIGHTS_H

#include "store/findings.h"
#include "store/redis/redis.h"

enum {
    RIGHTS = 31,
    RIGHTS_TO_SUBSCRIBE = RIGHTS - 2, /* these leave a connection usable for nothing else */
};

struct rights {
    bool denied[RIGHTS], denied_key[3], denied_channel, denied_key_channel;
    bool denied_set; /* the key that says in which set the server votes */
};

/* The words of a command, with spaces or | between them. K, S and B stand for keys that do not
 * exist: of a lock, of its companion, and of a companion of a name with braces. @ is this client's
 * channel, # the one of a key, and '' an empty argument. */
const char *rights_words(size_t which);

/* Whether this store needs it. */
bool rights_needs(const struct redis *redis, size_t which);

/* Whether a reply says that a command is not permitted. */
bool rights_is_denial(const struct reply *reply);

/* Notes the reply to a command. */
void rights_note(struct rights *rights, size_t which, const struct reply *reply);

/* `lacks_info`: INFO is not permitted either. False: no memory. */
bool rights_report(const struct rights *rights, const struct redis *redis, bool lacks_info,
                   hf_examination *to);

#endif
