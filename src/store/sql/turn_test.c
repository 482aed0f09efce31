/* Which requests go together. */
#include "check.h"
#include "store/sql/turn.h"

#include <stdio.h>

struct request {
    struct list link;
    struct store_op op;
    bool shares;
    char name[16];
};

static struct list waiting;
static struct sql_turn turn;

static const struct store_op *op_of(const struct list *node) {
    const struct request *request = container_of(node, struct request, link);
    return request->shares ? &request->op : NULL;
}

static void wait_for(struct request *request, uint8_t type, const char *name, bool shares) {
    snprintf(request->name, sizeof(request->name), "%s", name);
    request->op = (struct store_op){.type = type, .name = request->name};
    request->shares = shares;
    list_append(&waiting, &request->link);
}

/* Their names, with a space before each. */
static const char *names_of(const struct list *list) {
    static char text[4096];
    size_t at = 0;
    text[0] = 0;
    list_each(node, list) {
        const struct request *request = container_of(node, struct request, link);
        at += (size_t)snprintf(text + at, sizeof(text) - at, " %s", request->name);
    }
    return text;
}

static size_t count_of(const struct list *list) {
    size_t count = 0;
    list_each(node, list)
        count++;
    return count;
}

TEST(requests_for_different_names_are_sorted_by_what_they_want) {
    struct request requests[4];
    list_init(&waiting);
    wait_for(&requests[0], STORE_ACQUIRE, "a", true);
    wait_for(&requests[1], STORE_RELEASE, "b", true);
    wait_for(&requests[2], STORE_ACQUIRE, "c", true);
    wait_for(&requests[3], STORE_RELEASE, "d", true);
    sql_turn_take(&turn, &waiting, op_of);
    CHECK_EQ_STR(names_of(&turn.acquires), " a c");
    CHECK_EQ_STR(names_of(&turn.releases), " b d");
    CHECK(list_empty(&turn.alone) && list_empty(&waiting));
}

TEST(requests_for_one_name_go_alone_in_their_order) {
    struct request requests[4];
    list_init(&waiting);
    wait_for(&requests[0], STORE_ACQUIRE, "x", true);
    wait_for(&requests[1], STORE_ACQUIRE, "a", true);
    wait_for(&requests[2], STORE_RELEASE, "x", true);
    wait_for(&requests[3], STORE_ACQUIRE, "x", true);
    sql_turn_take(&turn, &waiting, op_of);
    CHECK_EQ_STR(names_of(&turn.acquires), " a");
    CHECK_EQ_STR(names_of(&turn.alone), " x x x");
    CHECK(turn.alone.next == &requests[0].link && turn.alone.prev == &requests[3].link);
    CHECK(list_empty(&turn.releases) && list_empty(&waiting));
}

TEST(requests_that_take_no_part_stay) {
    struct request requests[3];
    list_init(&waiting);
    wait_for(&requests[0], STORE_ACQUIRE, "a", false);
    wait_for(&requests[1], STORE_ACQUIRE, "a", true);
    wait_for(&requests[2], STORE_ACQUIRE, "b", false);
    sql_turn_take(&turn, &waiting, op_of);
    CHECK_EQ_STR(names_of(&turn.acquires), " a");
    CHECK_EQ_STR(names_of(&waiting), " a b");
}

TEST(a_turn_has_an_end) {
    enum { MORE = 10 };
    static struct request requests[SQL_TURN_MAX + MORE];
    list_init(&waiting);
    for (int i = 0; i < SQL_TURN_MAX + MORE; i++) {
        char name[16];
        snprintf(name, sizeof(name), "name-%d", i);
        wait_for(&requests[i], STORE_ACQUIRE, name, true);
    }
    sql_turn_take(&turn, &waiting, op_of);
    CHECK_EQ_INT(count_of(&waiting), MORE);
    CHECK(waiting.next == &requests[SQL_TURN_MAX].link);
    CHECK(count_of(&turn.alone) <= 2); /* a name may be mistaken for another */
    CHECK_EQ_INT(count_of(&turn.acquires) + count_of(&turn.alone), SQL_TURN_MAX);
}
