"""The holder's connection is lost

A firewall, a proxy or an administrator ends the connections of A, which is healthy and keeps working, for less than
its lease. B waits.
"""
from lab.scenario import scenario


@scenario("lost-connection", needs_holder=True, needs_network=True)
def play(stage):
    stage.lease_s = 10  # so that no lease ends meanwhile
    a, b = stage.clients("A", "B")
    a.lock()
    a.write()
    b.ask()
    stage.note("the network ends every connection of A")
    a.break_connections()
    if b.comes_in(within=3):
        b.write()
    a.write()
    a.unlock() or a.unlock()  # if that fails, again on a new connection
    if b.locked():
        b.write()
        b.unlock()
