"""The goals: what judge.py compares the measurements with.

CASES: the case, the placement it holds for ("any": each that is measured), the contender, what it is compared with (None: the
value itself; "p99: ..." compares the 99th percentiles), and the goal. A goal is a ratio unless the value itself is judged.
CURVES: the curve, the placement, the series, and the goal for its last point compared with its first.

The smoke test fails if a goal names something that is not measured."""
SAME = "the same requests bare"
ONE_CLIENT = "holdfast, one client"
INSERT = "insert and delete bare"
PUBLISHED = "SET NX PX bare, no token"
NO_LOCK = "publish and ask bare, no lock"
OUR_RUN = "holdfast run x -- true"
HUNG = "holdfast, one of five hangs"

CASES = [
    ("memory/pair", "any", "holdfast", None, "<= 1000"),
    ("memory/cores", "any", "holdfast, a client and a space each", "a mutex each", ">= 0.9"),
    ("memory/held", "any", "CPU, of one core", None, "<= 2"),
    ("memory/held", "any", "locks lost", None, "<= 0"),
    ("memory/held", "any", "of that the client's", None, "<= 250"),

    ("sqlite/pair", "any", "holdfast", "two bare transactions", "<= 1.3"),
    ("sqlite/hand-off", "any", "holdfast", "a bare transaction, a byte, a transaction", "<= 2"),
    ("sqlite/kill", "any", "holdfast", None, "<= 1000"),
    ("sqlite/run", "any", OUR_RUN, "flock x true", "<= 1.7"),

    ("redis/pair", "pinned", "holdfast", SAME, ">= 0.95"),
    ("redis/pair", "default", "holdfast", SAME, ">= 0.9"),
    ("redis/pair", "pinned", SAME, PUBLISHED, ">= 0.85"),
    ("redis/pair", "default", SAME, PUBLISHED, ">= 0.9"),
    ("redis/threads-8", "default", ONE_CLIENT, "a bare connection each", ">= 0.9"),
    ("redis/threads-64", "pinned", ONE_CLIENT, "a bare connection each", ">= 2"),
    ("redis/threads-64", "default", ONE_CLIENT, "a bare connection each", ">= 1.3"),
    ("redis/threads-64", "any", ONE_CLIENT, "a bare pipeline, one thread", ">= 0.7"),
    ("redis/server", "any", "holdfast: in scripts", None, "<= 25"),
    ("redis/hand-off-2", "any", "a change: requests", None, "<= 3.1"),
    ("redis/hand-off-16", "any", "holdfast", SAME, ">= 0.7"),
    ("redis/hand-off-64", "any", "holdfast", SAME, ">= 0.85"),
    ("redis/hand-off-64", "any", "a change: requests", None, "<= 3.1"),
    ("redis/hand-off-16", "any", "grants, the fewest to the most", None, ">= 0.95"),
    ("redis/hand-off-64", "any", "grants, the fewest to the most", None, ">= 0.95"),
    ("redis/latency", "pinned", "holdfast", NO_LOCK, "<= 1.6"),
    ("redis/latency", "default", "holdfast", NO_LOCK, "<= 1.3"),
    ("redis/latency", "any", "holdfast", SAME, "<= 1.1"),
    ("redis/latency", "any", "holdfast", "a round trip after idling", "<= 4"),
    ("redis/held", "any", "CPU of the client", None, "<= 0.15"),
    ("redis/held", "any", "the client's, for each lock", None, "<= 250"),
    ("redis/held", "any", "locks lost", None, "<= 0"),
    ("redis/run", "any", OUR_RUN, "flock x true", "<= 1.7"),

    ("quorum/pair", "any", "holdfast", SAME, "<= 1.1"),
    ("quorum/pair", "any", HUNG, "holdfast", "<= 1.3"),
    ("quorum/pair", "any", HUNG, "p99: holdfast", "<= 3"),
    ("quorum/pair", "any", "holdfast, one of five is dead", "holdfast", "<= 1.2"),
    ("quorum/peers", "any", "npm redlock", "holdfast", ">= 1.5"),
    ("quorum/peers", "any", "npm redis-semaphore", "holdfast", ">= 1.5"),
    ("quorum/peers", "any", "npm redlock, one of five hangs", HUNG, ">= 2"),
    ("quorum/peers", "any", "npm redis-semaphore, one of five hangs", HUNG, ">= 2"),
    ("quorum/one-name-16", "any", "npm redlock", "holdfast", "<= 1"),
    ("quorum/one-name-16", "any", "npm redis-semaphore", "holdfast", "<= 1"),

    *((f"languages/{case}", "any", ours, peer, ">= 1") for case in ("pair", "own-8", "one-8") for ours, peer in (
        ("holdfast", "redis-py"), ("holdfast", "npm redlock"), ("holdfast", "npm redis-semaphore"),
        ("holdfast for Python", "redis-py"), ("holdfast for Node", "npm redlock"),
        ("holdfast for Node", "npm redis-semaphore"))),

    ("postgres/pair-1", "any", ONE_CLIENT, SAME, ">= 0.95"),
    ("postgres/pair-64", "any", ONE_CLIENT, INSERT, ">= 3"),
    ("mysql/pair-1", "any", ONE_CLIENT, SAME, ">= 0.9"),
    ("mysql/pair-64", "any", ONE_CLIENT, INSERT, ">= 1.5"),

    ("etcd/pair-1", "any", ONE_CLIENT, SAME, ">= 0.95"),
    ("etcd/pair-64", "any", ONE_CLIENT, SAME, ">= 0.95"),
    ("etcd/run", "any", OUR_RUN, "etcdctl lock x true", "<= 0.25"),
    ("zookeeper/pair-1", "any", ONE_CLIENT, SAME, ">= 0.95"),
    ("zookeeper/pair-64", "any", ONE_CLIENT, SAME, ">= 0.95"),
    *((f"zookeeper/{case}", "any", ONE_CLIENT, peer, ">= 1") for case in ("pair-1", "pair-64", "one-name-16")
      for peer in ("Curator", "kazoo")),
]

CURVES = [
    ("growth/names/memory", "any", "holdfast", "<= 4"),
    ("growth/names/redis", "any", "holdfast", "<= 1.5"),
    ("growth/names/sqlite", "any", "holdfast", "<= 1.5"),
    ("growth/waiters/redis", "any", "threads of one client", "<= 1.5"),
    ("growth/waiters/redis", "any", "clients of 8 processes", "<= 1.5"),
    ("growth/waiters-server/redis", "any", "clients of 8 processes", "<= 1.2"),
    ("growth/waiters/memory", "any", "threads of one client", "<= 1.5"),
    ("growth/waiters/sqlite", "any", "clients of 8 processes", "<= 1.5"),
    ("growth/holds/redis", "any", "holdfast", "<= 1"),
    ("growth/holds-server/redis", "any", "holdfast", "<= 1"),
    ("growth/holds/memory", "any", "holdfast", "<= 1"),
    ("growth/holds/sqlite", "any", "holdfast", "<= 1"),
    ("growth/threads/redis", "any", "holdfast", ">= 1"),
    ("growth/threads/memory", "any", "holdfast", ">= 0.9"),
    ("growth/threads/sqlite", "any", "holdfast", ">= 0.9"),
    ("growth/processes/redis", "any", "holdfast", ">= 0.9"),
]
