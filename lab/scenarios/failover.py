"""Fail-over before replication

The master acknowledges A's lock before its replica has it, as Redis does with every write. Then the master dies, and the
replica becomes the master. It has never heard of A, and gives the lock to B.
"""
from lab.scenario import scenario


@scenario("failover", places=("replicated",), needs_holder=True, harms=True)
def play(stage):
    stage.lease_s = 10  # so that no lease ends meanwhile
    a, b = stage.clients("A", "B")
    stage.place.hold_replication()
    stage.note("the replica falls behind")
    a.lock()
    a.work(0.3)
    stage.note("the master dies, and the replica takes over")
    stage.place.fail_over()
    stage.contend(a, b, within=0.7 * stage.lease_s)
