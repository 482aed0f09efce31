"""kazoo's Lock, for bench/zookeeper.c: kazoo_locks.py PORT."""
import sys

from kazoo.client import KazooClient
from serve import again, serve

client = KazooClient(f"127.0.0.1:{sys.argv[1]}", timeout=30)
client.start(timeout=60)
serve({"kazoo": lambda name: again(client.Lock(f"/kazoo/{name}", "bench"))})
client.stop()
