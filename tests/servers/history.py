"""Who held which lock, for tests in which much happens at once."""
import threading

from servers.puppet import boot_us


class History:
    """Who held which lock, as far as that is certain: from when the puppet printed "acquired" until the latest
    time for which it was promised time left, or until its release was sent. The test reads the clock before it
    asks, and puppets after they were answered, which can only make this shorter."""

    def __init__(self):
        self.holds, self.lock = [], threading.Lock()

    def granted(self, name, token, at_us, shared=False):
        """A dict, which later calls change. token: None if it has none."""
        hold = {"name": name, "token": token, "from_us": at_us, "until_us": 0, "shared": shared}
        with self.lock:
            self.holds.append(hold)
        return hold

    @staticmethod
    def ask_left(hold, puppet, lock):
        asked_us = boot_us()
        left_ms = puppet.left(lock)
        hold["asked"] = (*hold.get("asked", ())[-4:], (asked_us, left_ms))
        if left_ms > 0:
            hold["until_us"] = max(hold["until_us"], asked_us + left_ms * 1000)
        return left_ms

    @staticmethod
    def release(puppet, lock, *holds):
        for hold in holds:
            hold["release_us"] = boot_us()
            hold["until_us"] = min(hold["until_us"], hold["release_us"])
        told = puppet.release(lock)
        for hold in holds:
            hold["released"] = told
        return told

    def over(self):
        """How many holds were released, whatever the answer."""
        with self.lock:
            return sum("released" in hold for hold in self.holds)

    def check(self):
        """Checks that there are never two holders at a time, unless they share the lock, and that tokens of exclusive
        holds rise. Returns how many were compared."""
        sure = sorted((hold for hold in self.holds if hold["until_us"] > hold["from_us"]),
                      key=lambda hold: hold["from_us"])
        for number, hold in enumerate(sure):
            for later in sure[number + 1:]:
                if later["name"] != hold["name"] or later["shared"] and hold["shared"]:
                    continue
                assert later["from_us"] >= hold["until_us"], f"two at a time: {hold} {later}"
                if not later["shared"] and not hold["shared"] and later["token"] and hold["token"]:
                    assert later["token"] > hold["token"], f"tokens do not rise: {hold} {later}"
        return len(sure)
