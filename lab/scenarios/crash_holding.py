"""A crash while holding

A is killed while it has the lock. Its connections are closed, but nobody calls unlock. Some time later B must get in.
"""
from lab.scenario import scenario


@scenario("crash-holding", needs_holder=True)
def play(stage):
    a, b = stage.clients("A", "B")
    a.lock()
    a.write()
    b.ask()
    a.kill()
    if b.locked():
        b.write()
        b.unlock()
