"""A herd of a hundred

A hundred clients want the lock at the same moment. Each has it for 100 ms. What counts is how many requests a hand-off
costs while all the others wait.
"""
from lab.scenario import scenario
from lab.stage import TooSlow

COUNT = 100
HOLD_S = 0.1
LEASE_S = 30  # far longer than the herd lasts: renewals and heartbeats would count as requests
FIRST, HANDOFFS = 10, 10  # the last clients may still be asking for the first time: the first hand-offs do not count


def applies(protocol, _place):
    return "a hundred Java virtual machines do not fit on a small machine" if "javac" in protocol.programs else None


@scenario("herd", needs_holder=True, applies=applies, programs={"ss": "iproute2"})
def play(stage):
    crowd = stage.crowd(COUNT, HOLD_S, LEASE_S)
    crowd.ask()
    if not crowd.served(FIRST):
        return
    requests, grants = crowd.requests(), crowd.grants
    if not crowd.served(grants + HANDOFFS) or requests is None:
        return
    if crowd.grants - grants > 2 * HANDOFFS:
        raise TooSlow("hand-offs are quicker than they can be counted")
    stage.handoff_requests = (crowd.requests() - requests) / (crowd.grants - grants)
