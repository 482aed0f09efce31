"""A greedy neighbour

A unlocks and locks again at once, over and over, while B waits. B should have its turn soon. Where chance decides who
is next, B may be lucky, so this is tried a few times.
"""
from lab.referee import OVERTAKEN
from lab.scenario import scenario

TRIES = 5
HOLD_S = 0.02


@scenario("greedy", needs_holder=True)
def play(stage):
    a, b = stage.clients("A", "B", network=False)
    for _ in range(TRIES):
        a.lock()
        b.ask()
        for turn in range(OVERTAKEN):
            stage.sleep(HOLD_S)
            a.unlock_and_ask()
            if stage.next_inside(a, b) is b:
                break
        first, second = (b, a) if b.inside else (a, b)
        first.unlock()
        second.locked()
        second.unlock()
        if first is a:
            return
