/* What the members of a fleet do (bench/growth.c): with holdfast, and bare, where they send the
 * Redis store's requests themselves. */
#ifndef BENCH_LOADS_H
#define BENCH_LOADS_H

#include "fleet.h"

enum { LOAD_LEASE_MS = 3000 };

/* ---- Steps ---- */

/* Acquire and release: a random one of the plan's `count` names, or the member's own name. */
void load_pair_of_many_names(struct fleet_member *member);
void load_pair_of_own_name(struct fleet_member *member);
void load_bare_pair(struct fleet_member *member);
/* The same with the name that all share. */
void load_turn(struct fleet_member *member);
void load_bare_turn(struct fleet_member *member);

/* ---- What prepares a member, and what finishes it ---- */

/* Acquires and releases each of the `count` names, so that the store remembers their tokens. */
void load_visit_names(struct fleet_member *member);
/* The same in the Redis database of the plan's URL, by a pipeline. */
void load_visit_redis_names(struct fleet_member *member);
/* Acquires the `count` names for LOAD_LEASE_MS each. */
void load_hold_names(struct fleet_member *member);
void load_release_names(struct fleet_member *member);
/* Connects the member for bare pairs, or for bare turns. */
void load_bare_own_name(struct fleet_member *member);
void load_bare_common_name(struct fleet_member *member);
void load_bare_end(struct fleet_member *member);

#endif
