"""SET NX PX with an owner, compare and delete in Lua: the pattern of Redis' manual today, for one server.

A script runs in one step, so nothing comes between the comparison and the deletion. A client can unlock only what it
locked.

What remains is the lease. Work that takes longer, a process that is paused, a server that forgets the key or hands over to
a replica that never had it: two clients are inside at once, the first one does not know, and what it writes is accepted.
"""
from lab.protocol import Protocol
from lab.talk.redis import Redis

UNLOCK = """
if redis.call("GET", KEYS[1]) == ARGV[1] then
    return redis.call("DEL", KEYS[1])
end
return 0
"""


class SetLua(Protocol):
    name = "set-lua"
    title = "SET NX PX with an owner, unlock in Lua"
    places = ("redis", "replicated")
    has_lease = True
    follows = "get-del"
    mends = "The comparison and the deletion are one step."
    mends_in = "delayed-packet"

    def connect(self):
        self.redis = Redis(self.ports[0])

    def lock(self):
        while self.redis("SET", self.key, self.id, "NX", "PX", self.lease_ms) is None:
            self.pause()

    def unlock(self):
        self.redis("EVAL", UNLOCK, 1, self.key, self.id)
