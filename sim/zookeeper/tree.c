#include "sim/zookeeper/tree.h"

#include "base/map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *tree_allocate(void *memory, size_t size) {
    memory = realloc(memory, size);
    if (!memory) {
        fprintf(stderr, "sim: out of memory\n");
        exit(70);
    }
    return memory;
}

char *tree_text(const char *bytes, size_t size) {
    char *text = tree_allocate(NULL, size + 1);
    if (size)
        memcpy(text, bytes, size);
    text[size] = 0;
    return text;
}

static char *copy_text(const char *text) {
    return text ? tree_text(text, strlen(text)) : NULL;
}

static struct tree_node *add(struct tree *tree, const char *path) {
    struct tree_node *node = tree_allocate(NULL, sizeof(*node));
    *node = (struct tree_node){.path = copy_text(path), .hash = map_hash(path, strlen(path), 0)};
    if (tree->count == tree->room) {
        tree->room = tree->room ? 2 * tree->room : 32;
        tree->nodes = tree_allocate(tree->nodes, tree->room * sizeof(struct tree_node *));
    }
    tree->nodes[tree->count++] = node;
    return node;
}

static void free_node(struct tree_node *node) {
    free(node->path);
    free(node->data);
    free(node->user);
    free(node);
}

void tree_init(struct tree *tree) {
    *tree = (struct tree){0};
    add(tree, "/")->child_count = 1;
    add(tree, "/zookeeper")->child_count = 2;
    add(tree, "/zookeeper/config");
    add(tree, "/zookeeper/quota");
    for (size_t i = 0; i < tree->count; i++)
        tree->nodes[i]->data = copy_text("");
    tree->nodes[0]->stat.created = tree->nodes[1]->stat.created = -1;
}

void tree_free(struct tree *tree) {
    for (size_t i = 0; i < tree->count; i++)
        free_node(tree->nodes[i]);
    free(tree->nodes);
    *tree = (struct tree){0};
}

void tree_copy(struct tree *to, const struct tree *from) {
    tree_free(to);
    for (size_t i = 0; i < from->count; i++) {
        const struct tree_node *node = from->nodes[i];
        struct tree_node *copy = add(to, node->path);
        copy->data = copy_text(node->data);
        copy->user = copy_text(node->user);
        copy->stat = node->stat;
        copy->child_count = node->child_count;
    }
    to->last_zxid = from->last_zxid;
}

static struct tree_node *find(const struct tree *tree, const char *path, size_t size) {
    uint64_t hash = map_hash(path, size, 0);
    for (size_t i = 0; i < tree->count; i++) {
        struct tree_node *node = tree->nodes[i];
        if (node->hash == hash && strncmp(node->path, path, size) == 0 && !node->path[size])
            return node;
    }
    return NULL;
}

struct tree_node *tree_find(const struct tree *tree, const char *path) {
    return find(tree, path, strlen(path));
}

struct tree_node *tree_parent(const struct tree *tree, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash)
        return NULL;
    return slash == path ? tree->nodes[0] : find(tree, path, (size_t)(slash - path));
}

const char *tree_child_name(const struct tree_node *parent, const struct tree_node *node) {
    size_t size = parent->path[1] ? strlen(parent->path) : 0;
    if (strncmp(parent->path, node->path, size) != 0 || node->path[size] != '/' ||
        !node->path[size + 1] || strchr(node->path + size + 1, '/'))
        return NULL;
    return node->path + size + 1;
}

struct tree_node *tree_create(struct tree *tree, const struct tree_change *change) {
    struct tree_node *parent = tree_parent(tree, change->path);
    struct tree_node *node = add(tree, change->path);
    node->data = copy_text(change->data);
    node->user = copy_text(change->user);
    node->stat = (struct tree_stat){.czxid = change->zxid,
                                    .mzxid = change->zxid,
                                    .pzxid = change->zxid,
                                    .ctime_ms = change->time_ms,
                                    .mtime_ms = change->time_ms,
                                    .owner = change->owner};
    parent->stat.created++;
    parent->stat.pzxid = change->zxid;
    parent->child_count++;
    return node;
}

void tree_set(struct tree_node *node, const struct tree_change *change) {
    free(node->data);
    node->data = copy_text(change->data);
    node->stat.version++;
    node->stat.mzxid = change->zxid;
    node->stat.mtime_ms = change->time_ms;
}

void tree_delete(struct tree *tree, struct tree_node *node, int64_t zxid) {
    struct tree_node *parent = tree_parent(tree, node->path);
    size_t place = 0;
    while (tree->nodes[place] != node)
        place++;
    memmove(tree->nodes + place, tree->nodes + place + 1,
            (--tree->count - place) * sizeof(struct tree_node *));
    parent->child_count--;
    parent->stat.pzxid = zxid;
    free_node(node);
}
