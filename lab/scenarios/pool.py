"""The pool lends the connection that has the lock

Two threads of one program, A and B, share what the program has: its connection pool, if the protocol uses one. A locks,
then B tries to.
"""
from lab.scenario import SQL, scenario


@scenario("pool", places=SQL)
def play(stage):
    stage.lease_s = 10  # so that no lease ends meanwhile
    a, b = stage.threads("A", "B")
    a.lock()
    a.write()
    stage.contend(a, b, within=3)
