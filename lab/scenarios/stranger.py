"""Release by a stranger

A has the lock. B's program calls unlock without ever having had it, like a clean-up that runs whether or not lock
worked. C must not get in.
"""
from lab.scenario import scenario


@scenario("stranger", needs_holder=True)
def play(stage):
    stage.lease_s = 5  # so that no lease ends meanwhile
    a, b, c = stage.clients("A", "B", "C")
    a.lock()
    a.write()
    stage.note("B calls unlock, though it never had the lock")
    b.unlock()
    stage.must_stay_out(c, a)
    a.write()
    a.unlock()
    if c.locked():
        c.unlock()
