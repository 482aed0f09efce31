"""Work longer than the lease

A works for two and a half leases, alive and connected all the time, and checks before each write that it still has
the lock. B waits.
"""
from lab.scenario import scenario


@scenario("long-work", needs_holder=True, needs_lease=True)
def play(stage):
    stage.lease_s = max(2, stage.lease_s)  # a renewal may be late on a busy machine
    a, b = stage.clients("A", "B")
    a.lock()
    b.ask()
    works = a.work(2 * stage.lease_s)
    if b.comes_in():
        b.write()
    if works:
        a.work(stage.lease_s / 2)
    a.unlock()
    if b.locked():
        b.unlock()
