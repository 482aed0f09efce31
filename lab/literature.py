"""What the literature says: for each protocol and scenario the verdict to expect, and why, in a sentence or two.

The matrix compares what it sees with this, the report shows both, and docs/lab.md is made from it. A cell that does not
apply has no entry: the scenario itself says why it does not. An entry is about every place where the protocol runs; if
its key also names a place, it is only about that place: ("failover", "replicated").

The prose is for a reader who is new to the subject: what happens, in the active voice and in the order of time. It says
what goes wrong, and not only that something does; the verdict has already said that.
"""
from typing import NamedTuple


class Expected(NamedTuple):
    verdict: str
    why: str


def holds(why):
    return Expected("holds", why)


def fenced(why):
    return Expected("fenced", why)


def breaks(why):
    return Expected("breaks", why)


def stalls(why):
    return Expected("stalls", why)


# What happens to every lock that is a key of one Redis server.
RESTARTED = breaks("The server comes back without the key, and B creates it again. Nobody tells A, who goes on writing.")
EVICTED = breaks("To Redis the lock is a key like any other. It deletes the key to make room, B creates it again, and "
                 "nobody tells A, who goes on writing.")
EXPIRED_EARLY = breaks("Redis ends leases by its wall clock. When the clock jumps ahead, A's key is gone at once, and B gets "
                       "in while A counts on the rest of its lease.")
SERVERS_TIME = holds("The lease is measured by the server's clock alone. What a client's clock shows does not matter.")
TOO_LATE = breaks("A trusts the grant, however late it arrives. It never checks how long that took, and enters beside B.")
LATE_TO_LOSE = holds("A request that comes too late finds the key of the new holder and changes nothing.")
FREED_BY_LEASE = holds("Nobody deletes the key, but Redis does so when the lease is over.")
ONE_COMMAND = holds("Lock and lease are set by one command. There is no moment between them.")
LEASE_TOO_SHORT = breaks("The key expires while A is still at work, and B creates it again. A has no means to notice, and both "
                         "write.")
PAUSED = breaks("Redis cannot know that A is only paused. It ends the lease, B gets in, and A goes on in the middle of its work "
                "as if no time had passed.")
DEL_TOO_LATE = breaks("A's DEL is under way while the lease ends and B locks. When it arrives it deletes B's key, and C gets in.")
DEL_TWICE = breaks("A has no answer, so it sends DEL again, as client libraries do. By now the key is B's; DEL deletes it, and C "
                   "gets in.")
OWN_LOCK = holds("A's second attempt finds the key of its own first one and takes it for another's. A waits for itself until the "
                 "lease is over; it costs a lease, but nobody is harmed.")
NO_QUEUE = holds("Waiters know nothing of each other, and nobody is kept waiting for one that is dead.")
NOT_ITS_CONNECTION = holds("The key does not belong to the connection that created it. A connects again to delete it.")
POLLING_LUCK = stalls("There is no queue. Whoever asks first after an unlock wins, and A, who asks at once, always does. B looks "
                      "only now and then, and finds the lock taken.")
POLLING_HERD = stalls("All waiters ask again and again, whether or not anything has changed. The more of them wait, the more "
                      "requests a hand-off costs.")

# ZooKeeper's sessions, and etcd's leases, which last as long as the client's heartbeats.
SESSION_ENDS = holds("A's heartbeats end with A. When they are overdue, ZooKeeper ends the session and deletes A's node.")
ALL_OF_THE_SESSION = holds("Whatever A had created belongs to its session, and goes with it, however far A had come.")
NEXT_IN_LINE = holds("B's node goes with B's session. C, who watches it, is the next in line then.")
NODE_OF_ITS_OWN = holds("Every client has a node of its own, and unlocks by deleting that one. It cannot touch another's.")
KEPT_ALIVE = holds("Heartbeats keep the session alive while A works, however long that takes.")
SESSION_OVER = breaks("While A is stopped, it sends no heartbeats. Its session ends and B gets the lock. A goes on before it has heard "
                      "of that, and nothing tells its write from B's.")
IN_ORDER = holds("The queue has the order in which clients asked. A has to go to its end each time.")
ONE_WATCHES_ONE = holds("Each client watches only the one before it. A hand-off wakes one client, however many wait.")
FOUND_AGAIN = holds("The node's name has an id in it, by which A finds its own node again after the lost reply.")
SILENT_DEATH = holds("The server hears no more heartbeats, ends the session and deletes the node of its own accord.")
RECONNECTED = holds("The session is not the connection. A connects again in time, and its node has never been gone.")
BLIND = breaks("While A is not connected, nobody can tell it that its session is over. It goes on working, and B has the "
               "lock.")
IN_DOUBT = holds("A stops as soon as its heartbeats are not answered, which is before the servers may end its session.")
ONE_SERVERS_WORD = breaks("A's server answers its heartbeats by itself, though it can no longer pass them on. The leader "
                          "hears nothing, ends the session and gives the lock to B. For seconds both have every sign "
                          "that they hold it.")

# The databases.
ROW_STAYS = stalls("The row outlives its holder, because nothing in the database says when the lock ends. Nobody can lock "
                   "until somebody changes the row by hand.")
ONE_STATEMENT = holds("One statement is the whole lock, and the database does all of it or nothing. There is no state in "
                      "between that a crash could leave behind.")
OWN_ROW = stalls("A's row is there, but A does not know that. When it tries again, it waits for itself, and so does "
                 "everybody else.")
POLLED = holds("Nobody waits in the database: whoever wants the lock asks again and again. A client that has stopped asking "
               "is not missed.")
EVERYBODY_ASKS = stalls("Nobody is woken: all hundred ask the database again every 50 ms. The more wait, the more requests "
                        "each hand-off costs.")
ANYBODYS_DELETE = breaks("The DELETE names the lock and not its owner. It removes A's row for anybody who sends it, and C "
                         "gets in beside A.")
SECOND_DELETE = breaks("A cannot know that its DELETE was done, and sends it again. By then the row is B's. The second DELETE "
                       "removes it, and C gets in beside B.")
NOT_THE_CONNECTIONS = holds("The lock is a row that was committed. It does not belong to the connection over which it was "
                            "written, so it stays when that one ends.")
ANY_CONNECTION = holds("The lock is a row that was committed. It does not matter which connection wrote it, so B finds "
                       "the row on any connection.")
LOST_WITH_ROW = fenced("A row lock ends with its connection, and the server gives it to B at once. A is notified at the same "
                       "moment, but may be in the middle of a write: B's token is larger, so the resource refuses it.")

CELLS = {
    "setnx": {
        "crash-holding": stalls("The key has no expiry, so it outlives its holder. Nobody can lock again until somebody "
                                "deletes it by hand."),
        "lost-connection": NOT_ITS_CONNECTION,
        "half-open": stalls("The key has no expiry, so it outlives its holder, whatever becomes of the connection."),
        "crash-between": holds("Locking takes a single command, so there is nothing in between."),
        "stranger": breaks("DEL does not ask who calls it. A client that never had the lock frees it, and the next one "
                           "enters beside the holder."),
        "lost-acquire": stalls("A's second attempt finds the key of its own first one and takes it for another's. The key has "
                               "no expiry, so A waits for itself for ever, and everybody else with it."),
        "lost-release": DEL_TWICE,
        "dead-waiter": NO_QUEUE,
        "greedy": POLLING_LUCK,
        "herd": POLLING_HERD,
        "empty-restart": RESTARTED,
        "eviction": EVICTED,
    },
    "setnx-expire": {
        "crash-holding": FREED_BY_LEASE,
        "lost-connection": NOT_ITS_CONNECTION,
        "half-open": FREED_BY_LEASE,
        "crash-between": stalls("A dies after SETNX and before EXPIRE. The key has no expiry, and nobody can lock again."),
        "stranger": breaks("DEL does not ask who calls it. B frees A's lock, and C enters beside A."),
        "long-work": LEASE_TOO_SHORT,
        "late-grant": TOO_LATE,
        "pause": PAUSED,
        "delayed-packet": DEL_TOO_LATE,
        "lost-acquire": stalls("SETNX has created the key, but A does not know. Its second SETNX fails, so A never comes to "
                               "EXPIRE, and waits for a lock of its own that never ends."),
        "lost-release": DEL_TWICE,
        "dead-waiter": NO_QUEUE,
        "greedy": POLLING_LUCK,
        "herd": POLLING_HERD,
        "empty-restart": RESTARTED,
        "eviction": EVICTED,
        "server-clock": EXPIRED_EARLY,
        "client-clocks": SERVERS_TIME,
        "overwritten-deadline": LATE_TO_LOSE,
    },
    "getset": {
        "crash-holding": holds("B reads the deadline, finds that it is over and takes the lock with GETSET."),
        "lost-connection": NOT_ITS_CONNECTION,
        "half-open": holds("B reads the deadline, finds that it is over and takes the lock with GETSET."),
        "crash-between": holds("SETNX stores the deadline with the lock. Whenever A dies, B finds a deadline that will be over."),
        "stranger": holds("A client looks at its own deadline before it calls DEL, and a stranger has none. The key "
                          "itself would not stop it: it does not say whose it is."),
        "long-work": breaks("B finds A's deadline over and takes the lock. A is still at work, and both write."),
        "late-grant": TOO_LATE,
        "pause": breaks("While A is paused, B finds A's deadline over and takes the lock. A goes on in the middle of its work as "
                        "if no time had passed."),
        "delayed-packet": breaks("A looks at its clock and sends DEL in time, but it arrives late. It deletes B's key, and C gets "
                                 "in."),
        "lost-acquire": holds("A's second attempt finds the deadline of its own first one. A waits until that is over; it "
                              "costs a lease, but nobody is harmed."),
        "lost-release": DEL_TWICE,
        "dead-waiter": NO_QUEUE,
        "greedy": POLLING_LUCK,
        "herd": POLLING_HERD,
        "empty-restart": RESTARTED,
        "eviction": EVICTED,
        "server-clock": holds("The deadline is a value that clients compare with their own clocks. The server never "
                              "looks at it."),
        "client-clocks": breaks("B compares A's deadline with its own clock, which is ahead. It believes that A's lease is "
                                "over, and takes the lock."),
        "overwritten-deadline": breaks("GETSET writes before it knows who wins. B's late request puts B's older deadline in "
                                       "the place of C's, so C's lock looks expired while C still counts on it."),
    },
    "set-nx": {
        "crash-holding": FREED_BY_LEASE,
        "lost-connection": NOT_ITS_CONNECTION,
        "half-open": FREED_BY_LEASE,
        "crash-between": ONE_COMMAND,
        "stranger": breaks("The value is the same for everybody, and DEL does not ask who calls it. B frees A's lock, and C enters "
                           "beside A."),
        "long-work": LEASE_TOO_SHORT,
        "late-grant": TOO_LATE,
        "pause": PAUSED,
        "delayed-packet": DEL_TOO_LATE,
        "lost-acquire": OWN_LOCK,
        "lost-release": DEL_TWICE,
        "dead-waiter": NO_QUEUE,
        "greedy": POLLING_LUCK,
        "herd": POLLING_HERD,
        "empty-restart": RESTARTED,
        "eviction": EVICTED,
        "server-clock": EXPIRED_EARLY,
        "client-clocks": SERVERS_TIME,
        "overwritten-deadline": LATE_TO_LOSE,
    },
    "get-del": {
        "crash-holding": FREED_BY_LEASE,
        "lost-connection": NOT_ITS_CONNECTION,
        "half-open": FREED_BY_LEASE,
        "crash-between": ONE_COMMAND,
        "stranger": holds("B reads the value, sees that it is not its own, and leaves the key alone."),
        "long-work": LEASE_TOO_SHORT,
        "late-grant": TOO_LATE,
        "pause": PAUSED,
        "delayed-packet": breaks("A reads its own value and sends DEL. Meanwhile the lease ends and B locks, so DEL deletes B's "
                                 "key, and C gets in."),
        "lost-acquire": OWN_LOCK,
        "lost-release": breaks("A has read its own value; only the answer to DEL is lost. A sends DEL again, but the key is "
                               "B's by now, and C gets in."),
        "dead-waiter": NO_QUEUE,
        "greedy": POLLING_LUCK,
        "herd": POLLING_HERD,
        "empty-restart": RESTARTED,
        "eviction": EVICTED,
        "server-clock": EXPIRED_EARLY,
        "client-clocks": SERVERS_TIME,
        "overwritten-deadline": LATE_TO_LOSE,
    },
    "set-lua": {
        "crash-holding": FREED_BY_LEASE,
        "lost-connection": NOT_ITS_CONNECTION,
        "half-open": FREED_BY_LEASE,
        "crash-between": ONE_COMMAND,
        "stranger": holds("The script finds a value that is not B's, and deletes nothing."),
        "long-work": LEASE_TOO_SHORT,
        "late-grant": TOO_LATE,
        "pause": PAUSED,
        "delayed-packet": holds("The script compares and deletes in one step, when it arrives. It finds B's value, and deletes "
                                "nothing."),
        "lost-acquire": OWN_LOCK,
        "lost-release": holds("A sends the script again. It finds B's value, and deletes nothing."),
        "dead-waiter": NO_QUEUE,
        "greedy": POLLING_LUCK,
        "herd": POLLING_HERD,
        "empty-restart": RESTARTED,
        "eviction": EVICTED,
        "server-clock": EXPIRED_EARLY,
        "client-clocks": SERVERS_TIME,
        "overwritten-deadline": LATE_TO_LOSE,
        "failover": breaks("Redis answers before its replicas have the key. The replica that is promoted has never heard of "
                           "A's lock, and gives it to B."),
    },
    "watchdog": {
        "crash-holding": holds("The watchdog dies with its process, so Redis ends the lease."),
        "lost-connection": NOT_ITS_CONNECTION,
        "half-open": holds("The watchdog's renewals no longer arrive, so Redis ends the lease."),
        "crash-between": ONE_COMMAND,
        "stranger": holds("The script finds a value that is not B's, and deletes nothing."),
        "long-work": holds("The watchdog renews the lease for as long as A works."),
        "late-grant": TOO_LATE,
        "pause": breaks("What stops the work stops the watchdog, too. Redis ends the lease, B gets in, and A goes on in the "
                        "middle of its work as if no time had passed."),
        "delayed-packet": holds("The script compares and deletes in one step, when it arrives. It finds B's value, and deletes "
                                "nothing."),
        "lost-acquire": OWN_LOCK,
        "lost-release": holds("A sends the script again. It finds B's value, and deletes nothing."),
        "dead-waiter": NO_QUEUE,
        "greedy": POLLING_LUCK,
        "herd": POLLING_HERD,
        "empty-restart": RESTARTED,
        "eviction": EVICTED,
        "server-clock": EXPIRED_EARLY,
        "client-clocks": SERVERS_TIME,
        "overwritten-deadline": LATE_TO_LOSE,
    },
    "redlock": {
        "crash-holding": holds("Nobody deletes the keys, but each server does so when the lease is over."),
        "lost-connection": holds("The keys do not belong to the connections that created them. A connects again to delete "
                                 "them."),
        "half-open": holds("Nobody deletes the keys, but each server does so when the lease is over."),
        "crash-between": holds("A dies when it has some of the votes. They stand in nobody's way for longer than a lease."),
        "stranger": holds("On each server the script finds a value that is not B's, and deletes nothing."),
        "long-work": holds("A knows how long its votes are valid, looks at its clock before each write, and stops in time. The "
                           "work is not done, but nobody else's is harmed."),
        "late-grant": holds("A reads its clock before the first request and after the last answer. Too much time has passed, so "
                            "it gives its votes back. Kleppmann has this pause as an example, and Redlock's author replied that "
                            "it is covered."),
        "pause": breaks("A looks at its clock, and is paused before it writes. Its votes expire, B gets them, and A's write is "
                        "accepted: there is no token by which anybody could refuse it."),
        "delayed-packet": holds("A does not wait for a slow server. The script that arrives late finds B's value, and deletes "
                                "nothing."),
        "lost-acquire": holds("A vote whose reply is lost does not count, and four others are left."),
        "lost-release": holds("Each server compares before it deletes, so a repeated or lost unlock harms nobody."),
        "dead-waiter": NO_QUEUE,
        "greedy": POLLING_LUCK,
        "herd": stalls("All waiters ask all servers again and again, and take votes from each other so that often nobody has a "
                       "majority. The more of them wait, the more requests a hand-off costs."),
        "empty-restart": breaks("A has servers 1, 2 and 3. The third forgets its vote and votes again, so that B has 3, 4 and 5. "
                                "Redlock's author asks for durable servers, or for a restart that takes longer than a lease."),
        "server-clock": breaks("A has servers 1, 2 and 3. The clock of the third jumps, it forgets A's lease and votes for B, "
                               "who has 4 and 5 as well. This is Kleppmann's first example."),
        "client-clocks": holds("A client measures how long it took to get the votes. It never compares its clock with "
                               "another's."),
    },
    "insert": {
        "greedy": POLLING_LUCK,
        "crash-holding": ROW_STAYS,
        "half-open": ROW_STAYS,
        "crash-between": ONE_STATEMENT,
        "lost-acquire": OWN_ROW,
        "dead-waiter": POLLED,
        "herd": EVERYBODY_ASKS,
        "stranger": ANYBODYS_DELETE,
        "lost-release": SECOND_DELETE,
        "lost-connection": NOT_THE_CONNECTIONS,
        "pool": ANY_CONNECTION,
    },
    "insert-cleanup": {
        "greedy": POLLING_LUCK,
        "crash-holding": holds("The job deletes A's row when it is old enough, and B gets in."),
        "half-open": holds("The job looks at the age of the row and not at connections. It deletes A's row when it is old "
                           "enough."),
        "crash-between": ONE_STATEMENT,
        "lost-acquire": holds("A's row is there, but A does not know that. It waits for itself until the job deletes the row."),
        "dead-waiter": POLLED,
        "herd": EVERYBODY_ASKS,
        "stranger": ANYBODYS_DELETE,
        "lost-release": SECOND_DELETE,
        "long-work": breaks("The job sees that A's row is old. It cannot see that A is alive and at work, so it deletes the "
                            "row, and B gets in beside A."),
        "pause": breaks("A is slow, and the job takes it for dead. B gets the lock; then A goes on where it was, and writes "
                        "after B."),
        "delayed-packet": breaks("By the time A's DELETE arrives, the job has deleted A's row, and the row is B's. The DELETE "
                                 "does not ask whose it is, and C gets in beside B."),
        "server-clock": breaks("The job goes by the server's clock. When that jumps, a row that is a second old looks an hour "
                               "old, and the job deletes it."),
        "client-clocks": holds("The database writes the time into the row and the database compares it. What a client's clock "
                               "shows does not matter."),
        "lost-connection": NOT_THE_CONNECTIONS,
        "pool": ANY_CONNECTION,
    },
    "version": {
        "greedy": POLLING_LUCK,
        "crash-holding": ROW_STAYS,
        "half-open": ROW_STAYS,
        "crash-between": holds("The SELECT changes nothing and the UPDATE is one step. A crash between the two leaves the row "
                               "as it was."),
        "lost-acquire": OWN_ROW,
        "dead-waiter": POLLED,
        "herd": EVERYBODY_ASKS,
        "stranger": holds("Only whoever knows the version under which the row was locked can unlock it. B's UPDATE changes no "
                          "row."),
        "lost-release": holds("A sends its UPDATE again. It names A's version, the row now has B's, and no row is changed."),
        "lost-connection": NOT_THE_CONNECTIONS,
        "pool": ANY_CONNECTION,
    },
    "for-update": {
        "greedy": holds("The database has a queue for the row. B is in it before A asks again."),
        "crash-holding": holds("The kernel closes A's connection. The database rolls A's transaction back, and B, who waits for "
                               "the row, has it at once."),
        "half-open": stalls("To the database A's connection is merely idle. It keeps the row locked until it gives the "
                            "connection up, which TCP does after two hours by default."),
        "crash-between": holds("Whatever A had begun is part of its transaction, and ends with its connection."),
        "lost-acquire": holds("The lost connection took the lock with it. A tries again over a new one."),
        "dead-waiter": stalls("B is first in the database's queue, so the database gives it the row when A commits. There is "
                              "nobody behind the connection to unlock it again."),
        "herd": holds("All wait in the database's own queue, and it wakes the first one. A hand-off costs the same however "
                      "many wait."),
        "stranger": holds("COMMIT ends B's own transaction. It cannot touch A's."),
        "lost-release": holds("A's COMMIT was done. The second one, over a new connection, finds no transaction that it could "
                              "end."),
        "long-work": holds("A transaction may take as long as it likes, unless the server was told to end long ones. Everything "
                           "else pays for it: old versions of rows cannot be removed meanwhile."),
        "pause": holds("While A is stopped, its connection stays open and the row stays locked. B waits as long as A is stopped."),
        "delayed-packet": stalls("The row is locked until the COMMIT arrives, and no lease ends the wait. B waits for as long "
                                 "as the packet is on its way."),
        "server-clock": holds("A row lock has no time."),
        "client-clocks": holds("A row lock has no time."),
        "lost-connection": breaks("The lock ends with the connection, and B gets the row at once. Nobody tells A, who finds out "
                                  "when it commits, after its work."),
        "pool": breaks("A's connection goes back to the pool with its transaction open. The pool lends it to B. To the database "
                       "both are the same session, so B has the row that A locked, and B's COMMIT unlocks it for both."),
    },
    "incr-limit": {
        "crash-between": stalls("A dies after INCR and before EXPIRE. The counter never ends, and nobody passes any more."),
    },
    "zk-herd": {
        "crash-holding": SESSION_ENDS,
        "crash-between": ALL_OF_THE_SESSION,
        "dead-waiter": holds("Nobody stands in line. ZooKeeper wakes all who wait, and one of those who live gets the lock."),
        "stranger": breaks("All clients use the same node, and whoever deletes it unlocks. B deletes A's, and C gets in."),
        "delayed-packet": breaks("A's session is over when the request arrives, but a client repeats what was not answered. It "
                                 "deletes the node by its name, which is B's by now, and C gets in."),
        "lost-acquire": stalls("A has created the node but does not know it. It tries again, finds a node, and waits for "
                               "itself. Its heartbeats keep that node alive."),
        "lost-release": breaks("A has no answer, so it deletes the node again. By now the node is B's, and C gets in."),
        "long-work": KEPT_ALIVE,
        "pause": SESSION_OVER,
        "greedy": stalls("All are woken at once, and whoever is quickest gets the lock. A, who need not be woken, always is."),
        "herd": stalls("Each release wakes all who wait. Each of them tries, and all but one go back to waiting: the more wait, "
                       "the more a hand-off costs."),
        "half-open": SILENT_DEATH,
        "lost-connection": RECONNECTED,
        "session-expiry": BLIND,
        "zk-cut": ONE_SERVERS_WORD,
    },
    "zk-queue": {
        "crash-holding": SESSION_ENDS,
        "crash-between": ALL_OF_THE_SESSION,
        "dead-waiter": NEXT_IN_LINE,
        "stranger": NODE_OF_ITS_OWN,
        "delayed-packet": NODE_OF_ITS_OWN,
        "lost-acquire": stalls("A has a node in the queue but does not know its name. It creates another and waits behind "
                               "itself. Its heartbeats keep the first one alive."),
        "lost-release": NODE_OF_ITS_OWN,
        "long-work": KEPT_ALIVE,
        "pause": SESSION_OVER,
        "greedy": IN_ORDER,
        "herd": ONE_WATCHES_ONE,
        "half-open": SILENT_DEATH,
        "lost-connection": RECONNECTED,
        "session-expiry": BLIND,
        "zk-cut": ONE_SERVERS_WORD,
    },
    "kazoo": {
        "crash-holding": SESSION_ENDS,
        "crash-between": ALL_OF_THE_SESSION,
        "dead-waiter": NEXT_IN_LINE,
        "stranger": NODE_OF_ITS_OWN,
        "delayed-packet": NODE_OF_ITS_OWN,
        "lost-acquire": FOUND_AGAIN,
        "lost-release": NODE_OF_ITS_OWN,
        "long-work": KEPT_ALIVE,
        "pause": SESSION_OVER,
        "greedy": IN_ORDER,
        "herd": ONE_WATCHES_ONE,
        "half-open": SILENT_DEATH,
        "lost-connection": RECONNECTED,
        "session-expiry": IN_DOUBT,
        "zk-cut": ONE_SERVERS_WORD,
    },
    "curator": {
        "crash-holding": SESSION_ENDS,
        "crash-between": ALL_OF_THE_SESSION,
        "dead-waiter": NEXT_IN_LINE,
        "stranger": NODE_OF_ITS_OWN,
        "delayed-packet": NODE_OF_ITS_OWN,
        "lost-acquire": FOUND_AGAIN,
        "lost-release": NODE_OF_ITS_OWN,
        "long-work": KEPT_ALIVE,
        "pause": SESSION_OVER,
        "greedy": IN_ORDER,
        "half-open": SILENT_DEATH,
        "lost-connection": RECONNECTED,
        "session-expiry": IN_DOUBT,
        "zk-cut": ONE_SERVERS_WORD,
    },
    "etcdctl": {
        "crash-holding": holds("Nobody renews A's lease any more. It ends, and etcd deletes A's key with it."),
        "crash-between": holds("`etcdctl` first makes a lease, and then the key that belongs to it. Whatever is left ends with the "
                               "lease."),
        "dead-waiter": holds("B's key goes with B's lease, and then C's is the oldest."),
        "stranger": holds("Every client has a key of its own, and unlocks by deleting that one. It cannot touch another's."),
        "delayed-packet": holds("A's request deletes A's key, and that alone. When it arrives, the key is already gone."),
        "lost-acquire": holds("The next attempt makes a key of its own. If the first one is still there, it waits until that "
                              "one's lease is over, which costs some time."),
        "lost-release": holds("A's key is gone. To delete it again changes nothing for B."),
        "long-work": holds("`etcdctl` renews the lease while its process runs, however long the work takes."),
        "pause": breaks("While A is stopped, nobody renews its lease. It ends and B gets the lock. A goes on before it has heard of "
                        "that, and nothing tells its write from B's."),
        "greedy": IN_ORDER,
        "herd": holds("Each client waits for the key before its own. A hand-off wakes one client, however many wait."),
        "half-open": holds("The server hears no more renewals. It ends the lease, and with it the key."),
        "lost-connection": holds("The lease is not the connection. A connects again in time to renew it."),
        "etcd-stall": breaks("The old leader renews A's lease out of its memory, without asking the others. They have "
                             "ended the lease and given the lock to B. This is etcd issue 15247."),
    },
    "holdfast": {
        "crash-holding": holds("Nobody renews A's lease any more. It ends, and the store gives the lock to B."),
        ("crash-holding", "sqlite"): holds("The store is on the same host and sees that A's process is dead. B need not wait for "
                                           "the end of the lease."),
        "crash-between": holds("The step that grants the lock also sets its lease. Whatever A left behind ends by itself."),
        "stranger": holds("A release names the grant that it ends. B has none, so there is nothing that it could send."),
        "long-work": holds("The library renews A's lease in the background for as long as A works."),
        "pause": fenced("No lock can prevent this: A has checked its lock, is stopped, and goes on after its lease. But the "
                        "resource has already seen B's token, which is larger, and refuses A's write."),
        "delayed-packet": holds("A's release names A's grant. When it arrives, that grant is gone, and B's stays."),
        "lost-acquire": holds("A repeats its request, with the number of its attempt. The store finds that this attempt already "
                              "has the lock."),
        "lost-release": holds("A repeats its release, which names A's grant. That is gone, so nothing happens to B's."),
        "dead-waiter": holds("A place in the queue has a lease, too. Nobody renews B's, so it ends, and C is the next."),
        ("dead-waiter", "redlock"): holds("Over several servers there is no queue. A dead client stands in nobody's way."),
        "greedy": holds("Those who wait form a queue. Each time that A asks again, it is behind B."),
        ("greedy", "redlock"): stalls("Over several servers there is no queue: whoever does not get a majority asks again after "
                                      "a random time. A, who asks at once, is quicker."),
        "herd": holds("The store wakes the first in the queue and nobody else. A hand-off costs the same however many wait."),
        ("herd", "redlock"): stalls("Over several servers there is no queue. All who wait ask all servers again after random "
                                    "times, and the more wait, the more a hand-off costs."),
        "half-open": holds("The server hears no more renewals, and the lease ends the lock, whatever the connection looks "
                           "like. With row locks, the server ends a session that has been silent for the lease."),
        "lost-connection": holds("A lock belongs to a client and not to a connection. A connects again and renews."),
        ("lost-connection", "postgres-rows"): LOST_WITH_ROW,
        ("lost-connection", "mariadb-rows"): LOST_WITH_ROW,
        "pool": holds("A lock belongs to one call of the program, and no two threads are the same owner. With row locks, a "
                      "connection that has a lock serves nothing else."),
        ("server-clock", "mariadb-rows"): holds("A row lock has no time. The server counts how long a session has been silent, "
                                                "and not what its clock shows."),
        ("server-clock", "postgres-rows"): fenced("PostgreSQL may take A's session for one that has been silent too long, and "
                                                  "end it. A learns of it at once, and B's token is larger."),
        "session-expiry": holds("A counts the time since the servers last confirmed its session, and stops before they may "
                                "end it."),
        "zk-cut": holds("An answered heartbeat does not count. A's renewals are writes, which a majority must confirm: the "
                        "cut-off server cannot, so A stops before the leader ends its session."),
        "etcd-stall": holds("A renewal counts only if a majority confirms after it that the leader is still the same. None "
                            "does, so A stops before its lease ends at the new leader."),
        "empty-restart": fenced("The server has forgotten A's lock and the counter of its tokens. B gets in, but tokens also "
                                "follow the wall clock, so B's is larger and A's write is refused."),
        ("empty-restart", "redlock"): holds("A server that was restarted does not vote until the longest lease is over. B "
                                            "has to wait for A."),
        "eviction": fenced("The server deletes the lock like any other key. B gets in with a larger token, and A's write is "
                           "refused. `holdfast doctor` warns of a server that evicts."),
        "server-clock": fenced("A's lease ends too early and B gets in. B's token is larger, so A's write is refused."),
        "client-clocks": holds("Leases are measured by the server's clock. A wall clock only raises tokens, which may "
                               "be larger than needed but never go down."),
        "late-grant": holds("A's lease counts from before its request was sent. It is over when the grant is read, so A gives the "
                            "lock back and asks again."),
        "overwritten-deadline": holds("B's request is one step on the server. It finds C's lock and waits in the queue."),
        "failover": fenced("The promoted replica has never heard of A's lock. B gets in with a larger token, and A's write is "
                           "refused. No lock in Redis survives a fail-over, so holdfast reports it as lost."),
    },
}


def expected(protocol, scenario, place):
    """None if the literature is silent, or the scenario does not apply."""
    cells = CELLS.get(protocol, {})
    return cells.get((scenario, place)) or cells.get(scenario)
