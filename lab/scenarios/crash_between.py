"""A crash between two commands

The client locks with several requests, and is killed between two of them: first after one, in the next round after
two, and so on, until lock() needs no more. After each crash B must get in.
"""
from lab.scenario import rounds, scenario


@scenario("crash-between", needs_network=True)
def play(stage):
    (b,) = stage.clients("B")
    for number in rounds(1):
        (a,) = stage.clients(f"A{number}")
        a.lock()
        a.unlock()  # this connects it
        if not stage.protocol.is_exclusive:
            stage.sleep(stage.lease_s)  # until the limiter's next window
        held = a.hold_after(number)
        a.ask()
        if not a.comes_to(held, "locked"):
            a.unlock()
            return
        stage.note(f"{a.name} dies when {number} of its requests {'has' if number == 1 else 'have'} been answered")
        a.crash()
        if not b.lock():
            return
        b.unlock()
