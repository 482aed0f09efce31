"""The goals: what judge.py compares the measurements with.

CASES: the case, the placement it holds for ("any": each that is measured), the contender, what it is compared with (None: the
value itself; "p99: ..." compares the 99th percentiles), and the goal. A goal is a ratio unless the value itself is judged.
CURVES: the curve, the placement, the series, and the goal for its last point compared with its first.

The smoke test fails if a goal names something that is not measured."""
SAME = "the same requests bare"
ONE_CLIENT = "holdfast, one client"
PUBLISHED = "SET NX PX bare, no token"
NO_LOCK = "publish and ask bare, no lock"
HUNG = "holdfast, one of five hangs"

CASES = [
    ("memory/pair", "any", "holdfast", None, "<= 1000"),
    ("memory/cores", "any", "holdfast, a client and a space each", "a mutex each", ">= 0.9"),
    ("memory/held", "any", "CPU, of one core", None, "<= 2"),
    ("memory/held", "any", "locks lost", None, "<= 0"),
    ("memory/held", "any", "of that the client's", None, "<= 250"),
]

CURVES = [
    ("memory/names", "any", "holdfast", "<= 4"),
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
