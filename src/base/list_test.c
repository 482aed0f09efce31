/* The linked list: order, removal from anywhere and twice, moving a whole list. */
#include "check.h"

#include "base/list.h"

struct thing {
    int number;
    struct list link;
};

static struct list head = {&head, &head};
static struct thing things[3] = {{.number = 1}, {.number = 2}, {.number = 3}};

static void fill(void) {
    for (int i = 0; i < 3; i++)
        list_append(&head, &things[i].link);
}

/* Checks the numbers in the list, forward and backward. */
static void check_list(const struct list *list, const char *expected) {
    char forward[16] = "", backward[16] = "";
    size_t count = strlen(expected), i = 0;
    list_each(node, list)
        forward[i++] = (char)('0' + container_of(node, struct thing, link)->number);
    for (struct list *node = list->prev; node != list; node = node->prev)
        backward[--i] = (char)('0' + container_of(node, struct thing, link)->number);
    backward[count] = '\0';
    CHECK_EQ_STR(forward, expected);
    CHECK_EQ_STR(backward, expected);
    CHECK_EQ_INT(list_empty(list), count == 0);
}

TEST(what_is_appended_comes_out_first_in_first_out) {
    fill();
    check_list(&head, "123");
    CHECK(list_pop(&head) == &things[0].link);
    CHECK(list_pop(&head) == &things[1].link);
    CHECK(list_pop(&head) == &things[2].link);
    CHECK(!list_pop(&head));
    check_list(&head, "");
}

TEST(a_node_is_inserted_before_another) {
    list_append(&head, &things[2].link);
    list_insert_before(&things[2].link, &things[0].link);
    list_insert_before(&things[2].link, &things[1].link);
    check_list(&head, "123");
}

TEST(a_node_is_removed_from_wherever_it_is_and_again_without_effect) {
    fill();
    list_remove(&things[1].link);
    check_list(&head, "13");
    list_remove(&things[1].link);
    check_list(&head, "13");
    CHECK(list_empty(&things[1].link));
    list_remove(&things[0].link);
    list_remove(&things[2].link);
    check_list(&head, "");
}

TEST(a_whole_list_moves_at_once) {
    struct list to;
    fill();
    list_move(&head, &to);
    check_list(&head, "");
    check_list(&to, "123");
    struct list nothing;
    list_move(&head, &nothing);
    check_list(&nothing, "");
    list_remove(&things[0].link);
    check_list(&to, "23");
}

TEST(a_walk_may_remove_the_node_that_it_is_at) {
    fill();
    list_each_safe(node, &head) {
        if (container_of(node, struct thing, link)->number != 2)
            list_remove(node);
    }
    check_list(&head, "2");
}
