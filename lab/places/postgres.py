"""One PostgreSQL server."""
from servers.postgres import Postgres as Server

from lab.place import Place


class Postgres(Place):
    name = "postgres"
    title = "PostgreSQL"
    programs = {"/usr/lib/postgresql/*/bin/initdb": "postgresql", "psql": "postgresql-client"}

    def __enter__(self):
        self.server = Server(["max_connections = 1000"], clock=self.shim).__enter__()
        return self

    def __exit__(self, *_):
        self.server.__exit__()

    @property
    def ports(self):
        return [self.server.port]

    def url(self, ports):
        return self.server.url(port=ports[0])

    def step_clock(self, seconds):
        self.server.clock.change(step_us=seconds * 1000000)
