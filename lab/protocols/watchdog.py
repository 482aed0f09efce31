"""SET NX PX with an owner, and a watchdog: a thread renews the lease while the work goes on.

The lease can be short, so that the lock of a dead holder is free soon, and the work may still take as long as it
needs. Redisson made this popular.

The thread lives in the same process and over the same network as the work: what stops the one stops the other. When a
renewal finds that the lock is gone, the watchdog ends, but the program is not notified.
"""
import threading

from lab.protocols.set_lua import SetLua
from lab.talk.redis import Redis

RENEW = """
if redis.call("GET", KEYS[1]) == ARGV[1] then
    return redis.call("PEXPIRE", KEYS[1], ARGV[2])
end
return 0
"""


class Watchdog(SetLua):
    name = "watchdog"
    title = "SET NX PX with an owner and a watchdog"
    places = ("redis",)
    follows = "set-lua"
    mends = "The lease does not end while the work goes on."
    mends_in = "long-work"

    def connect(self):
        super().connect()
        self.done = threading.Event()

    def lock(self):
        super().lock()
        self.done = threading.Event()
        threading.Thread(target=self.renew, args=[self.done], daemon=True).start()

    def renew(self, done):
        redis = Redis(self.ports[0])
        while not done.wait(self.lease_s / 3):
            if redis("EVAL", RENEW, 1, self.key, self.id, self.lease_ms) == 0:
                return

    def unlock(self):
        self.done.set()
        super().unlock()
