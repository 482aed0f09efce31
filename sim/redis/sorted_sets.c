/* Commands of sorted sets. */
#include "sim/redis/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_zadd_option(struct slice word) {
    static const char *const options[] = {"nx", "xx", "gt", "lt", "ch", "incr"};
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        if (slice_is(word, options[i]))
            return true;
    return false;
}

/* All scores must be numbers before any is set. */
static bool check_zadd(struct call *call) {
    double score;
    if (is_zadd_option(call->words[2])) {
        answer_unknown_option(call, call->words[2]);
        return false;
    }
    if (call->count % 2) {
        answer_syntax_error(call);
        return false;
    }
    for (size_t i = 2; i < call->count; i += 2) {
        if (!slice_to_double(call->words[i], &score)) {
            answer_error(call->answer, "ERR value is not a valid float");
            return false;
        }
    }
    return true;
}

void serve_zadd(struct call *call) {
    struct entry *entry;
    int64_t added = 0;
    if (!check_zadd(call) || !model_find_typed(call, MODEL_SORTED_SET, &entry))
        return;
    if (!entry)
        entry = keyspace_add(&call->redis->keys, call->words[1], MODEL_SORTED_SET);
    for (size_t i = 2; i < call->count; i += 2) {
        double score = 0;
        slice_to_double(call->words[i], &score);
        added += zset_set(entry, call->words[i + 1], score);
    }
    answer_integer(call->answer, added);
}

void serve_zrem(struct call *call) {
    struct entry *entry;
    int64_t removed = 0;
    if (!model_find_typed(call, MODEL_SORTED_SET, &entry))
        return;
    for (size_t i = 2; entry && i < call->count; i++) {
        struct member *member = zset_find(entry, call->words[i]);
        if (member) {
            zset_delete(entry, member);
            removed++;
        }
    }
    if (entry)
        model_drop_if_empty(call->redis, entry);
    answer_integer(call->answer, removed);
}

void serve_zscore(struct call *call) {
    struct entry *entry;
    if (!model_find_typed(call, MODEL_SORTED_SET, &entry))
        return;
    const struct member *member = entry ? zset_find(entry, call->words[2]) : NULL;
    if (member)
        answer_double(call->answer, member->score);
    else
        answer_nil(call->answer);
}

void serve_zrank(struct call *call) {
    struct entry *entry;
    if (!model_find_typed(call, MODEL_SORTED_SET, &entry))
        return;
    const struct member *member = entry ? zset_find(entry, call->words[2]) : NULL;
    if (member)
        answer_integer(call->answer, member - entry->members);
    else
        answer_nil(call->answer);
}

/* ---- Ranges ---- */

/* Takes WITHSCORES, or nothing. Returns false if it has answered. */
static bool read_range_options(struct call *call, bool *ret_scores) {
    static const char *const known[] = {"byscore", "bylex", "rev", "limit"};
    *ret_scores = false;
    for (size_t i = 4; i < call->count; i++) {
        if (slice_is(call->words[i], "withscores")) {
            *ret_scores = true;
            continue;
        }
        for (size_t j = 0; j < sizeof(known) / sizeof(known[0]); j++) {
            if (slice_is(call->words[i], known[j])) {
                answer_unknown_option(call, call->words[i]);
                return false;
            }
        }
        answer_syntax_error(call);
        return false;
    }
    return true;
}

static void answer_members(struct call *call, const struct entry *entry, size_t first, size_t count,
                           bool scores) {
    answer_array(call->answer, scores ? 2 * count : count);
    for (size_t i = first; entry && i < first + count; i++) {
        answer_bulk(call->answer, entry->members[i].name);
        if (scores)
            answer_double(call->answer, entry->members[i].score);
    }
}

void serve_zrange(struct call *call) {
    struct entry *entry;
    int64_t first, last;
    bool scores;
    if (!read_range_options(call, &scores))
        return;
    if (!slice_to_integer(call->words[2], &first) || !slice_to_integer(call->words[3], &last)) {
        answer_not_integer(call);
        return;
    }
    if (!model_find_typed(call, MODEL_SORTED_SET, &entry))
        return;
    int64_t count = entry ? (int64_t)entry->count : 0;
    first = first < -count ? 0 : first < 0 ? first + count : first;
    last = last < 0 ? last + count : last < count ? last : count - 1;
    if (first > last)
        first = last + 1;
    answer_members(call, entry, (size_t)first, (size_t)(last - first + 1), scores);
}

struct bound {
    double score;
    bool excluded;
};

/* Less strict than a score: it may begin with blanks, and an empty one is 0. */
static bool read_bound(struct slice word, struct bound *ret_bound) {
    ret_bound->excluded = word.size && word.bytes[0] == '(';
    if (ret_bound->excluded)
        word = (struct slice){word.bytes + 1, word.size - 1};
    char text[256], *end;
    if (word.size >= sizeof(text))
        return false;
    memcpy(text, word.bytes, word.size);
    text[word.size] = 0;
    ret_bound->score = strtod(text, &end);
    return !*end && !isnan(ret_bound->score);
}

void serve_zrangebyscore(struct call *call) {
    struct entry *entry;
    struct bound low, high;
    bool scores;
    if (!read_range_options(call, &scores))
        return;
    if (!read_bound(call->words[2], &low) || !read_bound(call->words[3], &high)) {
        answer_error(call->answer, "ERR min or max is not a float");
        return;
    }
    if (!model_find_typed(call, MODEL_SORTED_SET, &entry))
        return;
    size_t first = 0, end;
    const struct member *at = entry ? entry->members : NULL;
    size_t count = entry ? entry->count : 0;
    while (first < count &&
           (at[first].score < low.score || (low.excluded && at[first].score == low.score)))
        first++;
    for (end = first; end < count; end++)
        if (at[end].score > high.score || (high.excluded && at[end].score == high.score))
            break;
    answer_members(call, entry, first, end - first, scores);
}
