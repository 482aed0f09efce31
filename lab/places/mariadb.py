"""One MariaDB server."""
from servers.mariadb import MariaDB as Server

from lab.place import OneServer


class MariaDB(OneServer):
    name = "mariadb"
    title = "MariaDB"
    programs = {"mariadbd": "mariadb-server"}

    def new_server(self):
        return Server(["--max-connections=1000"], clock=self.shim)

    def step_clock(self, seconds):
        self.server.clock.change(step_us=seconds * 1000000)
