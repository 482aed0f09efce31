"""kazoo's locks, for interop_test.py: kazoo_lock.py PORT SESSION_MS."""
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

client = KazooClient(f"127.0.0.1:{sys.argv[1]}", timeout=int(sys.argv[2]) / 1000)
client.start(timeout=30)
KINDS = {"mutex": client.Lock, "read": client.ReadLock, "write": client.WriteLock}


def does(word, kind=None, path=None):
    global lock
    if word in ("acquire", "wait"):
        lock = KINDS[kind](path, "a kazoo client")
        return lock.acquire(blocking=word == "wait")
    try:
        return bool(client.exists(f"{lock.path}/{lock.node}")) if word == "has" else lock.release()
    except KazooException:
        return False


for line in sys.stdin:
    print("yes" if does(*line.split()) else "no", flush=True)
