"""kazoo's Lock, for bench/zookeeper.c: kazoo_peer.py PORT. It reads lines "pairs THREADS MS" and "changes THREADS MS", has
threads take and release a lock for a while, each its own or all the same, and answers with pairs or changes of holder in a
second."""
import sys
import threading
import time

from kazoo.client import KazooClient

client = KazooClient(f"127.0.0.1:{sys.argv[1]}", timeout=30)
client.start(timeout=60)


def measure(what, count, ms):
    until = time.monotonic() + ms / 1000
    numbers, last = [0] * count, [None]

    def work(index):
        lock = client.Lock("/kazoo/one" if what == "changes" else f"/kazoo/{index}", "bench")
        while time.monotonic() < until:
            with lock:
                numbers[index] += what == "pairs" or last[0] != index
                last[0] = index

    threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(numbers) / (time.monotonic() - began)


for line in sys.stdin:
    what, count, ms = line.split()
    print(measure(what, int(count), int(ms)), flush=True)
client.stop()
