/* How a connection to a Redis server starts: AUTH, SELECT, whether the server is the master (ROLE),
 * and boot.lua if it votes in a set. If none of these is needed, nothing is sent, or a PING if it
 * is not known yet whether the server talks to us: over TLS, and after a connection over which
 * nothing came.
 *
 * Nothing else is sent before the answers. A command would run as another user, or in another
 * database. And a server that just hangs up, because it expects TLS or refuses our certificate,
 * does so before anything was sent whose outcome would be unknown. */
#ifndef REDIS_GREETING_H
#define REDIS_GREETING_H

#include "store/redis/link.h"

/* For link_setup. */
bool redis_greet(struct redis_link *link);
int redis_greeted(struct redis_link *link, const struct reply *reply, char **ret_text);

/* From now on, the connections of the link for commands, including the current one, start with
 * boot.lua. Until then, a client that only looks needs no permission for it, and changes
 * nothing. */
void redis_begin_to_vote(struct redis *redis);

#endif
