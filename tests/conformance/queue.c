/* The queue: first in, first out, and what happens to the others when a waiter leaves it. */
#include "suite.h"

static int by_label(const void *a, const void *b) {
    const hf_party *const *one = a, *const *other = b;
    return strcmp((*one)->label, (*other)->label);
}

/* What the store reports about `name`: the labels of its holders, sorted, and of its waiters, in
 * order: "a b | c d". */
static const char *picture(hf_client *client, const char *name) {
    static char text[512];
    hf_locks *locks = NULL;
    CHECK_IS(inspect(client, name, &locks), HF_OK);
    const hf_lock_info *info = hf_locks_at(locks, 0);
    CHECK(info != NULL);
    const hf_party *sorted[16];
    CHECK(info->holder_count <= 16);
    for (size_t i = 0; i < info->holder_count; i++)
        sorted[i] = info->holders[i];
    qsort(sorted, info->holder_count, sizeof *sorted, by_label);
    size_t used = 0;
    for (size_t i = 0; i < info->holder_count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s ", sorted[i]->label);
    used += (size_t)snprintf(text + used, sizeof text - used, "|");
    for (size_t i = 0; i < info->waiter_count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, " %s", info->waiters[i]->label);
    CHECK(used < sizeof text);
    hf_locks_free(locks);
    return text;
}

BOTH_FORMS(waiters_are_served_in_the_order_in_which_they_came) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("fifo");
    static const char *const labels[] = {"1", "2", "3", "4", "5", "6"};
    static const char *const pictures[] = {"1 | 2 3 4 5 6", "2 | 3 4 5 6", "3 | 4 5 6",
                                           "4 | 5 6",       "5 | 6",       "6 |"};
    struct ask *asks[6];
    hf_hold *hold = get(a, name, as_exclusive(0));
    for (size_t i = 0; i < 6; i++)
        asks[i] =
            queue_up(i % 2 ? a : b, name, with_label(as_exclusive(HF_FOREVER), labels[i]), i + 1);
    uint64_t token = hf_hold_token(hold);
    for (size_t i = 0; i < 6; i++) {
        let_go(hold);
        hold = granted(asks[i]);
        CHECK_EQ_STR(picture(a, name), pictures[i]);
        CHECK(hf_hold_token(hold) > token);
        token = hf_hold_token(hold);
    }
    let_go(hold);
}

BOTH_FORMS(a_released_lock_is_kept_for_who_waits) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("kept");
    for (int i = 0; i < 10; i++) {
        hf_hold *hold = get(a, name, as_exclusive(0));
        struct ask *waiter = queue_up(b, name, as_exclusive(HF_FOREVER), 1);
        CHECK_IS(release(hold), HF_OK);
        CHECK_IS(attempt(a, name, as_exclusive(0)), HF_BUSY);
        hf_hold_free(hold);
        let_go(granted(waiter));
    }
}

/* A place in the queue is leased, and kept by asking again. */
BOTH_FORMS(waiters_keep_their_places_beyond_the_wait_lease) {
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    options.wait_lease_ms = 3 * LEASE_MS; /* even a busy machine asks again within this time */
    hf_client *a = open_client_with(&options), *b = open_client_with(&options);
    const char *name = fresh_name("places");
    hf_hold *hold = get(a, name, with_label(as_exclusive(0), "0"));
    struct ask *first = queue_up(a, name, with_label(as_exclusive(HF_FOREVER), "1"), 1);
    struct ask *second = queue_up(b, name, with_label(as_exclusive(HF_FOREVER), "2"), 2);
    int64_t until = now_ms() + 4 * LEASE_MS;
    AWAIT(now_ms() > until);
    CHECK_EQ_STR(picture(a, name), "0 | 1 2");
    let_go(hold);
    let_go(granted(first));
    let_go(granted(second));
}

BOTH_FORMS(a_waiting_writer_is_not_overtaken_by_later_readers) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("starve");
    hf_hold *reader = get(a, name, with_label(as_shared(0), "r1"));
    struct ask *writer = queue_up(b, name, with_label(as_exclusive(HF_FOREVER), "w"), 1);
    CHECK_IS(attempt(a, name, as_shared(0)), HF_BUSY);
    CHECK_IS(attempt(b, name, as_shared(0)), HF_BUSY);
    struct ask *later = queue_up(a, name, with_label(as_shared(HF_FOREVER), "r2"), 2);
    CHECK_EQ_STR(picture(a, name), "r1 | w r2");
    let_go(reader);
    hf_hold *hold = granted(writer);
    CHECK_EQ_STR(picture(a, name), "w | r2");
    let_go(hold);
    let_go(granted(later));
}

BOTH_FORMS(readers_behind_a_writer_enter_together) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("together");
    hf_hold *writer = get(a, name, as_exclusive(0));
    struct ask *asks[4];
    for (size_t i = 0; i < 4; i++)
        asks[i] = queue_up(i % 2 ? a : b, name, with_label(as_shared(HF_FOREVER), "r"), i + 1);
    let_go(writer);
    hf_hold *holds[4];
    for (size_t i = 0; i < 4; i++)
        holds[i] = granted(asks[i]);
    CHECK_EQ_STR(picture(a, name), "r r r r |");
    for (size_t i = 0; i < 4; i++)
        let_go(holds[i]);
}

BOTH_FORMS(many_permits_are_not_starved_by_few) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("big");
    hf_hold *small = get(a, name, with_label(as_permits(1, 4, 0), "s1"));
    struct ask *big = queue_up(b, name, with_label(as_permits(4, 4, HF_FOREVER), "big"), 1);
    CHECK_IS(attempt(a, name, as_permits(1, 4, 0)), HF_BUSY);
    struct ask *later = queue_up(a, name, with_label(as_permits(1, 4, HF_FOREVER), "s2"), 2);
    let_go(small);
    hf_hold *hold = granted(big);
    CHECK_EQ_STR(picture(a, name), "big | s2");
    let_go(hold);
    let_go(granted(later));
}

BOTH_FORMS(permits_are_handed_to_all_who_fit) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("fit");
    hf_hold *all = get(a, name, as_permits(4, 4, 0));
    struct ask *one = queue_up(a, name, with_label(as_permits(1, 4, HF_FOREVER), "1"), 1);
    struct ask *two = queue_up(b, name, with_label(as_permits(2, 4, HF_FOREVER), "2"), 2);
    struct ask *three = queue_up(a, name, with_label(as_permits(3, 4, HF_FOREVER), "3"), 3);
    let_go(all);
    hf_hold *first = granted(one), *second = granted(two);
    CHECK_EQ_STR(picture(a, name), "1 2 | 3");
    CHECK(!is_answered(three));
    let_go(first);
    CHECK_EQ_STR(picture(a, name), "2 | 3");
    let_go(second);
    let_go(granted(three));
}

BOTH_FORMS(barging_takes_what_fits_ahead_of_the_queue) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("barge");
    hf_hold *reader = get(a, name, with_label(as_shared(0), "r1"));
    struct ask *writer = queue_up(b, name, with_label(as_exclusive(HF_FOREVER), "w"), 1);
    hf_hold *barger = get(b, name, with_flags(with_label(as_shared(0), "r2"), HF_BARGE));
    CHECK_EQ_STR(picture(a, name), "r1 r2 | w");
    CHECK_IS(attempt(a, name, with_flags(as_exclusive(0), HF_BARGE)), HF_BUSY);
    let_go(reader);
    CHECK_EQ_STR(picture(a, name), "r2 | w");
    let_go(barger);
    let_go(granted(writer));
}

BOTH_FORMS(who_barges_waits_at_the_front) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("front");
    hf_hold *hold = get(a, name, as_exclusive(0));
    struct ask *patient = queue_up(b, name, with_label(as_exclusive(HF_FOREVER), "p"), 1);
    hf_acquire_options barging = with_flags(as_exclusive(HF_FOREVER), HF_BARGE);
    struct ask *barger = queue_up(a, name, with_label(barging, "b"), 2);
    let_go(hold);
    hold = granted(barger);
    CHECK_EQ_STR(picture(a, name), "b | p");
    let_go(hold);
    let_go(granted(patient));
}

BOTH_FORMS(who_times_out_does_not_stand_in_the_way) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("gave-up");
    hf_hold *reader = get(a, name, with_label(as_shared(0), "r1"));
    hf_hold *none = NULL;
    struct ask *writer;
    for (int64_t wait_ms = LEASE_MS;; wait_ms *= 4) {
        writer = ask_for(b, name, with_label(as_exclusive(wait_ms), "w"));
        AWAIT(are_waiting(a, name, 1) || is_answered(writer));
        if (!is_answered(writer) || wait_ms > PATIENCE_MS / 4)
            break;
        int status = answer(writer, &none); /* slow machine: before it was seen to wait */
        CHECK(status == HF_TIMEOUT || status == HF_UNKNOWN);
    }
    struct ask *later = ask_for(a, name, with_label(as_shared(HF_FOREVER), "r2"));
    CHECK_IS(answer(writer, &none), HF_TIMEOUT);
    CHECK(none == NULL);
    hf_hold *hold = granted(later); /* while r1 goes on reading */
    CHECK_IS(hf_check(reader, 0), HF_OK);
    CHECK_EQ_STR(picture(a, name), "r1 r2 |");
    let_go(reader);
    let_go(hold);
}

/* The first, a middle one and the last of five leave; the other two are served in order. */
BOTH_FORMS(who_cancels_does_not_stand_in_the_way) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("cancel");
    static const char *const labels[] = {"1", "2", "3", "4", "5"};
    hf_hold *hold = get(a, name, with_label(as_exclusive(0), "0"));
    hf_call *calls[5];
    for (size_t i = 0; i < 5; i++) {
        hf_acquire_options options = with_label(as_exclusive(HF_FOREVER), labels[i]);
        CHECK_IS(hf_acquire_start(i % 2 ? a : b, name, &options, &calls[i]), HF_OK);
        AWAIT(waiters(a, name) == i + 1);
    }
    for (size_t i = 0; i < 5; i += 2) {
        CHECK_IS(hf_call_cancel(calls[i]), HF_OK);
        CHECK_IS(outcome(calls[i]), HF_CANCELLED);
        CHECK(hf_call_take_hold(calls[i]) == NULL);
        hf_call_free(calls[i]);
    }
    AWAIT(waiters(a, name) == 2);
    CHECK_EQ_STR(picture(a, name), "0 | 2 4");
    let_go(hold);
    for (size_t i = 1; i < 5; i += 2) {
        CHECK_IS(outcome(calls[i]), HF_OK);
        hold = hf_call_take_hold(calls[i]);
        CHECK_EQ_STR(picture(a, name), i == 1 ? "2 | 4" : "4 |");
        hf_call_free(calls[i]);
        let_go(hold);
    }
}

static void *wait_until_cancelled(void *call) {
    CHECK_IS(hf_call_wait(call, HF_FOREVER), HF_CANCELLED);
    return NULL;
}

TEST(a_thread_that_waits_for_ever_can_be_cancelled_by_another) {
    hf_client *a = open_client(), *b = open_client();
    const char *name = fresh_name("cancel");
    hf_hold *hold = get(a, name, as_exclusive(0));
    hf_acquire_options options = as_exclusive(HF_FOREVER);
    hf_call *call;
    CHECK_IS(hf_acquire_start(b, name, &options, &call), HF_OK);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_until_cancelled, call) == 0);
    AWAIT(are_waiting(a, name, 1));
    CHECK_IS(hf_call_cancel(call), HF_OK);
    pthread_join(thread, NULL);
    CHECK(strlen(hf_call_error(call)) > 0);
    AWAIT(waiters(a, name) == 0);
    hf_call_free(call);
    let_go(hold);
}

BOTH_FORMS(a_client_that_closes_does_not_stand_in_the_way) {
    hf_client *a = open_client();
    bool is_in_time = false;
    int status = HF_TIMEOUT;
    for (int i = 0; status == HF_TIMEOUT && !is_in_time && may_try(i, LONG_TRIES); i++) {
        hf_client *b = open_client();
        const char *name = fresh_name("closing");
        hf_hold *hold = get(a, name, as_exclusive(0));
        hf_acquire_options options = as_exclusive(HF_FOREVER);
        hf_call *call;
        CHECK_IS(hf_acquire_start(b, name, &options, &call), HF_OK);
        AWAIT(are_waiting(a, name, 1));
        struct ask *behind = queue_up(a, name, as_exclusive(PATIENCE_MS / 2), 2);
        is_in_time = is_closed_in_time(b);
        CHECK_IS(hf_call_status(call), HF_CLOSED);
        hf_call_free(call);
        if (is_in_time)
            CHECK_EQ_INT(waiters(a, name), 1);
        let_go(hold);
        hold = NULL;
        status = answer(behind, &hold);
        if (status == HF_OK)
            let_go(hold);
    }
    CHECK_IS(status, HF_OK);
}
