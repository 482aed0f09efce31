/* A doubly linked list whose nodes live inside the objects they link. A list is its head, a node
 * that points to itself when empty. A node that is in no list is also initialised, so removing it
 * again does nothing: you can dispose of an object without knowing which list it is in. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *prev, *next;
};

/* The object whose field `member` is `node`. */
#define container_of(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

static inline void list_init(struct list *node) {
    node->prev = node->next = node;
}

static inline bool list_empty(const struct list *head) {
    return head->next == head;
}

static inline void list_insert_before(struct list *position, struct list *node) {
    node->prev = position->prev;
    node->next = position;
    position->prev->next = node;
    position->prev = node;
}

static inline void list_append(struct list *head, struct list *node) {
    list_insert_before(head, node);
}

static inline void list_remove(struct list *node) {
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* Takes the first node out; NULL when the list is empty. */
static inline struct list *list_pop(struct list *head) {
    if (list_empty(head))
        return NULL;
    struct list *node = head->next;
    list_remove(node);
    return node;
}

/* Moves all of `from` to the empty list `to`. */
static inline void list_move(struct list *from, struct list *to) {
    list_init(to);
    if (list_empty(from))
        return;
    *to = *from;
    to->next->prev = to->prev->next = to;
    list_init(from);
}

#define list_each(node, head) \
    for (struct list *node = (head)->next; node != (head); node = node->next)

/* As list_each; the body may remove `node`. */
#define list_each_safe(node, head)                                                    \
    for (struct list *node = (head)->next, *node##_next = node->next; node != (head); \
         node = node##_next, node##_next = node->next)

#endif
