/* The quorum's tokens and leases: a model of an acquire, a renewal and a release over NODES
 * nodes that know nothing of each other (src/store/quorum).
 *
 * Promised and checked (the word is in the comment after the assertion):
 *   order      a hold's token is above that of every hold that existed before its attempt began
 *   distinct   no two holds have the same token
 *   fencing    (RESOURCE) a resource that refuses tokens below the largest it has seen takes no
 *              write of a hold after one of a hold that began later
 *   final      no renewal counts that began after a hold with a larger token existed
 *   exclusion  (TIMED) one valid hold at a time
 *   rising     (TIMED, RISING) a hold's token is above that of every hold that existed before it
 *   clean      (LASTING) when all is over, no node is taken: no lease needs to end for that
 *   ended      every attempt ends
 *
 * Leases come in three forms, chosen by a -D:
 *   (none)     A lease ends at any time: clocks step, processes pause forever. What is shown here
 *              needs no clock.
 *   TIMED      A lease lasts LEASE ticks, by a clock that is wrong by up to DRIFT of them. Nodes
 *              may forget everything.
 *   LASTING    No lease ends, and no request is lost; answers are. Only here is a release a
 *              message: elsewhere, one that arrives at once is the worst case, as a late one only
 *              delays others.
 *
 * Design notes.
 *
 *   - A node executes a client's requests at some time or never, in the order in which they
 *     were sent. A client cannot distinguish a request that was not executed, one that was
 *     refused, and one whose answer was lost. It counts the answers that it got, gives up at
 *     any point, and may be paused forever at any other.
 *   - It counts any choice of the grants that it got, not only the first Q; and a holder takes
 *     any node again at any time. Both are more than the code does.
 *   - Floors are 0 or HIGH, whichever client proposes them: behind counters, ahead of them, and
 *     colliding. With CLOCK a floor is above every token so far, as if from a wall clock that
 *     is right.
 *   - Nodes are alike, so they are sorted after each step: a state and its mirror images are
 *     one (tidy).
 *   - `younger`, `outdated`, `overtaken` and `top` only watch. They are not part of the
 *     protocol.
 *
 * Each of these removes one safeguard (models/run says what then fails):
 *   NO_RAISE        counted nodes below t are left there
 *   RAISE_BLIND     a node is raised whoever has it
 *   RAISE_TAKES     a raise takes a node that is free
 *   AT_LEAST        a node that answers a raise with more than t is counted
 *   LATE_COUNTED    a grant that came after t was chosen is counted
 *   SPARE_COUNTED   a grant above t that came after the decision is counted in renewals
 *   NO_BELOW        taking a node again does not look at its counter
 *   FEWER           one node less than a quorum is enough
 *   ONE_ID          the attempts of a client have one id at the nodes
 *   NO_QUARANTINE   a node that has forgotten everything votes at once
 *   FROM_REPLY      validity counts from the decision, not from before the first request
 *   NO_DRIFT        validity is the whole lease
 *   UNASKED         a node that has not answered gets no release */

#ifndef NODES
#define NODES 3
#endif
#ifndef Q
#define Q (NODES / 2 + 1)
#endif
#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef ATTEMPTS /* in a run; a client makes one after the other */
#ifdef TIMED
#define ATTEMPTS 2
#else
#define ATTEMPTS 3
#endif
#endif
#ifndef RENEWALS
#define RENEWALS 0 /* of each hold */
#endif
#ifndef RETAKES
#define RETAKES 0 /* of each hold */
#endif
#ifndef LOSSES
#define LOSSES 0 /* of a node's whole state, in a run */
#endif
#ifndef HIGH /* a floor */
#ifdef TIMED
#define HIGH 0
#else
#define HIGH 2
#endif
#endif
#ifndef LEASE
#define LEASE 1
#endif
#ifndef DRIFT
#define DRIFT 0
#endif
#define NOBODY 255
#define NONE   0 /* no token, no request */
#ifdef ONE_ID
#define LATE(c) (c)
#else
#define LATE(c) (128 + c) /* the id of c's ended attempts; that of its present one is c */
#endif

#ifdef FEWER
#define ENOUGH (Q - 1)
#else
#define ENOUGH Q
#endif
#ifdef NO_DRIFT
#define VALID LEASE
#else
#define VALID (LEASE - DRIFT)
#endif

mtype = { ACQUIRE, RAISE, RENEW, RETAKE, RELEASE, REPEAT }
mtype = { IDLE, ASKING, HOLDING, RENEWING }

/* The nodes. */
byte holder[NODES] = NOBODY;
byte counter[NODES];
#ifdef TIMED
byte left[NODES];       /* of the holder's lease */
byte quarantine[NODES]; /* time in which the node does not vote */
byte losses = LOSSES;
#endif

/* Between client c and node n: AT(c, n). */
#define AT(c, n) ((c) * NODES + (n))
mtype asked[CLIENTS * NODES];
byte heard[CLIENTS * NODES];   /* the answer: a token; 1 for a renewal */
bool counted[CLIENTS * NODES]; /* in the quorum of the attempt */
#ifdef LASTING
mtype late[CLIENTS * NODES]; /* what is left to do for an attempt that has ended: ACQUIRE, then
                              * RELEASE, then, unless that was answered, REPEAT: release again */
#endif

/* The clients. */
mtype stage[CLIENTS] = IDLE;
byte floor[CLIENTS];
byte token[CLIENTS];
#define HOLDS(c) (stage[c] == HOLDING || stage[c] == RENEWING)
#ifdef TIMED
byte age[CLIENTS] = LEASE;      /* since the attempt, or the last counted renewal, read the clock */
byte renewing[CLIENTS] = LEASE; /* since the renewal under way read it */
#define IN_TIME(c) (age[c] < VALID)
#else
#define IN_TIME(c) true
#endif
#ifdef FROM_REPLY
#define IS_LEFT(c) true
#else
#define IS_LEFT(c) IN_TIME(c)
#endif
byte attempts = ATTEMPTS;
byte begun; /* clients are alike: they begin in this order */

/* Watching. A hold may last forever, so it is enough to look at those that still exist. */
#define PAIR(c, d) ((c) * CLIENTS + (d))
bool younger[CLIENTS * CLIENTS]; /* PAIR(c, d): d's attempt began while c held */
bool outdated[CLIENTS];          /* its renewal began when a larger token was held */
#ifdef CLOCK
byte top; /* the largest counter ever */
#endif
#ifdef RESOURCE
byte seen;               /* the largest token that came with a write */
byte writer = NOBODY;    /* with which client */
bool overtaken[CLIENTS]; /* a younger hold has written */
#endif

/* Scratch, used within one step only: not part of the state. */
hidden byte i, j, k, m, count;
hidden mtype word;

inline lift(what, to)
{
    if
    :: what < (to) -> what = to
    :: else
    fi
}

/* ---- Nodes in order ---- */

inline swap(this, that) { k = this; this = that; that = k }
inline swap_words(this, that) { word = this; this = that; that = word }

inline swap_nodes(a, b)
{
    swap(holder[a], holder[b]);
    swap(counter[a], counter[b]);
#ifdef TIMED
    swap(left[a], left[b]);
    swap(quarantine[a], quarantine[b]);
#endif
    for (m : 0 .. CLIENTS - 1) {
        swap_words(asked[AT(m, a)], asked[AT(m, b)]);
        swap(heard[AT(m, a)], heard[AT(m, b)]);
        swap(counted[AT(m, a)], counted[AT(m, b)]);
#ifdef LASTING
        swap_words(late[AT(m, a)], late[AT(m, b)]);
#endif
    }
}

/* Two nodes that differ only in what is not compared here stay apart: this costs states, and
 * loses none. */
#define FIRST(n) (counter[n] * 256 + holder[n])
#define THEN(n)  (heard[n] * 16 + asked[n] + (heard[NODES + n] * 16 + asked[NODES + n]) * 512)

inline tidy()
{
    d_step {
        for (i : 1 .. NODES - 1) {
            for (j : 0 .. NODES - 1 - i) {
                if
                :: FIRST(j) < FIRST(j + 1) || FIRST(j) == FIRST(j + 1) && THEN(j) < THEN(j + 1) ->
                    swap_nodes(j, j + 1)
                :: else
                fi
            }
        }
        i = 0 /* (a step may not end in a loop) */
    }
}

/* ---- A node ---- */

/* The lease begins again. */
inline keep(n)
{
#ifdef CLOCK
    lift(top, counter[n]);
#endif
#ifdef TIMED
    left[n] = LEASE
#else
    skip
#endif
}

inline take(n, who, least)
{
    holder[n] = who;
    counter[n]++;
    lift(counter[n], least);
    keep(n)
}

inline raise(n, least)
{
    lift(counter[n], least);
    keep(n)
}

inline free(n)
{
    holder[n] = NOBODY;
#ifdef TIMED
    left[n] = 0
#endif
}

#ifdef TIMED
#define IS_FREE(n) (holder[n] == NOBODY && quarantine[n] == 0)
#else
#define IS_FREE(n) (holder[n] == NOBODY)
#endif

/* Whether n does what c asked of it. A refused request stays asked, as if it were still on its way:
 * the client cannot tell the difference, and relies on neither. */
#ifdef RAISE_BLIND
#define RAISES(c, n) true
#else
#define RAISES(c, n) (holder[n] == c)
#endif
#ifdef RAISE_TAKES
#define TAKES(c, n) (asked[AT(c, n)] == ACQUIRE || asked[AT(c, n)] == RAISE || IS_RETAKEN(c, n))
#else
#define TAKES(c, n) (asked[AT(c, n)] == ACQUIRE || IS_RETAKEN(c, n))
#endif
#ifdef NO_BELOW
#define IS_RETAKEN(c, n) (asked[AT(c, n)] == RETAKE)
#else
#define IS_RETAKEN(c, n) (asked[AT(c, n)] == RETAKE && counter[n] <= token[c])
#endif

inline hear(c, n, what)
{
    asked[AT(c, n)] = NONE;
    heard[AT(c, n)] = what
}

#ifdef LASTING
/* Executes what is left of an attempt that has ended. */
inline perform_late(c, n)
{
    if
    :: late[AT(c, n)] == ACQUIRE && IS_FREE(n) -> take(n, LATE(c), 0)
    :: late[AT(c, n)] != ACQUIRE && holder[n] == LATE(c) -> free(n)
    :: else
    fi
}

/* A connection keeps the order; a repeated release comes at any time. */
#define IS_NEXT(c, n) (late[AT(c, n)] == NONE || late[AT(c, n)] == REPEAT)
#else
#define IS_NEXT(c, n) true
#endif

/* If leases end at any time, a useless one may as well end at once: it could only delay others, and
 * they may be delayed anyway. */
inline leave(c, n)
{
#ifdef LASTING
    holder[n] = LATE(c)
#else
    free(n)
#endif
}

/* A grant above t that was not counted is given back, and is never counted in a renewal
 * either: a holder with a larger token may have come and gone there. */
inline give_back(c, n)
{
#ifndef SPARE_COUNTED
    if
    :: holder[n] == c -> leave(c, n)
    :: else
    fi;
#ifdef LASTING
    late[AT(c, n)] = RELEASE
#endif
#else
    skip
#endif
}

/* A node's grant for an attempt that is held already. */
inline spare(c, n)
{
    if
    :: asked[AT(c, n)] == ACQUIRE && counter[n] > token[c] -> give_back(c, n)
    :: else
    fi;
    hear(c, n, NONE)
}

/* The connection of a client to a node. */
proctype link(byte c, n)
{
    do
    :: atomic {
        IS_FREE(n) && TAKES(c, n) && IS_NEXT(c, n) ->
        if
        :: asked[AT(c, n)] == ACQUIRE -> take(n, c, floor[c])
        :: asked[AT(c, n)] != ACQUIRE -> take(n, c, token[c])
        fi;
        if
        :: HOLDS(c) -> spare(c, n)
        :: !HOLDS(c) -> hear(c, n, counter[n])
#ifdef LASTING
        :: !HOLDS(c) -> hear(c, n, NONE) /* the answer is lost */
#endif
        fi;
        tidy()
    }
    :: atomic {
        asked[AT(c, n)] == RAISE && RAISES(c, n) ->
        raise(n, token[c]);
        hear(c, n, counter[n]);
        tidy()
    }
    :: atomic { asked[AT(c, n)] == RENEW && holder[n] == c -> keep(n); hear(c, n, 1); tidy() }
#ifdef LASTING
    :: atomic { late[AT(c, n)] == ACQUIRE -> perform_late(c, n); late[AT(c, n)] = RELEASE; tidy() }
    :: atomic { late[AT(c, n)] == RELEASE -> perform_late(c, n); late[AT(c, n)] = REPEAT; tidy() }
    :: atomic {
        late[AT(c, n)] == RELEASE || late[AT(c, n)] == REPEAT -> /* and it is answered */
        perform_late(c, n);
        late[AT(c, n)] = NONE;
        tidy()
    }
#endif
    od
}

/* ---- Time ---- */

#ifdef TIMED

inline pass(what)
{
    if
    :: what > 0 -> what--
    :: else
    fi
}

inline grow(what)
{
    if
    :: what < LEASE -> what++
    :: else
    fi
}

inline tick()
{
    for (i : 0 .. NODES - 1) {
        pass(quarantine[i]);
        pass(left[i]);
        if
        :: left[i] == 0 -> holder[i] = NOBODY
        :: else
        fi
    }
    for (i : 0 .. CLIENTS - 1) { grow(age[i]); grow(renewing[i]) }
}

inline forget(n)
{
    free(n);
    counter[n] = 0;
#ifndef NO_QUARANTINE
    quarantine[n] = LEASE
#endif
}

#define MAY_END(n) (left[n] <= DRIFT) /* the node's clock is fast */
#else
#define MAY_END(n) true
#endif

#ifndef LASTING
/* What may happen to a node at any time. */
proctype fate(byte n)
{
    do
    :: atomic { holder[n] != NOBODY && MAY_END(n) -> free(n); tidy() }
#ifdef TIMED
    :: atomic { losses > 0 -> losses--; forget(n); tidy() }
    :: atomic { n == 0 -> tick(); tidy() }
#endif
    od
}
#endif

/* ---- A client ---- */

#if NODES == 3
#define SUM(OF, c) (OF(c, 0) + OF(c, 1) + OF(c, 2))
#else
#define SUM(OF, c) (OF(c, 0) + OF(c, 1) + OF(c, 2) + OF(c, 3) + OF(c, 4))
#endif

inline ask(c, n, what)
{
    asked[AT(c, n)] = what;
    heard[AT(c, n)] = NONE
}

inline ask_all(c, what)
{
    for (i : 0 .. NODES - 1) { ask(c, i, what) }
}

inline begin(c)
{
    stage[c] = ASKING;
    for (i : 0 .. CLIENTS - 1) { younger[PAIR(i, c)] = HOLDS(i) }
#ifdef TIMED
    age[c] = 0;
#endif
#ifdef CLOCK
    floor[c] = top + 1;
#else
    if
    :: floor[c] = 0
    :: floor[c] = HIGH
    fi;
#endif
    ask_all(c, ACQUIRE)
}

#define IS_HEARD(c, n) (heard[AT(c, n)] != NONE)
#define HEARD(c)       SUM(IS_HEARD, c)

/* Counts some of the grants, at least a quorum. */
inline count_grants(c)
{
    count = 0;
    for (i : 0 .. NODES - 1) {
        if
        :: heard[AT(c, i)] != NONE ->
            counted[AT(c, i)] = true;
            count++;
            lift(token[c], heard[AT(c, i)])
        :: true
        fi
    }
    if
    :: count < ENOUGH -> /* not now */
        token[c] = NONE;
        for (i : 0 .. NODES - 1) { counted[AT(c, i)] = false }
    :: else
    fi
}

/* Raises counted nodes that are below the largest token. */
inline raise_all(c)
{
#ifndef NO_RAISE
    for (i : 0 .. NODES - 1) {
        if
        :: counted[AT(c, i)] && heard[AT(c, i)] < token[c] -> ask(c, i, RAISE)
        :: else
        fi
    }
#else
    skip
#endif
}

#if defined(NO_RAISE)
#define AGREES(c, n) (counted[AT(c, n)])
#elif defined(AT_LEAST)
#define AGREES(c, n) (counted[AT(c, n)] && heard[AT(c, n)] >= token[c])
#elif defined(LATE_COUNTED)
#define AGREES(c, n) (counted[AT(c, n)] && heard[AT(c, n)] == token[c] || \
                      !counted[AT(c, n)] && heard[AT(c, n)] != NONE)
#else
#define AGREES(c, n) (counted[AT(c, n)] && heard[AT(c, n)] == token[c])
#endif

#define AGREEING(c) SUM(AGREES, c)

inline check_exclusion(c)
{
#if defined(TIMED) || defined(LASTING)
    for (i : 0 .. CLIENTS - 1) { assert(i == c || !HOLDS(i) || !IN_TIME(i)) /* exclusion */ }
#else
    skip
#endif
}

inline become_holder(c)
{
#ifdef FROM_REPLY
    age[c] = 0;
#endif
    check_exclusion(c);
    for (i : 0 .. CLIENTS - 1) {
        if
        :: i != c && HOLDS(i) ->
#ifdef RESOURCE
            skip /* the resource must show it */
#else
            assert(!younger[PAIR(i, c)] || token[c] > token[i]); /* order */
            assert(token[c] != token[i]);                        /* distinct */
#if defined(TIMED) || defined(RISING)
            assert(token[c] > token[i]); /* rising */
#endif
#endif
        :: else
        fi;
        younger[PAIR(c, i)] = false
    }
    stage[c] = HOLDING;
    for (i : 0 .. NODES - 1) {
        counted[AT(c, i)] = false;
        if
        :: heard[AT(c, i)] > token[c] -> give_back(c, i)
        :: else
        fi;
#ifndef UNASKED
        heard[AT(c, i)] = NONE;
#endif
#if !defined(TIMED) && !defined(LASTING) && RENEWALS == 0
        if
        :: holder[i] == c -> leave(c, i)
        :: else
        fi;
        ask(c, i, NONE)
#endif
    }
}

#ifdef RESOURCE
/* A holder writes, whether its lease has ended or not: it may have been paused until now. */
inline write(c)
{
    if
    :: token[c] >= seen ->
        assert(!overtaken[c] && (token[c] > seen || writer == c)); /* fencing */
        seen = token[c];
        writer = c;
        for (i : 0 .. CLIENTS - 1) {
            if
            :: younger[PAIR(i, c)] -> overtaken[i] = true
            :: else
            fi
        }
    :: else
    fi
}
#endif

inline begin_renewal(c)
{
    stage[c] = RENEWING;
    for (i : 0 .. CLIENTS - 1) { outdated[c] = outdated[c] || HOLDS(i) && token[i] > token[c] }
#ifdef TIMED
    renewing[c] = 0;
#endif
    ask_all(c, RENEW)
}

inline retake(c)
{
    if
    :: ask(c, 0, RETAKE)
    :: ask(c, 1, RETAKE)
    :: ask(c, 2, RETAKE)
#if NODES == 5
    :: ask(c, 3, RETAKE)
    :: ask(c, 4, RETAKE)
#endif
    fi
}

inline renewed(c)
{
    assert(!outdated[c]); /* final */
    stage[c] = HOLDING;
#ifdef TIMED
    age[c] = renewing[c];
    renewing[c] = LEASE;
#endif
    check_exclusion(c)
}

#if defined(UNASKED)
#define GETS_RELEASE(c, n) (heard[AT(c, n)] != NONE)
#else
#define GETS_RELEASE(c, n) true
#endif

/* From now on, everything of this attempt at the nodes is late. */
inline leave_nodes(c)
{
    for (i : 0 .. NODES - 1) {
#ifdef LASTING
        if
        :: asked[AT(c, i)] == ACQUIRE -> late[AT(c, i)] = ACQUIRE
        :: asked[AT(c, i)] != ACQUIRE && GETS_RELEASE(c, i) -> late[AT(c, i)] = RELEASE
        :: else
        fi;
#endif
        if
        :: holder[i] == c -> leave(c, i)
        :: else
        fi;
        ask(c, i, NONE);
        counted[AT(c, i)] = false
    }
}

inline end(c)
{
    leave_nodes(c);
    stage[c] = IDLE;
    token[c] = NONE;
    floor[c] = 0;
    outdated[c] = false;
    renewals = RENEWALS;
    retakes = RETAKES;
    for (i : 0 .. CLIENTS - 1) { younger[PAIR(c, i)] = false; younger[PAIR(i, c)] = false }
#ifdef RESOURCE
    overtaken[c] = false;
#endif
#ifdef TIMED
    age[c] = LEASE;
    renewing[c] = LEASE
#endif
}

proctype client(byte me)
{
    byte renewals = RENEWALS, retakes = RETAKES;

    do
    :: atomic { attempts > 0 && begun >= me -> attempts--; lift(begun, me + 1); begin(me); tidy() }
        do
        :: atomic {
            token[me] == NONE && HEARD(me) >= ENOUGH ->
            count_grants(me);
            raise_all(me);
            tidy()
        }
        :: atomic {
            token[me] != NONE && AGREEING(me) >= ENOUGH && IS_LEFT(me) ->
            become_holder(me);
            tidy();
            break
        }
        :: goto over
        od;
        do
#ifdef RESOURCE
        :: atomic { stage[me] == HOLDING -> write(me) }
#endif
        :: atomic {
            renewals > 0 && stage[me] == HOLDING && IN_TIME(me) ->
            renewals--;
            begin_renewal(me);
            tidy()
        }
        :: atomic { stage[me] == RENEWING && HEARD(me) >= ENOUGH && IN_TIME(me) -> renewed(me) }
        :: atomic {
            retakes > 0 && stage[me] == HOLDING && IN_TIME(me) ->
            retakes--;
            retake(me);
            tidy()
        }
        :: break
        od;
    over:
        atomic { end(me); tidy() }
    od
}

init
{
    atomic {
        for (i : 0 .. CLIENTS - 1) {
            run client(i);
            for (j : 0 .. NODES - 1) { run link(i, j) }
        }
#ifndef LASTING
        for (j : 0 .. NODES - 1) { run fate(j) }
#endif
    }

#ifdef LASTING
    /* The judge: nothing can happen any more. */
    atomic {
        timeout ->
        for (i : 0 .. CLIENTS - 1) { assert(stage[i] == IDLE && attempts == 0) /* ended */ }
        for (i : 0 .. NODES - 1) { assert(holder[i] == NOBODY) /* clean */ }
    }
#endif
}
