/* The Lua scripts that the server runs (scripts/, where each says what it does), made into
 * constants by tools/embed. */
#ifndef REDIS_SCRIPTS_H
#define REDIS_SCRIPTS_H

#include <stddef.h>

/* In the order of meson.build. */
enum redis_script_id {
    REDIS_ACQUIRE,
    REDIS_RELEASE,
    REDIS_RENEW,
    REDIS_RENEW_SHARE,
    REDIS_BREAK,
    REDIS_LOOK,
    REDIS_RELEASE_ONE_KEY,
    REDIS_VOTE,
    REDIS_BOOT,
    REDIS_COUNT,
    REDIS_SCRIPTS,
};

struct redis_script {
    const char *name;
    const char *text;
    size_t size;
    const char *sha1; /* by which EVALSHA calls it */
};

extern const struct redis_script redis_scripts[REDIS_SCRIPTS];

#endif
