"""A server restarts empty

A has the lock when the server crashes. It has nothing on its disk, so it comes back without the lock. With five
servers, one is enough if A had the lock on servers 1 to 3 and B reaches 3 to 5: the third votes for both.
"""
from lab.scenario import scenario


@scenario("empty-restart", places=("redis", "redlock"), needs_holder=True, harms=True)
def play(stage):
    stage.lease_s = 10  # so that no lease ends meanwhile
    a, b = stage.clients("A", "B")
    stage.place.part(a, b)
    a.lock()
    a.work(0.3)
    stage.note("a server crashes and comes back empty")
    stage.place.restart_empty()
    stage.contend(a, b, within=0.7 * stage.lease_s)
