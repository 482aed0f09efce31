/* Members, their leader, and the messages between them. */
#include "sim/zookeeper/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESET_US = 20000 }; /* until a member notices that a connection was reset */

static int64_t min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t random_below(struct ensemble *e, int64_t limit) {
    return limit > 0 ? (int64_t)(e->config.events->random(e->config.owner) % (uint64_t)limit) : 0;
}

static void note(struct ensemble *e, const char *who, int number, const char *what) {
    char line[100];
    snprintf(line, sizeof(line), "(%s %d %s)", who, number, what);
    e->config.events->note(e->config.owner, line);
}

static int majority(const struct ensemble *e) {
    return e->config.member_count / 2 + 1;
}

static bool reaches(const struct ensemble *e, int one, int other) {
    const struct member *a = &e->members[one], *b = &e->members[other];
    return a->role != DOWN && b->role != DOWN && (a->cuts > 0) == (b->cuts > 0);
}

/* Whether messages between a member and the leader that it follows arrive. */
static bool is_joined(const struct ensemble *e, const struct member *member) {
    return member->role == FOLLOWING && !member->broken &&
           e->members[member->leader].role == LEADING;
}

static int supporters(const struct ensemble *e, int leader) {
    int count = 1;
    for (int i = 0; i < e->config.member_count; i++)
        count += e->members[i].leader == leader && is_joined(e, &e->members[i]);
    return count;
}

bool member_serves(const struct member *member) {
    return member->role == FOLLOWING || member->role == LEADING;
}

int ensemble_leader(const struct ensemble *e) {
    return e->leader >= 0 && e->members[e->leader].role == LEADING ? e->leader : -1;
}

/* ---- Sessions ---- */

bool session_is_alive(const struct ensemble *e, int session) {
    return e->sessions[session].created_at != NOWHERE && e->sessions[session].closed_at == NOWHERE;
}

int session_find(const struct ensemble *e, int64_t id) {
    for (int i = 0; i < e->session_count; i++) {
        if (e->sessions[i].id == id)
            return i;
    }
    return -1;
}

static void prolong(struct ensemble *e, int session) {
    struct session *s = &e->sessions[session];
    if (session_is_alive(e, session))
        s->expires_us = e->now_us + s->timeout_ms * INT64_C(1000);
}

void session_touch(struct ensemble *e, int member, int session) {
    if (member == e->leader)
        prolong(e, session);
    else
        e->members[member].noted.bits[session / 64] |= UINT64_C(1) << session % 64;
}

int64_t ensemble_session_until_us(const struct ensemble *e, int64_t id) {
    int i = session_find(e, id), leader = ensemble_leader(e);
    if (i < 0 || e->sessions[i].created_at == NOWHERE)
        return INT64_MIN;
    if (leader >= 0 && supporters(e, leader) >= majority(e))
        return e->sessions[i].expires_us;
    return e->now_us + e->sessions[i].timeout_ms * INT64_C(1000); /* of the next leader */
}

size_t ensemble_session_count(const struct ensemble *e) {
    size_t count = 0;
    for (int i = 0; i < e->session_count; i++)
        count += session_is_alive(e, i);
    return count;
}

/* ---- Messages ---- */

struct message *message_new(enum message_type type) {
    struct message *message = tree_allocate(NULL, sizeof(*message));
    *message = (struct message){.type = type, .session = -1};
    return message;
}

static void message_free(struct message *message) {
    request_free(message->request);
    free(message);
}

static void clear_queue(struct list *queue) {
    struct list *node;
    while ((node = list_pop(queue)))
        message_free(container_of(node, struct message, link));
}

static struct message *first_of(const struct list *queue) {
    return list_empty(queue) ? NULL : container_of(queue->next, struct message, link);
}

static void enqueue(struct list *queue, struct message *message, int64_t due_us) {
    if (!list_empty(queue)) {
        int64_t last_us = container_of(queue->prev, struct message, link)->due_us;
        due_us = due_us > last_us ? due_us : last_us;
    }
    message->due_us = due_us;
    list_append(queue, &message->link);
}

static void transmit(struct ensemble *e, const struct member *member, struct list *queue,
                     struct message *message) {
    if (is_joined(e, member))
        enqueue(queue, message,
                e->now_us + random_below(e, e->config.delay_us[member->number] + 1));
    else
        message_free(message);
}

static void leader_takes(struct ensemble *e, struct member *from, struct message *message);

void send_up(struct ensemble *e, int number, struct message *message) {
    struct member *member = &e->members[number];
    if (member->role == LEADING)
        leader_takes(e, member, message);
    else
        transmit(e, member, &member->up, message);
}

static void send_down(struct ensemble *e, int number, enum message_type type, size_t place) {
    struct message *message = message_new(type);
    message->place = place;
    transmit(e, &e->members[number], &e->members[number].down, message);
}

/* ---- Committing ---- */

static void apply_next(struct ensemble *e, struct member *member) {
    size_t place = member->applied++;
    connections_apply(e, member, &e->log[place]);
    if (place == e->reported) {
        e->reported++;
        e->config.events->committed(e->config.owner, &e->log[place]);
    }
}

static void commit_next(struct ensemble *e) {
    size_t place = e->committed++;
    apply_next(e, &e->members[e->leader]);
    for (int i = 0; i < e->config.member_count; i++) {
        if (i != e->leader && e->members[i].leader == e->leader)
            send_down(e, i, SEND_COMMIT, place);
    }
}

static void commit(struct ensemble *e) {
    for (;;) {
        int count = 1;
        for (int i = 0; i < e->config.member_count; i++)
            count += i != e->leader && e->members[i].leader == e->leader &&
                     e->members[i].role == FOLLOWING && e->members[i].acknowledged > e->committed;
        if (e->committed == e->log_count || count < majority(e))
            return;
        commit_next(e);
    }
}

/* The last entry of the log is new. */
static void propose(struct ensemble *e) {
    e->members[e->leader].logged = e->log_count;
    for (int i = 0; i < e->config.member_count; i++) {
        if (i != e->leader && e->members[i].leader == e->leader)
            send_down(e, i, SEND_PROPOSAL, e->log_count - 1);
    }
    commit(e);
}

/* ---- What arrives at a leader ---- */

/* Whether the session is alive, as far as a leader that was replaced knows. */
static bool was_alive(const struct ensemble *e, const struct member *leader, int session) {
    const struct session *s = &e->sessions[session];
    return s->created_at < leader->applied && s->closed_at >= leader->applied;
}

static void validate(struct ensemble *e, struct member *from, const struct member *leader,
                     const struct message *asked) {
    bool is_real = leader->number == e->leader;
    bool valid =
        is_real ? session_is_alive(e, asked->session) : was_alive(e, leader, asked->session);
    if (valid && is_real) {
        prolong(e, asked->session);
        e->sessions[asked->session].owner = from->number;
    }
    if (from->role == LEADING) {
        connection_validated(e, from, asked->connection, asked->session, valid);
        return;
    }
    struct message *message = message_new(SEND_VALIDATED);
    message->connection = asked->connection;
    message->session = asked->session;
    message->valid = valid;
    transmit(e, from, &from->down, message);
}

/* A leader that was replaced and does not know it yet: it cannot commit anything. */
static void old_leader_takes(struct ensemble *e, struct member *from, struct member *leader,
                             const struct message *message) {
    if (message->type == SEND_VALIDATE)
        validate(e, from, leader, message);
}

static void leader_takes(struct ensemble *e, struct member *from, struct message *message) {
    struct member *leader = from->role == LEADING ? from : &e->members[from->leader];
    if (leader->number != e->leader) {
        old_leader_takes(e, from, leader, message);
        message_free(message);
        return;
    }
    switch (message->type) {
    case SEND_REQUEST:
        log_request(e, message->request);
        propose(e);
        break;
    case SEND_ACK:
        from->acknowledged = message->place + 1;
        commit(e);
        break;
    case SEND_REPORT:
        for (int i = 0; i < e->session_count; i++) {
            if (message->sessions.bits[i / 64] >> i % 64 & 1)
                prolong(e, i);
        }
        break;
    case SEND_VALIDATE:
        validate(e, from, leader, message);
        break;
    default:
        break;
    }
    message_free(message);
}

/* ---- What arrives at a member ---- */

static void report(struct ensemble *e, struct member *member) {
    struct message *message = message_new(SEND_REPORT);
    message->sessions = member->noted;
    member->noted = (struct session_set){0};
    send_up(e, member->number, message);
}

static void acknowledge(struct ensemble *e, struct member *member, size_t place) {
    struct message *message = message_new(SEND_ACK);
    message->place = place;
    member->logged = place + 1;
    send_up(e, member->number, message);
}

static void member_takes(struct ensemble *e, struct member *member, struct message *message) {
    switch (message->type) {
    case SEND_PROPOSAL:
        acknowledge(e, member, message->place);
        break;
    case SEND_PING:
        report(e, member);
        break;
    case SEND_VALIDATED:
        connection_validated(e, member, message->connection, message->session, message->valid);
        break;
    case SEND_COMMIT:
        if (member->lag_us || !list_empty(&member->late)) {
            enqueue(&member->late, message, e->now_us + member->lag_us);
            return;
        }
        apply_next(e, member);
        break;
    default:
        break;
    }
    message_free(message);
}

/* ---- Following and leading ---- */

static void clear_queues(struct member *member) {
    clear_queue(&member->up);
    clear_queue(&member->down);
    clear_queue(&member->late);
    member->noted = (struct session_set){0};
}

/* It serves nobody until it has a leader again. */
static void leave(struct ensemble *e, struct member *member) {
    note(e, "member", member->number, "has no leader");
    connections_close(member);
    clear_queues(member);
    member->role = LOOKING;
    member->notices_us = member->joins_us = NEVER;
}

/* It gets everything that its leader has. */
static void join(struct ensemble *e, struct member *member) {
    const struct member *leader = &e->members[e->leader];
    note(e, "member", member->number, "follows");
    clear_queues(member);
    tree_copy(&member->tree, &leader->tree);
    member->applied = leader->applied;
    member->logged = member->acknowledged = e->log_count;
    member->role = FOLLOWING;
    member->leader = e->leader;
    member->broken = false;
    member->notices_us = member->joins_us = NEVER;
}

static void forget_cut_off(struct ensemble *e) {
    for (int i = 0; i < e->session_count; i++) {
        struct session *session = &e->sessions[i];
        if (session->created_at != NOWHERE && session->created_at >= e->log_count)
            session->created_at = NOWHERE;
        if (session->closed_at != NOWHERE && session->closed_at >= e->log_count)
            session->closed_at = NOWHERE;
        session->owner = -1;
    }
    for (int i = 0; i < e->config.member_count; i++) {
        struct member *member = &e->members[i];
        member->logged = member->logged < e->log_count ? member->logged : e->log_count;
    }
}

/* Every session has its whole timeout again. */
static void lead(struct ensemble *e, struct member *leader) {
    note(e, "member", leader->number, "leads");
    e->leader = leader->number;
    leader->role = LEADING;
    leader->notices_us = leader->joins_us = NEVER;
    log_cut(e, leader->logged);
    forget_cut_off(e);
    if (e->config.member_count > 1)
        e->zxid = ((e->zxid >> 32) + 1) << 32;
    tree_copy(&e->ahead, &leader->tree);
    for (size_t i = leader->applied; i < e->log_count; i++)
        txn_apply(&e->ahead, &e->log[i], NULL, NULL);
    e->committed = leader->applied;
    for (int i = 0; i < e->session_count; i++)
        prolong(e, i);
    e->pings_us = e->now_us + e->config.tick_us / 2;
    e->looks_us = e->now_us + e->config.containers_us;
    for (int i = 0; i < e->config.member_count; i++) {
        if (i != leader->number && e->members[i].role == LOOKING && reaches(e, i, leader->number))
            join(e, &e->members[i]);
    }
    commit(e);
}

static int electorate(const struct ensemble *e, int of) {
    int count = 0;
    for (int i = 0; i < e->config.member_count; i++)
        count += e->members[i].role == LOOKING && reaches(e, i, of);
    return count;
}

static void elect(struct ensemble *e) {
    struct member *best = NULL;
    e->elects_us = NEVER;
    for (int i = 0; i < e->config.member_count; i++) {
        struct member *member = &e->members[i];
        if (member->role == LOOKING && electorate(e, i) >= majority(e) &&
            (!best || member->logged > best->logged))
            best = member;
    }
    if (best)
        lead(e, best);
}

/* A process that ends closes its connections. A member that is cut off waits for messages, unless
 * the connection is reset. */
static int64_t choose_notice_us(struct ensemble *e, bool cut) {
    bool is_reset = !cut || random_below(e, 3) == 0;
    return random_below(e, is_reset ? RESET_US : e->config.sync_limit * e->config.tick_us);
}

/* A member was cut off (`cut`), or stopped, or is back: decides which members notice, and when. */
static void settle(struct ensemble *e, bool cut) {
    bool can_elect = false;
    for (int i = 0; i < e->config.member_count; i++) {
        struct member *member = &e->members[i];
        if (member->role == FOLLOWING && !reaches(e, i, member->leader))
            member->broken = true;
        bool is_lost = member->role == FOLLOWING && !is_joined(e, member);
        bool is_alone = member->role == LEADING && supporters(e, i) < majority(e);
        if ((is_lost || is_alone) && member->notices_us == NEVER)
            member->notices_us = e->now_us + choose_notice_us(e, cut);
        if (!is_lost && !is_alone)
            member->notices_us = NEVER;
        bool can_join =
            member->role == LOOKING && ensemble_leader(e) >= 0 && reaches(e, i, e->leader);
        if (can_join && member->joins_us == NEVER)
            member->joins_us = e->now_us + 1000 + random_below(e, 200000);
        if (!can_join)
            member->joins_us = NEVER;
        can_elect |= member->role == LOOKING && !can_join && electorate(e, i) >= majority(e);
    }
    if (can_elect && e->elects_us == NEVER)
        e->elects_us = e->now_us + 1000 + random_below(e, 2 * e->config.tick_us);
}

/* ---- Time ---- */

static void ping(struct ensemble *e) {
    e->pings_us = e->now_us + e->config.tick_us / 2;
    for (int i = 0; i < e->config.member_count; i++) {
        if (i != e->leader && e->members[i].leader == e->leader)
            send_down(e, i, SEND_PING, 0);
    }
}

static void end_session(struct ensemble *e, int session, bool by_operator) {
    struct ensemble_txn *txn = log_new(e, OP_CLOSE_SESSION);
    txn->session = e->sessions[session].id;
    txn->by_operator = by_operator;
    log_close_session(e, txn, session);
    propose(e);
}

static int64_t expire(struct ensemble *e) {
    int64_t next_us = NEVER;
    for (int i = 0; i < e->session_count; i++) {
        if (!session_is_alive(e, i))
            continue;
        if (e->sessions[i].expires_us <= e->now_us) {
            note(e, "session", i + 1, "has expired");
            end_session(e, i, false);
        } else {
            next_us = min(next_us, e->sessions[i].expires_us);
        }
    }
    return next_us;
}

/* Deletes containers that had children and have none left. */
static void look_at_containers(struct ensemble *e) {
    e->looks_us = e->now_us + e->config.containers_us;
    for (size_t i = 0; i < e->ahead.count;) {
        const struct tree_node *node = e->ahead.nodes[i];
        if (node->stat.owner == TREE_CONTAINER && !node->child_count && node->stat.created) {
            struct ensemble_txn *txn = log_new(e, OP_DELETE_CONTAINER);
            log_part(e, txn, OP_DELETE, node->path);
            propose(e);
        } else {
            i++;
        }
    }
}

static int64_t lead_on(struct ensemble *e) {
    if (e->pings_us <= e->now_us)
        ping(e);
    if (e->looks_us <= e->now_us)
        look_at_containers(e);
    return min(expire(e), min(e->pings_us, e->looks_us));
}

/* Takes the next message, if it is due. */
static bool take_due(const struct ensemble *e, struct list *queue, struct message **ret) {
    *ret = first_of(queue);
    if (!*ret || (*ret)->due_us > e->now_us)
        return false;
    list_remove(&(*ret)->link);
    return true;
}

static bool run_member(struct ensemble *e, struct member *member) {
    struct message *message;
    if (member->notices_us <= e->now_us) {
        leave(e, member);
        settle(e, false);
        return true;
    }
    if (member->joins_us <= e->now_us) {
        join(e, member);
        settle(e, false);
        commit(e);
        return true;
    }
    if (take_due(e, &member->up, &message)) {
        leader_takes(e, member, message);
        return true;
    }
    if (take_due(e, &member->down, &message)) {
        member_takes(e, member, message);
        return true;
    }
    if (take_due(e, &member->late, &message)) {
        apply_next(e, member); /* only commits are late */
        message_free(message);
        return true;
    }
    return false;
}

static int64_t next_of(const struct member *member) {
    int64_t next_us = min(member->notices_us, member->joins_us);
    const struct list *queues[] = {&member->up, &member->down, &member->late};
    for (size_t i = 0; i < 3; i++) {
        const struct message *first = first_of(queues[i]);
        next_us = first ? min(next_us, first->due_us) : next_us;
    }
    return next_us;
}

int64_t ensemble_run(struct ensemble *e) {
    int64_t next_us;
    bool again;
    do {
        again = e->elects_us <= e->now_us;
        if (again)
            elect(e);
        next_us = e->elects_us;
        if (ensemble_leader(e) >= 0)
            next_us = min(next_us, lead_on(e));
        for (int i = 0; i < e->config.member_count; i++) {
            while (run_member(e, &e->members[i]))
                again = true;
            next_us = min(next_us, next_of(&e->members[i]));
        }
    } while (again);
    return next_us;
}

void ensemble_set_time(struct ensemble *e, int64_t now_us) {
    e->now_us = now_us > e->now_us ? now_us : e->now_us;
}

/* ---- Faults ---- */

void ensemble_cut(struct ensemble *e, unsigned members, bool begins) {
    for (int i = 0; i < e->config.member_count; i++) {
        if (members & 1u << i)
            e->members[i].cuts += begins ? 1 : -1;
    }
    /* A broken connection is not repaired: the member notices it now at the latest. */
    for (int i = 0; i < e->config.member_count && !begins; i++) {
        struct member *member = &e->members[i];
        if (member->notices_us != NEVER && (member->role != FOLLOWING || member->broken))
            member->notices_us = e->now_us;
    }
    settle(e, begins);
}

void ensemble_stop(struct ensemble *e, int member) {
    if (e->members[member].role == DOWN)
        return;
    leave(e, &e->members[member]);
    e->members[member].role = DOWN;
    settle(e, false);
}

void ensemble_start(struct ensemble *e, int member) {
    if (e->members[member].role != DOWN)
        return;
    e->members[member].role = LOOKING;
    settle(e, false);
}

void ensemble_lag(struct ensemble *e, int member, int64_t us) {
    e->members[member].lag_us = us;
}

bool ensemble_end_session(struct ensemble *e, int64_t id) {
    int session = session_find(e, id);
    if (ensemble_leader(e) < 0 || session < 0 || !session_is_alive(e, session))
        return false;
    end_session(e, session, true);
    return true;
}

bool ensemble_delete(struct ensemble *e, const char *path) {
    if (ensemble_leader(e) < 0 || !tree_find(&e->ahead, path))
        return false;
    log_part(e, log_new(e, OP_DELETE), OP_DELETE, path);
    propose(e);
    return true;
}

/* ---- Life ---- */

const struct tree *ensemble_tree(const struct ensemble *e) {
    const struct member *most = &e->members[0];
    for (int i = 1; i < e->config.member_count; i++) {
        if (e->members[i].applied > most->applied)
            most = &e->members[i];
    }
    return &most->tree;
}

struct ensemble *ensemble_new(const struct ensemble_config *config, int64_t now_us) {
    struct ensemble *e = tree_allocate(NULL, sizeof(*e));
    memset(e, 0, sizeof(*e));
    e->config = *config;
    e->now_us = now_us;
    e->leader = -1;
    e->elects_us = NEVER;
    for (int i = 0; i < config->member_count; i++) {
        struct member *member = &e->members[i];
        member->number = i;
        member->role = LOOKING;
        member->notices_us = member->joins_us = NEVER;
        tree_init(&member->tree);
        list_init(&member->up);
        list_init(&member->down);
        list_init(&member->late);
        list_init(&member->connections);
    }
    lead(e, &e->members[random_below(e, config->member_count)]);
    return e;
}

void ensemble_free(struct ensemble *e) {
    if (!e)
        return;
    for (int i = 0; i < e->config.member_count; i++) {
        clear_queues(&e->members[i]);
        tree_free(&e->members[i].tree);
    }
    log_cut(e, 0);
    free(e->log);
    tree_free(&e->ahead);
    free(e);
}
