"""The pool lends the connection that has the lock

Two threads of one program share what the program has: its connection pool, if the protocol uses one. The first thread
locks, then the second one tries to.
"""
from lab.scenario import scenario


@scenario("pool", places=("postgres", "mariadb"))
def play(stage):
    a, b = stage.threads("A", "B")
    a.lock()
    a.write()
    b.lock(within=stage.lease_s / 2)
    a.write()
    a.unlock()
    if b.locked():
        b.write()
        b.unlock()
