"""Clients' clocks disagree

B's clock is an hour ahead of A's. A has just got the lock; does B believe that A's lease is over?
"""
from lab.scenario import SQL, scenario


@scenario("client-clocks", places=("redis", "redlock", *SQL), needs_lease=True, needs_holder=True)
def play(stage):
    stage.lease_s = 10  # so that no lease ends meanwhile
    a, b = stage.clients("A", "B", clock=True)
    b.clock.change(step_us=3600 * 1000000)
    stage.note("B's clock is an hour ahead")
    a.lock()
    a.work(0.3)
    stage.contend(a, b, within=2)
