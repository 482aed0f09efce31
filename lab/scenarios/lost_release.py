"""A lost reply on release

A unlocks, the server does it, and B gets the lock; but A's connection breaks before A has the answer. A unlocks
again. C must not get in. Each request of unlock() loses its reply in a separate round.
"""
from lab.scenario import rounds, scenario


@scenario("lost-release", needs_holder=True, needs_network=True)
def play(stage):
    a, b, c = stage.clients("A", "B", "C")
    for number in rounds():
        a.lock()
        b.ask()
        held = a.hold_after(number, "down")
        a.ask_unlock()
        lost = a.comes_to(held, "unlocked")
        if lost:
            stage.note(f"the reply to request {number + 1} of A's unlock is lost")
            b.comes_in(within=stage.lease_s / 4)
            a.break_connections()
            if not a.unlocked():
                a.unlock()
        if not b.locked():
            return
        stage.must_stay_out(c, b)
        b.unlock()
        if not c.locked() or not lost:
            return
        c.unlock()
