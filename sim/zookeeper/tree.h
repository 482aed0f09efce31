/* A tree of nodes, as one member of an ensemble has it. Every member applies the same changes in
 * the same order, so the tree needs no sessions, no permissions and no reasons to refuse. */
#ifndef SIM_ZOOKEEPER_TREE_H
#define SIM_ZOOKEEPER_TREE_H

#include <stddef.h>
#include <stdint.h>

/* The owner of a container node. */
#define TREE_CONTAINER INT64_MIN

struct tree_stat {
    int64_t czxid, mzxid, pzxid;
    int64_t ctime_ms, mtime_ms;
    int32_t version;
    int32_t created; /* how many children it ever had */
    int64_t owner;   /* the session of an ephemeral node, TREE_CONTAINER, or 0 */
};

struct tree_node {
    char *path;
    uint64_t hash; /* of the path */
    char *data;
    char *user; /* the only one who may use it; NULL: everybody may */
    struct tree_stat stat;
    int32_t child_count;
};

struct tree {
    struct tree_node **nodes; /* in the order in which they were created */
    size_t count, room;
    int64_t last_zxid;
};

/* Like realloc; ends the program if that fails. */
void *tree_allocate(void *memory, size_t size);
char *tree_text(const char *bytes, size_t size);

/* Makes the tree of a new server. */
void tree_init(struct tree *tree);
void tree_free(struct tree *tree);
void tree_copy(struct tree *to, const struct tree *from);

struct tree_node *tree_find(const struct tree *tree, const char *path);
/* NULL: it does not exist. */
struct tree_node *tree_parent(const struct tree *tree, const char *path);
/* The name of a child of this node; NULL: it is not one. */
const char *tree_child_name(const struct tree_node *parent, const struct tree_node *node);

struct tree_change {
    int64_t zxid, time_ms;
    const char *path, *data, *user;
    int64_t owner;
};

/* The parent must exist, and the node must not. */
struct tree_node *tree_create(struct tree *tree, const struct tree_change *change);
void tree_set(struct tree_node *node, const struct tree_change *change);
void tree_delete(struct tree *tree, struct tree_node *node, int64_t zxid);

#endif
