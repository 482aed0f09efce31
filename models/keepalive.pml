/* When a keep-alive of etcd counts: a model of the deadline's rule in src/store/etcd.
 *
 * Only the leader counts a lease down, in its memory. A keep-alive is answered by the member that
 * the asked one takes for the leader, without a majority. A leader that is cut off, or whose disk
 * stalls, keeps answering, while the majority elects another. The new leader gives every lease its
 * full time when it is elected; from then on it hears of no renewal that the old one answers.
 *
 * The rule: a keep-alive counts, from its send, if a linearizable read that was also asked
 * for after that names a term that is not above the keep-alive's. A member puts the
 * term into its answer to a keep-alive before the lease is renewed.
 *
 * Promised and checked: when the leader ends the lease (the lock is handed on), the client's
 * deadline has passed.
 *
 * Design notes:
 *
 *   - Three members, any two of which are a majority. An election takes two of them to the next
 *     term at once; the third hears of it later, or never.
 *   - A linearizable read is answered while the asked member is in the newest term: its leader
 *     asked a majority.
 *   - Time is a counter that moves at any point. One clock: drift is the engine's business.
 *
 * Each of these removes one safeguard, and the model must then fail:
 *   NO_READ      a keep-alive that was answered counts
 *   EARLY_READ   a read that was asked for before the keep-alive was sent is enough
 *   ANY_TERM     the terms are not compared
 *   LATE_TERM    the member puts the term into its answer after the lease was renewed
 *   FROM_REPLY   the deadline is counted from the answer */

#define MEMBERS  3
#define TERMS    3
#ifdef LARGE
#define TTL      2
#define END      4
#else
#define TTL      1
#define END      3
#endif

byte now = 0;
byte newest = 0;            /* the term of the last election */
byte term[MEMBERS];         /* what each member knows; the members start in term 0 */
byte leader[TERMS];
byte ends[MEMBERS] = TTL;   /* the lease, as each counts it if it leads */
bool handed_on;             /* the lease was ended, by a majority: another client may hold it */

byte deadline = TTL;        /* the client's: the lease was granted at 0 */

/* The newest leader ends the lease; only it has a majority for that. */
active proctype lessor()
{
    atomic {
        now >= ends[leader[newest]] -> handed_on = true;
        assert(now >= deadline)
    }
}

active proctype clock()
{
    do
    :: now < END && !handed_on -> now++
    :: now == END || handed_on -> break
    od
}

active proctype elections()
{
    byte elected, other;

    do
    :: newest < TERMS - 1 && !handed_on ->
        atomic {
            select(elected : 0 .. MEMBERS - 1);
            other = (elected + 1) % MEMBERS;
            if
            :: true
            :: other = (elected + 2) % MEMBERS
            fi;
            newest++;
            leader[newest] = elected;
            term[elected] = newest;
            term[other] = newest;
            ends[elected] = now + TTL; /* its full time again */
            elected = 0;
            other = 0
        }
    :: atomic { /* a member hears of the newest term */
            newest > 0 && !handed_on;
            if
            :: term[0] < newest -> term[0] = newest
            :: term[1] < newest -> term[1] = newest
            :: term[2] < newest -> term[2] = newest
            fi
        }
    :: newest == TERMS - 1 || handed_on -> break
    od
}

/* The store asks one member. The result is the same if each request goes to any of them. */
inline ask()
{
#ifdef ANY_MEMBER
    select(member : 0 .. MEMBERS - 1)
#else
    skip
#endif
}

/* It waits while the member is behind. */
inline read_linearizable()
{
    atomic {
        ask();
        term[member] == newest || handed_on;
        read_in = term[member];
        was_read = true
    }
}

/* By the leader of the term that the member knows of by now. */
inline renew()
{
    ends[leader[term[member]]] = now + TTL
}

active proctype client()
{
    byte member, kept_in, read_in, sent, step;
    bool was_read;

    select(member : 0 .. 1); /* the first leader, or another */
    do
    :: !handed_on && now < END ->
#ifdef EARLY_READ
        read_linearizable();
#endif
#ifdef NO_READ
        was_read = true;
#endif
        sent = now;
        do
#ifdef LATE_TERM
        :: step == 0 -> atomic { ask(); renew(); step = 1 }
        :: step == 1 -> atomic { kept_in = term[member]; step = 2 }
#else
        :: step == 0 -> atomic { ask(); kept_in = term[member]; step = 1 }
        :: step == 1 -> atomic { renew(); step = 2 }
#endif
        :: !was_read -> read_linearizable()
        :: step == 2 && was_read -> break
        od;
        atomic {
#ifdef FROM_REPLY
            sent = now;
#endif
#ifdef ANY_TERM
            read_in = 0;
#endif
            if
            :: !handed_on && read_in <= kept_in && sent + TTL > deadline -> deadline = sent + TTL
            :: else
            fi;
            kept_in = 0;
            read_in = 0;
            sent = 0;
            step = 0;
            was_read = false
        }
    :: handed_on || now >= END -> break
    od
}
