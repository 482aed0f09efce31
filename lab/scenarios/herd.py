"""A herd of a hundred

A hundred clients want the lock at the same moment. Each has it for 100 ms. What counts is how many requests a hand-off
costs while all the others wait.
"""
import time

from lab.scenario import scenario
from lab.stage import TooSlow

COUNT = 100
HOLD_S = 0.1
FIRST, HANDOFFS = 3, 10  # the last clients may still be asking for the first time: the first hand-offs do not count
HANDOFF_MOST_S = 0.3  # or else the heartbeats of those who wait count for too much


def applies(protocol, _place):
    return "a hundred Java virtual machines do not fit on a small machine" if "javac" in protocol.programs else None


@scenario("herd", needs_holder=True, applies=applies, programs={"ss": "iproute2"})
def play(stage):
    crowd = stage.crowd(COUNT, HOLD_S)
    crowd.ask()
    if not crowd.served(FIRST):
        return
    start, requests, grants = time.monotonic(), crowd.requests(), crowd.grants
    if not crowd.served(grants + HANDOFFS) or requests is None:
        return
    handoffs = crowd.grants - grants
    if time.monotonic() - start > HANDOFF_MOST_S * handoffs:
        raise TooSlow
    stage.handoff_requests = (crowd.requests() - requests) / handoffs
