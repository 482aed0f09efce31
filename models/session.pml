/* Until when ZooKeeper keeps a session: a model of the deadline's rule in src/store/zookeeper.
 *
 * Only the leader ends sessions, a timeout after it last heard of them. A client talks to a
 * follower, which answers pings on its own. It notes that the session was active, and reports it
 * when the leader pings it, twice in each tick. A request that it forwards touches nothing there. A
 * follower that is cut off keeps answering pings, and so does one whose leader was deposed.
 *
 * The rule: an activity that was answered counts, from when it was sent, when a write that was sent
 * a tick or more after that answer is also answered. Reports and writes reach the leader in order,
 * and a write is answered only if a majority has it.
 *
 * Promised and checked: when a leader ends the session (its locks go to others), the client's
 * deadline has passed.
 *
 * Design notes:
 *
 *   - A unit of time is half a tick. The leader keeps its rhythm: a follower that is not cut off is
 *     pinged once in each unit, at any point of it.
 *   - Messages to the leader are delayed at will, and are lost when the follower is cut off.
 *   - Another leader may be elected once, by the others; it starts with a whole timeout for the
 *     session. The old one learns of it later, or never: its follower stays with it.
 *   - The client does one activity and one write at a time. Resuming a session, which touches it at
 *     the leader at once, is left out.
 *
 * Each of these removes one safeguard, and the model must then fail:
 *   COUNT_PINGS   an activity counts when it is answered
 *   COUNT_WRITES  a write counts by itself when it is answered
 *   NO_TICK       the write is sent right after the activity's answer
 *   SYNC          instead of the write, the leader is asked for something that needs no majority
 *   FROM_REPLY    an activity counts from its answer */

#define TICK     2
#define TIMEOUT  4
#ifdef LARGE
#define END      12
#define ROOM     4
#else
#define END      9
#define ROOM     3
#endif

mtype = { report, write };

byte now = 0;
bool pinged;                  /* in this unit of time */
bool cut;                     /* the follower from its leader */
bool deposed;                 /* the leader: another was elected */
bool noted;                   /* the follower's note, not reported yet */
chan to_leader = [ROOM] of { mtype };
byte ends = TIMEOUT;          /* the session, as the old leader counts it */
byte new_ends;                /* and as the new one does */
bool answered;                /* the write's answer is with the client */
bool ended;

byte deadline = TIMEOUT;      /* the client's: the session was made at 0 */

#define RUNS (!ended && now < END)

active proctype clock()
{
    do
    :: atomic { RUNS && (pinged || cut) -> now++; pinged = false }
    :: !RUNS -> break
    od
}

active proctype follower()
{
    do
    :: atomic { RUNS && !cut && !pinged && nfull(to_leader) ->
            pinged = true;
            if
            :: noted -> to_leader!report; noted = false
            :: else
            fi
        }
    :: atomic { RUNS && !cut ->
            cut = true;
            do
            :: nempty(to_leader) -> to_leader?_
            :: empty(to_leader) -> break
            od
        }
    :: !RUNS -> break
    od
}

active proctype leaders()
{
    do
    :: atomic { RUNS && to_leader?[report] -> to_leader?report; ends = now + TIMEOUT }
#ifdef SYNC
    :: atomic { RUNS && to_leader?[write] -> to_leader?write; answered = true }
#else
    :: atomic { RUNS && !deposed && to_leader?[write] -> to_leader?write; answered = true }
#endif
    :: atomic { RUNS && !deposed -> deposed = true; new_ends = now + TIMEOUT }
    :: atomic { /* ended, by the leader that has a majority */
            !ended && ((!deposed && now >= ends) || (deposed && now >= new_ends)) ->
            ended = true;
            assert(now >= deadline)
        }
    :: !RUNS -> break
    od
}

inline count(from)
{
    if
    :: from + TIMEOUT > deadline -> deadline = from + TIMEOUT
    :: else
    fi
}

active proctype client()
{
    byte sent, acknowledged, wrote;

    do
    :: RUNS ->
        sent = now;
        noted = true; /* at the follower */
        acknowledged = now;
#ifdef FROM_REPLY
        sent = acknowledged;
#endif
#ifdef COUNT_PINGS
        atomic { !ended -> count(sent) };
#endif
        if
#ifdef NO_TICK
        :: true
#else
        :: now >= acknowledged + TICK
#endif
        :: !RUNS -> break
        fi;
        atomic { answered = false; wrote = now };
        if
        :: atomic { !cut && nfull(to_leader) -> noted = true; to_leader!write }
        :: cut || !RUNS -> break
        fi;
        if
        :: atomic {
                answered && !ended ->
#ifdef COUNT_WRITES
                count(wrote);
#else
                count(sent);
#endif
                sent = 0;
                acknowledged = 0;
                wrote = 0
            }
        :: cut || deposed || !RUNS -> break /* it waits in vain */
        fi
    :: !RUNS -> break
    od
}
