"""A file on this host: no server, and no network."""
import tempfile

from lab.place import Place


class Sqlite(Place):
    name = "sqlite"
    title = "a file on one host"
    has_network = False
    ports = ()

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="holdfast-lab-")
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def url(self, ports):
        return f"sqlite:{self.folder.name}/locks.db"
