/* Frames that a server sends (ZooKeeper's Jute encoding). */
#ifndef SIM_ZOOKEEPER_FRAME_H
#define SIM_ZOOKEEPER_FRAME_H

#include "sim/zookeeper/tree.h"

#include <stdbool.h>

struct frame {
    char *bytes;
    size_t size, room;
};

/* Leaves room for the length, which frame_end fills in. */
void frame_begin(struct frame *frame);
void frame_end(struct frame *frame);
void frame_free(struct frame *frame);

void frame_raw(struct frame *frame, const void *bytes, size_t size);
void frame_bool(struct frame *frame, bool value);
void frame_int(struct frame *frame, int32_t value);
void frame_long(struct frame *frame, int64_t value);
void frame_bytes(struct frame *frame, const char *bytes, size_t size);
void frame_text(struct frame *frame, const char *text);
void frame_header(struct frame *frame, int32_t xid, int64_t zxid, int32_t error);
void frame_stat(struct frame *frame, const struct tree_node *node);

#endif
