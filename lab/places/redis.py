"""One Redis server that keeps nothing on disk, as many people run it."""
import itertools

from lab.place import OneServer
from servers.redis import Redis

ENTRY_BYTES = 100000


class OneRedis(OneServer):
    name = "redis"
    title = "one Redis"
    programs = {"redis-server": "redis-server"}

    def new_server(self):
        return Redis(clock=self.shim)

    def url(self, ports):
        """Without a prefix, a lock's name is its key, as in the published protocols."""
        return f"redis://127.0.0.1:{ports[0]}?prefix="

    # ---- What happens to it ----

    def restart_empty(self):
        self.server.kill()
        self.server.restart(wipe=True)

    def step_clock(self, seconds):
        self.server.step_clock(seconds)

    def evict(self, key):
        """The server is also a cache. Its memory is full, and entries are added until this key has been evicted for
        one."""
        with self.server.connect() as redis:
            most = int(self.server.info("memory")["used_memory"]) + 20 * ENTRY_BYTES
            redis.command("CONFIG", "SET", "maxmemory", most)
            redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            for number in itertools.count():
                if not redis.command("EXISTS", key):
                    return
                redis.command("SET", f"entry:{number}", "x" * ENTRY_BYTES)
