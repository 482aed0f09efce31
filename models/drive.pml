/* Who drives: a model of await() and of the standby thread in src/client/drive.c.
 *
 * Threads that wait for a reply share one epoll set. One of them at a time, the driver, sits
 * in epoll_wait without the mutex and dispatches for everybody; the others sleep, each on its
 * own word. The standby thread drives when a renewal is due and nobody else does.
 *
 * Promised and checked: there is never more than one driver; a call is completed once; await
 * returns only when its call is done; every run ends. At the end (the judge, at the bottom),
 * no caller waits for something that has happened, and no renewal is due.
 *
 * Design notes.
 *
 *   - The client's mutex is `atomic`: what a thread does under the mutex is one step for all
 *     others that need it. Promela releases it exactly where the thread blocks: in sleep, in
 *     epoll_wait and where it yields. Others may run before it continues.
 *   - A thread that was signalled may run at any later time. So it does not matter that the
 *     driver sets its word under the mutex, and wakes it from the kernel's sleep after that.
 *   - The world may fall silent at any point, so "this reply comes, and then nothing ever
 *     does" is among the runs: no later event hides a lost wake-up. That is also why renewals
 *     are counted: in reality the next one would turn a hang into a delay. For the same reason
 *     there is only one spurious wake-up, which both conditions and epoll_wait may have.
 *   - Time is left out: the standby thread's look every 10 ms is a guard, which sees sooner or
 *     later what is due.
 *
 * Each of these removes one safeguard, and the model must then fail:
 *   NO_HAND_ON     a leaving caller does not signal the first waiter
 *   NO_RECHECK     a woken waiter that is not done drives, without checking whether somebody does
 *   NO_BELL        a thread that completes the driver's call from outside does not ring the bell
 *   STANDBY_KEEPS  the standby thread steps aside without signalling the first waiter
 *   BELL_STICKS    the driver does not read the bell, and spins
 *   NO_FLUSH       the driver does not send what others left to it */

#define CALLERS 3
#define STANDBY  CALLERS
#define NOBODY  255

#ifdef LARGE
#define CALLS 2 /* of each caller, one after the other */
#else
#define CALLS 1
#endif

/* The client, under its mutex. */
byte driver = NOBODY;
chan waiting = [CALLERS] of { byte };
bool asleep[CALLERS];      /* on the caller's own word */
bool flushes;              /* the driver will: a thread that submits meanwhile leaves that to it */
byte left[CALLERS];        /* the call that was left to the driver; 0: none */
bool done[CALLERS] = true;
byte call[CALLERS];        /* which call it is: a reply to an earlier one is stale */
byte queued[CALLERS];      /* the call that is not yet written; 0: none */

/* The kernel and the store. What is ready stays ready until it is read: epoll is
 * level-triggered. */
byte sent[CALLERS];        /* the call that is not yet answered; 0: none */
chan replies = [CALLERS * CALLS] of { byte, byte }; /* caller, call */
bool writable;             /* the socket has room again */
bool due;                  /* the timer: a renewal */
bool bell;                 /* the eventfd */
bool polling;              /* a thread is in epoll_wait */
bool yielding;             /* the driver has released the mutex for a moment */

#define READY (len(replies) > 0 || writable || due || bell)

/* Scratch, used within one step only: not part of the state. */
hidden byte n, generation, stage;
hidden byte woke; /* whether others were woken, in this dispatch */

inline signal(who) { asleep[who] = false } /* has no effect if nobody sleeps there */
inline sleep(who)  { asleep[who] = true; !asleep[who] }

inline epoll_wait() { polling = true; !polling } /* until the kernel process ends it */
inline yield() { yielding = true; !yielding }

inline complete(who) { assert(done[who] == false); done[who] = true; signal(who) }

/* The submitter writes itself, unless the driver is about to. What a full socket refuses is left to
 * the drivers. */
inline submit(me)
{
    call[me]++;
    done[me] = false;
    if
    :: flushes -> left[me] = call[me]
    :: !flushes -> sent[me] = call[me]
    :: !flushes -> queued[me] = call[me]
    fi
}

inline flush()
{
    for (n : 0 .. CALLERS - 1) {
        if
        :: queued[n] -> sent[n] = queued[n]; queued[n] = 0
#ifndef NO_FLUSH
        :: left[n] -> sent[n] = left[n]; left[n] = 0
#endif
        :: else
        fi
    }
}

/* Reads some of what is ready, at least one thing: epoll_wait may have returned before the
 * rest came. The kinds are read in a fixed order (stage), since any other order leads to the
 * same states. */
inline dispatch()
{
    stage = 0;
    do
    :: stage <= 1 && len(replies) > 0 ->
        stage = 1;
        replies ? n, generation;
        if
        :: call[n] == generation && !done[n] -> complete(n); woke = woke || n != driver
        :: else /* stale */
        fi
    :: stage <= 1 && writable -> stage = 2; writable = false /* the next round flushes */
    :: stage <= 2 && due -> stage = 3; due = false
#ifdef BELL_STICKS
    :: stage <= 3 && bell -> break
#else
    :: stage <= 3 && bell -> stage = 4; bell = false
#endif
    :: stage > 0 -> break
    od
}

inline drive(me)
{
    assert(driver == NOBODY);
    driver = me;
    flush();
    epoll_wait();
    woke = false;
    dispatch();
    if
    :: woke -> flushes = true; yield(); flushes = false; flush()
    :: else
    fi;
    driver = NOBODY
}

inline hand_on()
{
    if
    :: driver == NOBODY && len(waiting) > 0 -> waiting ? <n>; signal(n)
    :: else
    fi
}

inline await(me)
{
    waiting ! me;
    do
    :: done[me] -> break
    :: !done[me] && driver != NOBODY ->
        sleep(me);
#ifdef NO_RECHECK
        if
        :: !done[me] -> drive(me)
        :: else
        fi
#endif
    :: !done[me] && driver == NOBODY -> drive(me)
    od;
    waiting ?? eval(me);
#ifndef NO_HAND_ON
    hand_on();
#endif
    assert(done[me])
}

proctype caller(byte me)
{
    do
    :: atomic { call[me] < CALLS -> submit(me); await(me) }
    od
}

proctype standby()
{
    do
    :: atomic {
        driver == NOBODY && due ->
        drive(STANDBY);
#ifndef STANDBY_KEEPS
        hand_on()
#endif
    }
    od
}

/* Another thread completes a call: in the memory store, a release completes the next acquire. */
inline complete_from_outside(who)
{
    complete(who);
#ifndef NO_BELL
    if
    :: driver == who -> bell = true
    :: else
    fi
#endif
}

proctype releaser()
{
    if
    :: atomic { !done[0] -> complete_from_outside(0) }
    :: atomic { !done[1] -> complete_from_outside(1) }
    :: atomic { !done[2] -> complete_from_outside(2) }
    fi
}

proctype kernel()
{
    do
    :: atomic { polling && READY -> polling = false }
    :: atomic { yielding -> yielding = false }
    od
}

inline answer(who) { atomic { sent[who] -> replies ! who, sent[who]; sent[who] = 0 } }

/* Events from outside, in any order, until the world falls silent. */
proctype world()
{
    byte renewals = 1, noise = 1;

    do
    :: answer(0)
    :: answer(1)
    :: answer(2)
    :: atomic { !writable && (queued[0] || queued[1] || queued[2]) -> writable = true }
    :: atomic { renewals > 0 && !due -> renewals--; due = true }
    :: atomic { noise > 0 -> noise--; if :: bell = true :: signal(0) :: signal(1) :: signal(2) fi }
    :: break
    od
}

init
{
    atomic {
        for (n : 0 .. CALLERS - 1) { run caller(n) }
        run standby();
        run releaser();
        run kernel();
        run world()
    }

    /* The judge: nothing can happen any more. */
    atomic {
        timeout ->
        assert(!due);
        assert(len(waiting) == 0 || !READY);
        assert(!left[0] && !left[1] && !left[2]);
        do
        :: waiting ? n -> assert(!done[n])
        :: empty(waiting) -> break
        od
    }
}
