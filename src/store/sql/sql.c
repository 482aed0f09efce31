#include "store/sql/sql.h"

#include "base/error.h"
#include "base/url.h"
#include "store/findings.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- The scheme ---- */

int sql_read_scheme(const struct store_host *host, const struct url *url, bool *ret_for_update,
                    char **ret_text) {
    const char *scheme = url_option(url, "scheme");
    *ret_for_update = scheme && strcmp(scheme, "for-update") == 0;
    if (scheme && !*ret_for_update && strcmp(scheme, "lease") != 0) {
        *ret_text = error_format("scheme=%s: it can be lease, the default, or for-update", scheme);
        return HF_BAD_URL;
    }
    if (*ret_for_update && host->identity.guard_pid) {
        *ret_text = error_format(
            "with scheme=for-update a lock ends with the connection of its client, while what it "
            "protects may go on in another process: leave out scheme=for-update");
        return HF_UNSUPPORTED;
    }
    return HF_OK;
}

bool sql_find_for_update(hf_examination *out) {
    return findings_add(
        out, HF_WARNING, "scheme",
        "a lock ends with the connection of its holder, or with the server, before its deadline: "
        "somebody else may have it before the holder knows",
        "leave out scheme=for-update if the lock must last until its deadline",
        "scheme=for-update: each lock is a row lock, on a connection of its own");
}

/* ---- Acquire ---- */

struct answer {
    struct store_host *host;
    struct store_op *op;
    const char *const *values;
};

static int64_t number_of(const struct answer *a, int column) {
    return strtoll(a->values[column], NULL, 10);
}

static void answered_done(const struct answer *a) {
    a->op->token = (uint64_t)number_of(a, SQL_NUMBER);
    store_complete(a->host, a->op, STORE_DONE);
}

static void answered_queued(const struct answer *a) {
    char is_head = a->values[SQL_IS_HEAD][0];
    a->op->left_us = number_of(a, SQL_NUMBER);
    if (is_head == 't' || is_head == '1')
        a->op->flags |= STORE_HEAD;
    store_complete(a->host, a->op, STORE_QUEUED);
}

static void answered_busy(const struct answer *a) {
    a->op->left_us = number_of(a, SQL_NUMBER);
    store_refuse(a->host, a->op, HF_BUSY, NULL);
}

static void answered_kind(const struct answer *a) {
    store_refuse(a->host, a->op, HF_WRONG_KIND,
                 store_describe_kind((enum store_kind)number_of(a, SQL_IN_USE_KIND),
                                     (uint32_t)number_of(a, SQL_IN_USE_CAPACITY)));
}

static void answered_scheme(const struct answer *a) {
    store_refuse(a->host, a->op, HF_WRONG_KIND,
                 error_format("it is held with scheme=for-update, and this client uses leases"));
}

static void answered_clock(const struct answer *a) {
    store_refuse(a->host, a->op, HF_CLOCK,
                 error_format("the client's clock proposes the token %" PRIu64
                              ", more than a day ahead of the server's clock, %" PRId64,
                              a->op->floor, number_of(a, SQL_NUMBER)));
}

static void answered_spent(const struct answer *a) {
    store_refuse(
        a->host, a->op, HF_CLOCK,
        error_format("the name has used up its tokens, at %" PRId64, number_of(a, SQL_NUMBER)));
}

static const struct {
    const char *word;
    void (*handle)(const struct answer *answer);
} answers[] = {
    {"done", answered_done},   {"queued", answered_queued}, {"busy", answered_busy},
    {"kind", answered_kind},   {"scheme", answered_scheme}, {"clock", answered_clock},
    {"spent", answered_spent},
};

bool sql_acquire_answered(struct store_host *host, struct store_op *op,
                          const char *const values[SQL_ANSWER_COLUMNS]) {
    struct answer answer = {host, op, values};
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        if (strcmp(values[SQL_ANSWER], answers[i].word) == 0) {
            answers[i].handle(&answer);
            return true;
        }
    }
    return false;
}

/* ---- Renew ---- */

struct sql_renewing *sql_renewing_new(const struct store_op *op) {
    struct sql_renewing *renewing =
        calloc(1, sizeof(*renewing) + op->renewal_count * sizeof(renewing->renewals[0]));
    if (!renewing)
        return NULL;
    renewing->count = op->renewal_count;
    for (size_t i = 0; i < renewing->count; i++) {
        const struct store_op *of = op->renewals[i].of;
        renewing->renewals[i].seq = of ? of->seq : 0;
        renewing->renewals[i].lease_us = op->renewals[i].lease_us;
    }
    return renewing;
}

/* A linear search, through a few hundred at most. */
void sql_renewing_note(struct sql_renewing *renewing, uint64_t seq) {
    for (size_t i = 0; i < renewing->count; i++) {
        if (renewing->renewals[i].seq == seq)
            renewing->renewals[i].held = true;
    }
}

void sql_renewing_finish(struct store_host *host, struct store_op *op,
                         struct sql_renewing *renewing) {
    for (size_t i = 0; i < renewing->count; i++) {
        if (renewing->renewals[i].seq)
            op->renewals[i].outcome = renewing->renewals[i].held ? STORE_DONE : STORE_NOT_YOURS;
    }
    free(renewing);
    store_complete(host, op, STORE_DONE);
}

/* ---- Count ---- */

static void counted(struct store_host *host, struct store_op *op,
                    const char *const values[SQL_COUNT_COLUMNS], bool mismatches) {
    bool is_absent = !*values[SQL_COUNT_VALUE];
    op->value = strtoll(values[SQL_COUNT_VALUE], NULL, 10);
    op->life_us = strtoll(values[SQL_COUNT_LEFT_US], NULL, 10);
    op->flags = (uint8_t)((is_absent ? STORE_ABSENT : 0) | (mismatches ? STORE_MISMATCH : 0));
    store_complete(host, op, STORE_DONE);
}

/* A repeat gets the answer that is remembered, so these answers are certain, however often the
 * request was sent. But it is not known what became of a late request. */
bool sql_count_answered(struct store_host *host, struct store_op *op,
                        const char *const values[SQL_COUNT_COLUMNS]) {
    const char *word = values[SQL_COUNT_ANSWER];
    bool mismatches = strcmp(word, "mismatch") == 0;
    if (mismatches || strcmp(word, "done") == 0)
        counted(host, op, values, mismatches);
    else if (strcmp(word, "range") == 0)
        store_refuse(host, op, HF_RANGE, NULL);
    else if (strcmp(word, "late") == 0)
        store_complete(host, op, STORE_UNKNOWN);
    else
        return false;
    return true;
}

/* ---- Look ---- */

static int64_t number(const char *const values[], int column) {
    return strtoll(values[column], NULL, 10); /* "" is 0 */
}

static bool add_lock(struct hf_locks *locks, const char *const values[]) {
    struct locks_break last = {
        .at_us = number(values, SQL_BROKEN_US),
        .token = (uint64_t)number(values, SQL_BROKEN_TOKEN),
        .by = values[SQL_BROKEN_BY],
        .reason = values[SQL_BROKEN_REASON],
    };
    return locks_add(locks, values[SQL_LOCK_NAME], (enum store_kind)number(values, SQL_LOCK_KIND),
                     (uint32_t)number(values, SQL_LOCK_CAPACITY),
                     (uint64_t)number(values, SQL_LOCK_TOKEN)) &&
           (!last.at_us || locks_set_break(locks, &last));
}

static int digit(char c) {
    return c >= 'a' ? c - 'a' + 10 : c >= 'A' ? c - 'A' + 10 : c - '0';
}

static void read_client(const char *text, uint8_t ret_id[16]) {
    for (size_t i = 0; i < 16; i++) {
        text += *text == '-';
        ret_id[i] = text[0] && text[1] ? (uint8_t)(digit(text[0]) << 4 | digit(text[1])) : 0;
        text += text[0] && text[1] ? 2 : 0;
    }
}

static bool add_party(struct hf_locks *locks, const char *const values[]) {
    hf_party party = {
        .host = values[SQL_HOST],
        .command = values[SQL_COMMAND],
        .label = values[SQL_LABEL],
        .pid = number(values, SQL_PID),
        .token = (uint64_t)number(values, SQL_TOKEN),
        .weight = (uint32_t)number(values, SQL_WEIGHT),
        .since_ms = number(values, SQL_SINCE_MS),
        .left_ms = number(values, SQL_LEFT_MS),
    };
    uint8_t id[16];
    read_client(values[SQL_CLIENT], id);
    return locks_add_party(locks, number(values, SQL_STATE) == 1 ? LOCKS_HOLDER : LOCKS_WAITER,
                           &party, id, (uint64_t)number(values, SQL_SEQ));
}

bool sql_add_row(struct hf_locks *locks, const char *const values[SQL_LOOK_COLUMNS]) {
    size_t count = hf_locks_count(locks);
    bool is_new =
        count == 0 || strcmp(hf_locks_at(locks, count - 1)->name, values[SQL_LOCK_NAME]) != 0;
    return (!is_new || add_lock(locks, values)) &&
           (!*values[SQL_CLIENT] || add_party(locks, values));
}

void sql_end_of_prefix(char *prefix) {
    size_t size = strlen(prefix);
    while (size > 0 && (uint8_t)prefix[size - 1] == 0xff)
        size--;
    prefix[size] = 0;
    if (size > 0)
        prefix[size - 1] = (char)((uint8_t)prefix[size - 1] + 1);
}
