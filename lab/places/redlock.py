"""Five Redis servers that know nothing of each other."""
import contextlib

import holdfast

from lab.place import Place
from servers.redis import Redis

COUNT = 5
SET = "{holdfast:}.set"  # which set a server votes in


class FiveRedis(Place):
    name = "redlock"
    title = "five independent Redis"
    programs = {"redis-server": "redis-server"}

    parted = ()  # clients that do not reach all servers

    def __enter__(self):
        with contextlib.ExitStack() as starting:
            self.servers = [starting.enter_context(Redis(clock=self.shim)) for _ in range(COUNT)]
            self.found_set()
            self.running = starting.pop_all()
        return self

    def __exit__(self, *_):
        self.running.close()

    def found_set(self):
        """As `holdfast quorum init` does: a new server may have forgotten whom it voted for, and would not vote yet."""
        with holdfast.open(self.url(self.ports, "node_timeout=10000&init=yes")) as client:
            while not all(server.command("EXISTS", SET) for server in self.servers):
                client.acquire("init").release()

    @property
    def ports(self):
        return [server.port for server in self.servers]

    def url(self, ports, options="node_timeout=200"):
        """Clients reach the servers by different ports, so the set has a name. A machine that plays many cells is busy,
        and an answer may take a while."""
        return f"quorum+redis://{','.join(f'127.0.0.1:{port}' for port in ports)}?id=lab&{options}"

    # ---- What happens to them ----

    def part(self, one, other):
        """The first client reaches servers 1 to 3 and the second 3 to 5: a majority each, which meet in one server."""
        for proxy in (*one.proxies[3:], *other.proxies[:2]):
            proxy.blackhole()
        self.parted = one, other

    def heal(self):
        for client in self.parted:
            for proxy in client.proxies:
                proxy.pass_all()

    @property
    def shared(self):
        """The server that both clients reach."""
        return self.servers[COUNT // 2]

    def restart_empty(self):
        self.shared.kill()
        self.shared.restart(wipe=True)

    def step_clock(self, seconds):
        self.shared.step_clock(seconds)
