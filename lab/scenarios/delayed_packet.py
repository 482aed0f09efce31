"""A delayed packet

A unlocks, and one of the packets is delayed in the network until the lease is over and B has the lock. Then it arrives.
C must not get in. Each request of unlock() is delayed in a separate round.
"""
from lab.scenario import rounds, scenario


@scenario("delayed-packet", needs_holder=True, needs_lease=True, needs_network=True)
def play(stage):
    stage.lease_s = max(2, stage.lease_s)
    a, b, c = stage.clients("A", "B", "C")
    for number in rounds():
        a.lock()
        held = a.hold_after(number)
        a.ask_unlock()
        if not a.comes_to(held, "unlocked"):
            return
        stage.note(f"request {number + 1} of A's unlock is delayed")
        if not b.lock():
            return
        stage.note("the packet arrives")
        a.pass_all()
        a.unlocked(within=stage.lease_s / 4)
        stage.must_stay_out(c, b)
        b.unlock()
        if not c.locked():
            return
        c.unlock()
