"""pgbouncer in front of a PostgreSQL server: it gives each transaction, or statement, any one of a few connections."""
import shutil
import subprocess

from servers.process import Process, reserve_port


class Pooler(Process):
    """mode: of its pools."""

    def __init__(self, server, mode="transaction"):
        self.server, self.reserved = server, reserve_port()
        self.port = self.reserved.getsockname()[1]
        self.file = server.folder / f"pgbouncer-{self.port}.ini"  # a server may have several
        users = server.folder / f"users-{self.port}"
        users.write_text('"postgres" ""\n')
        self.file.write_text(f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\n"
                             f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nauth_type = trust\nauth_file = {users}\n"
                             f"pool_mode = {mode}\nunix_socket_dir =\nlogfile = /dev/null\n"
                             "default_pool_size = 3\nmax_client_conn = 100\n")

    def __enter__(self):
        self.launch([*self.server.as_user, shutil.which("pgbouncer") or "/usr/sbin/pgbouncer", self.file],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        super().__exit__()
        self.reserved.close()
