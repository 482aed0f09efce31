"""A pause in the middle

A is stopped between its last check of the lock and its write, as happens in a garbage collection or when a virtual
machine is moved. When its lease is over, B gets the lock and writes. Then A continues, and its write is late.
"""
from lab.scenario import scenario
from lab.stage import TooSlow


@scenario("pause", needs_lease=True, needs_holder=True)
def play(stage):
    a, b = stage.clients("A", "B")
    a.lock()
    b.ask()
    if not a.write_pausing():
        raise TooSlow("A has lost the lock before it was stopped")
    if b.locked():
        b.write()
        stage.sleep(stage.lease_s / 4)
    a.cont()
    a.finish_write()
    a.unlock()
    if b.locked():
        b.unlock()
