"""A lost reply on acquire

The server grants A the lock, but the connection breaks before A has the answer. A tries again, and must get in; after
it, so must B. Each request of lock() loses its reply in a separate round.
"""
from lab.scenario import rounds, scenario


@scenario("lost-acquire", needs_holder=True, needs_network=True)
def play(stage):
    a, b = stage.clients("A", "B")
    a.lock()
    a.unlock()  # this connects it
    for number in rounds():
        held = a.hold_after(number, "down")
        a.ask()
        if not a.comes_to(held, "locked"):
            a.unlock()
            return
        stage.note(f"the reply to request {number + 1} of A's lock is lost")
        a.break_connections()
        if not a.locked() and not (a.has_failed() and a.lock()):
            return
        a.write()
        a.unlock()
        if not b.lock():
            return
        b.unlock()
