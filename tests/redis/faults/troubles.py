"""What a Redis server may answer or do instead of what it was asked for. Each of TROUBLES is a context manager that
makes it do so, and yields the outcomes that a client may then see, besides success."""
import contextlib

from faults.scene import wait_until
from servers.process import LIMIT_S
from servers.redis import RedisError
from servers.suite import equal


@contextlib.contextmanager
def out_of_memory(server):
    server.command("CONFIG", "SET", "maxmemory", 1)
    yield {"STORE_FULL"}
    server.command("CONFIG", "SET", "maxmemory", 0)


def wait_for_save(server, status):
    wait_until(lambda: (lambda info: info["rdb_bgsave_in_progress"] == "0"
                        and info["rdb_last_bgsave_status"] == status)(server.info("persistence")), "a save")


@contextlib.contextmanager
def cannot_save(server):
    (server.data / "dump.rdb").mkdir()
    server.command("CONFIG", "SET", "save", "3600 1000000")
    server.command("BGSAVE")
    wait_for_save(server, "err")
    yield {"UNREACHABLE"}
    (server.data / "dump.rdb").rmdir()
    server.command("BGSAVE")
    wait_for_save(server, "ok")


@contextlib.contextmanager
def is_a_replica(server):
    server.command("REPLICAOF", "127.0.0.1", 1)
    yield {"UNREACHABLE"}
    server.command("REPLICAOF", "NO", "ONE")


@contextlib.contextmanager
def is_loading(server):
    """It takes 20 ms for each key."""
    server.command("CONFIG", "SET", "loading-process-events-interval-bytes", 1024)
    server.command("EVAL", "for i = 1, 150 do redis.call('SET', 'junk' .. i, string.rep('x', 2000)) end", 0)
    server.command("CONFIG", "SET", "rdbcompression", "no")
    server.command("CONFIG", "SET", "key-load-delay", 20000)
    with server.connect() as connection:
        connection.send("DEBUG", "RELOAD")
        wait_until(lambda: server.info("persistence")["loading"] == "1", "loading")
        yield {"UNREACHABLE"}
        connection.socket.settimeout(LIMIT_S)
        equal(connection.read(), "OK")


@contextlib.contextmanager
def runs_a_script(server):
    with server.connect() as connection:
        connection.send("EVAL", "while true do end", 0)
        yield {"UNREACHABLE", "UNKNOWN"}
        wait_until(lambda: attempt(server, "SCRIPT", "KILL") == "OK", "the script's end")
        with contextlib.suppress(RedisError):
            connection.read()


def attempt(server, *words):
    with contextlib.suppress(Exception):
        return server.command(*words)
    return None


def is_paused(what):
    @contextlib.contextmanager
    def trouble(server):
        server.command("CLIENT", "PAUSE", 3000, what)  # CLIENT UNPAUSE would also have to wait for it
        yield {"UNKNOWN", "UNREACHABLE"}
        server.command("PING")
        wait_until(lambda: attempt(server, "SETRANGE", "none", 0, "") == 0, "the end of the pause")

    return trouble


@contextlib.contextmanager
def is_stopped(server):
    server.stop()
    yield {"UNKNOWN", "UNREACHABLE"}
    server.cont()


# For servers with these lines of redis.conf.
CONFIG = ["enable-debug-command yes", "busy-reply-threshold 100"]
TROUBLES = {"OOM": out_of_memory, "MISCONF": cannot_save, "READONLY": is_a_replica, "LOADING": is_loading,
            "BUSY": runs_a_script, "PAUSE WRITE": is_paused("WRITE"), "PAUSE ALL": is_paused("ALL"),
            "a hung server": is_stopped}
