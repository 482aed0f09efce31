"""Eviction

The server is also a cache. When its memory is full, it makes room by deleting keys, and one of them is A's lock.
"""
from lab.scenario import scenario


@scenario("eviction", places=("redis",), needs_holder=True, harms=True)
def play(stage):
    stage.lease_s = 10  # so that no lease ends meanwhile
    a, b = stage.clients("A", "B")
    a.lock()
    a.work(0.3)
    stage.note("the cache fills up, and the lock is evicted")
    stage.place.evict(stage.key)
    stage.contend(a, b, within=0.7 * stage.lease_s)
