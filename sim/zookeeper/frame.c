#include "sim/zookeeper/frame.h"

#include <stdlib.h>
#include <string.h>

void frame_raw(struct frame *frame, const void *bytes, size_t size) {
    if (frame->size + size > frame->room) {
        frame->room = 2 * (frame->size + size);
        frame->bytes = tree_allocate(frame->bytes, frame->room);
    }
    if (size)
        memcpy(frame->bytes + frame->size, bytes, size);
    frame->size += size;
}

static void encode(unsigned char *bytes, uint64_t value, size_t size) {
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(value >> (8 * (size - 1 - i)));
}

void frame_begin(struct frame *frame) {
    frame->size = 0;
    frame_int(frame, 0);
}

void frame_end(struct frame *frame) {
    encode((unsigned char *)frame->bytes, frame->size - 4, 4);
}

void frame_free(struct frame *frame) {
    free(frame->bytes);
    *frame = (struct frame){0};
}

void frame_bool(struct frame *frame, bool value) {
    unsigned char byte = value;
    frame_raw(frame, &byte, 1);
}

void frame_int(struct frame *frame, int32_t value) {
    unsigned char bytes[4];
    encode(bytes, (uint32_t)value, sizeof(bytes));
    frame_raw(frame, bytes, sizeof(bytes));
}

void frame_long(struct frame *frame, int64_t value) {
    unsigned char bytes[8];
    encode(bytes, (uint64_t)value, sizeof(bytes));
    frame_raw(frame, bytes, sizeof(bytes));
}

void frame_bytes(struct frame *frame, const char *bytes, size_t size) {
    frame_int(frame, (int32_t)size);
    frame_raw(frame, bytes, size);
}

void frame_text(struct frame *frame, const char *text) {
    frame_bytes(frame, text, strlen(text));
}

void frame_header(struct frame *frame, int32_t xid, int64_t zxid, int32_t error) {
    frame_int(frame, xid);
    frame_long(frame, zxid);
    frame_int(frame, error);
}

/* The field that servers call the version of the children counts creations and deletions. */
void frame_stat(struct frame *frame, const struct tree_node *node) {
    const struct tree_stat *stat = &node->stat;
    frame_long(frame, stat->czxid);
    frame_long(frame, stat->mzxid);
    frame_long(frame, stat->ctime_ms);
    frame_long(frame, stat->mtime_ms);
    frame_int(frame, stat->version);
    frame_int(frame, 2 * stat->created - node->child_count);
    frame_int(frame, 0);
    frame_long(frame, stat->owner == TREE_CONTAINER ? 0 : stat->owner);
    frame_int(frame, (int32_t)strlen(node->data));
    frame_int(frame, node->child_count);
    frame_long(frame, stat->pzxid);
}
