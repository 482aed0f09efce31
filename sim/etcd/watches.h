/* The watchers of a cluster. Each is sent what its member has applied, in order and once. A watcher
 * that asks for the past is behind at first: it catches up a moment later, or is cancelled if the
 * past has been compacted. */
#ifndef SIM_ETCD_WATCHES_H
#define SIM_ETCD_WATCHES_H

#include "sim/etcd/model.h"

/* A client's message on a stream of watches: to create one, or to cancel one. */
void watches_asked(struct cluster_connection *connection, struct front_stream *stream,
                   const uint8_t *bytes, size_t size);
/* The member has applied more. */
void watches_tell(struct cluster *cluster, int member);
/* A member that has had no leader for a while ends the streams that want one. */
void watches_end_streams(struct cluster *cluster, int member);
/* When the next one that is behind catches up; NEVER: none is. */
int64_t watches_next_us(const struct cluster *cluster);
/* Watchers whose time has come catch up. */
void watches_act(struct cluster *cluster);

/* The watchers of a stream, or of a connection, are gone. */
void watches_drop(struct cluster *cluster, const struct front_stream *stream);
void watches_disconnect(const struct cluster_connection *connection);

#endif
