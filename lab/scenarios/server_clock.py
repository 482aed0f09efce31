"""The server's clock jumps

A has the lock when somebody sets the server's clock, and it jumps an hour ahead. If leases end by this clock, A's
is over at once. With five servers, one is enough if A had the lock on servers 1 to 3 and B reaches 3 to 5.
"""
from lab.scenario import SQL, scenario


@scenario("server-clock", places=("redis", "redlock", *SQL), needs_lease=True, needs_holder=True, harms=True)
def play(stage):
    stage.lease_s = 10  # so that no lease ends on its own meanwhile
    a, b = stage.clients("A", "B")
    stage.place.part(a, b)
    a.lock()
    a.work(0.3)
    stage.note("the clock of a server jumps an hour ahead")
    stage.place.step_clock(3600)
    stage.contend(a, b, within=0.7 * stage.lease_s)
