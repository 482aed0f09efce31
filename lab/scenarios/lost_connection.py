"""The holder's connection is lost

A firewall, a proxy or an administrator ends the connections of the holder, which is well and goes on working, for less than
its lease. Another client waits for the lock.
"""
import time

from lab.scenario import scenario
from lab.stage import TooSlow


@scenario("lost-connection", needs_network=True)
def play(stage):
    a, b = stage.clients("A", "B")
    a.lock()
    since = time.monotonic()
    a.write()
    b.ask()
    stage.note("the network ends every connection of A")
    a.proxy.reset()
    b.locked(within=stage.lease_s / 2)
    a.write()
    if time.monotonic() - since > 0.8 * stage.lease_s:
        raise TooSlow
    a.unlock() or a.unlock()  # if that fails, on a new connection
    if b.locked():
        b.write()
        b.unlock()
