/* Who is inside a store that blocks: a model of go_inside(), await() and the standby thread in
 * src/client/drive.c.
 *
 * Such a store is called without the mutex, by one thread at a time, and may never return.
 * Threads put operations out, and either block for them or leave them to the standby thread.
 * The guard completes a call whose time is over; it never goes inside.
 *
 * Promised and checked: there is never more than one thread inside, and never more than one
 * driver. At the end of a run, no caller whose call is done still waits, unless it is inside a
 * store that stalled, and no deadline has passed unseen. If the store did not stall, every
 * operation that was put out has also reached it, and no caller waits for something that has
 * happened.
 *
 * Design notes, in addition to those of drive.pml, which models the rest of driving:
 *
 *   - The mutex is `atomic`. It is released where a thread blocks: asleep, in epoll_wait, and
 *     in the store.
 *   - An operation is answered when it is submitted, or later by a dispatch (it had to queue).
 *
 * Each of these removes one safeguard, and the model must then fail:
 *   NO_HAND_ON       a thread that leaves does not signal the first waiter
 *   NO_WAKE          a call that does not block does not wake the standby thread
 *   LEFT_BEHIND      a thread that leaves operations behind does not wake the standby thread
 *   SLEEPS_FIRST     a waiter checks for a driver before it looks at what is out
 *   WAITS_FOR_STORE  a thread that finds another inside waits until it leaves
 *   DISPATCH_ANYWAY  the driver dispatches while another thread is inside
 *   GUARD_INSIDE     the guard goes inside */

#ifdef LARGE
#define CALLERS 3
#else
#define CALLERS 2
#endif
#define POSTER  CALLERS /* its operation is one more */
#define STANDBY  (CALLERS + 1)
#define NOBODY  255

/* The client, under its mutex. */
byte inside = NOBODY, driver = NOBODY;
chan waiting = [CALLERS] of { byte };
bool asleep[CALLERS];
bool begun[CALLERS], done[CALLERS + 1], returned[CALLERS];
bool out[CALLERS + 1];      /* put out, and not submitted yet */
bool queued[CALLERS + 1];   /* answered by a dispatch */
bool standby_sleeps;
bool due = true;            /* a deadline that nobody has seen yet */

/* The store and the kernel. */
bool in_store;              /* a thread is in it */
bool stalled;               /* it never returns */
bool ready;                 /* the world has something to dispatch */
bool bell;
bool polling, standby_polls; /* in epoll_wait; in poll */

#define OUT_1 (out[0] || out[1] || out[2])
#ifdef LARGE
#define OUT   (OUT_1 || out[3])
#else
#define OUT   OUT_1
#endif
#define READY (ready || bell)

hidden byte n;

inline call_store() { in_store = true; !in_store }

inline signal(who) { asleep[who] = false }

inline wake_standby()
{
    standby_sleeps = false;
    if
    :: standby_polls -> bell = true
    :: else
    fi
}

inline complete(who)
{
    done[who] = true;
    if
    :: who < CALLERS && driver == who && polling -> bell = true
    :: who < CALLERS && driver != who -> signal(who)
    :: else
    fi
}

inline hand_on()
{
    if
    :: driver == NOBODY && len(waiting) > 0 -> waiting ? <n>; signal(n)
    :: driver == NOBODY && len(waiting) == 0 -> standby_sleeps = false
    :: else
    fi
}

/* Completes queued operations whose turn it is. */
inline dispatch()
{
    call_store();
    ready = false;
    bell = false;
    for (n : 0 .. CALLERS) {
        if
        :: queued[n] && !done[n] -> queued[n] = false; complete(n)
        :: else
        fi
    }
}

/* Submits all that is out; `batch` is the thread's own. */
inline submit_out()
{
    for (n : 0 .. CALLERS) { batch[n] = out[n]; out[n] = false }
    call_store();
    for (n : 0 .. CALLERS) {
        if
        :: batch[n] && !done[n] -> complete(n)
        :: batch[n] && !done[n] -> queued[n] = true
        :: else
        fi;
        batch[n] = false
    }
}

inline go_inside(me, dispatches)
{
    assert(inside == NOBODY);
    inside = me;
    if
    :: dispatches -> dispatch()
    :: else
    fi;
    do
    :: OUT -> submit_out(); if :: skip :: break /* it is somebody else's turn */ fi
    :: !OUT -> break
    od;
    inside = NOBODY;
#ifndef LEFT_BEHIND
    if
    :: OUT -> wake_standby()
    :: else
    fi;
#endif
#ifndef NO_HAND_ON
    hand_on()
#endif
}

inline pump(me)
{
    if
    :: inside == NOBODY -> go_inside(me, false)
    :: else
    fi
}

inline drive(me)
{
    assert(driver == NOBODY);
    driver = me;
    polling = true;
    !polling;
#ifdef DISPATCH_ANYWAY
    go_inside(me, true);
#else
    if
    :: inside == NOBODY -> go_inside(me, true)
    :: else /* it stays ready */
    fi;
#endif
    driver = NOBODY
}

inline await(me)
{
    waiting ! me;
    do
    :: done[me] -> break
#ifdef SLEEPS_FIRST
    :: !done[me] && inside == NOBODY && driver == NOBODY && OUT -> pump(me)
    :: !done[me] && (inside != NOBODY || driver != NOBODY) ->
#else
    :: !done[me] && inside == NOBODY && OUT -> pump(me)
    :: !done[me] && (inside != NOBODY || (driver != NOBODY && !OUT)) ->
#endif
#ifdef WAITS_FOR_STORE
        if
        :: inside != NOBODY -> inside == NOBODY
        :: else -> asleep[me] = true; !asleep[me]
        fi
#else
        asleep[me] = true;
        !asleep[me]
#endif
    :: !done[me] && driver == NOBODY && inside == NOBODY && !OUT -> drive(me)
    od;
    waiting ?? eval(me);
    hand_on()
}

proctype caller(byte me)
{
    bool batch[CALLERS + 1];

    atomic {
        begun[me] = true;
        out[me] = true;
        if
        :: pump(me)
        :: skip /* await does */
        fi;
        if
        :: !done[me] -> await(me)
        :: else
        fi;
        returned[me] = true
    }
}

/* A call that does not block. */
proctype poster()
{
    atomic {
        out[POSTER] = true;
#ifndef NO_WAKE
        if
        :: inside == NOBODY -> wake_standby()
        :: else
        fi
#endif
    }
}

proctype standby()
{
    bool batch[CALLERS + 1];

    do
    :: atomic {
        if
        :: inside == NOBODY && OUT -> go_inside(STANDBY, false)
        :: inside != NOBODY || (driver != NOBODY && !OUT) -> standby_sleeps = true; !standby_sleeps
        :: inside == NOBODY && driver == NOBODY && !OUT ->
            standby_polls = true;
            !standby_polls;
            if
            :: driver == NOBODY && inside == NOBODY ->
                driver = STANDBY;
                go_inside(STANDBY, true);
                driver = NOBODY;
                hand_on()
            :: else
            fi
        fi
    }
    od
}

/* Sees the deadline. The time of caller 0's wait is then over, or not. */
proctype guard()
{
#ifdef GUARD_INSIDE
    atomic { inside == NOBODY -> due = false }
#else
    atomic { due = false }
#endif
    if
    :: atomic { begun[0] && !done[0] -> complete(0) }
    :: skip
    fi
}

proctype store()
{
    do
    :: atomic { in_store -> in_store = false }
    :: atomic { in_store -> stalled = true; break }
    od
}

proctype kernel()
{
    do
    :: atomic { polling && READY -> polling = false }
    :: atomic { standby_polls && READY -> standby_polls = false }
    od
}

/* Reports a few times that an operation's turn has come, until it falls silent. */
proctype world()
{
    byte hints = 2;

    do
    :: atomic { hints > 0 && !ready -> hints--; ready = true }
    :: break
    od
}

init
{
    atomic {
        for (n : 0 .. CALLERS - 1) { run caller(n) }
        run poster();
        run standby();
        run guard();
        run store();
        run kernel();
        run world()
    }

    /* The judge: nothing can happen any more. */
    atomic {
        timeout ->
        assert(!due);
        for (n : 0 .. CALLERS - 1) {
            assert(!done[n] || returned[n] || (stalled && inside == n))
        }
        assert(stalled || inside == NOBODY);
        assert(stalled || !OUT);
        assert(stalled || len(waiting) == 0 || !READY)
    }
}
