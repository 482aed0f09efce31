"""A greedy neighbour

A unlocks and locks again at once, over and over. B waits all the while, 50 ms away from the servers, and should have its
turn soon. B may be lucky where chance decides who is next, so this is tried a few times.
"""
from lab.referee import OVERTAKEN
from lab.scenario import scenario

TRIES = 8
HOLD_S = 0.02
DISTANCE_MS = 50


@scenario("greedy", needs_holder=True)
def play(stage):
    a, b = stage.clients("A", "B")
    b.lock()
    b.unlock()  # this connects it
    for proxy in b.proxies:
        proxy.delay(DISTANCE_MS)
    for _ in range(TRIES):
        a.lock()
        b.ask()
        stage.sleep(10 * DISTANCE_MS / 1000)  # now it is in the queue, if there is one
        for _ in range(OVERTAKEN):
            stage.sleep(HOLD_S)
            a.unlock_and_ask()
            if stage.next_inside(a, b) is b:
                break
        first, second = (b, a) if b.inside else (a, b)
        first.unlock()
        if not second.locked():
            return
        second.unlock()
        if first is a:
            return
