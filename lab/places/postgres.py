"""One PostgreSQL server."""
from servers.postgres import Postgres as Server

from lab.place import OneServer


class Postgres(OneServer):
    name = "postgres"
    title = "PostgreSQL"
    programs = {"/usr/lib/postgresql/*/bin/initdb": "postgresql", "psql": "postgresql-client"}

    def new_server(self):
        return Server(["max_connections = 1000"], clock=self.shim)

    def step_clock(self, seconds):
        self.server.clock.change(step_us=seconds * 1000000)
