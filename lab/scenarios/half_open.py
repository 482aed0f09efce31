"""A connection that nobody ends

The holder's host loses power, or a cable is cut. No packet tells the server that the connection has ended, so the server
keeps its end open.
"""
from lab.scenario import scenario


@scenario("half-open", needs_holder=True, needs_network=True)
def play(stage):
    a, b = stage.clients("A", "B")
    a.lock()
    a.write()
    a.lose_power()
    if b.lock():
        b.write()
        b.unlock()
