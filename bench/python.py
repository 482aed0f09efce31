"""The Python package beside redis-py's lock, on one Redis server: python.py URL PORT [ROUNDS].

The slices of the contenders are interleaved: a round has one of each, and a ratio is that of two slices of one round. Of
the rounds, the median and the quartiles are shown. redis-py's waiters ask again after `sleep` seconds, 0.1 by default; it
is measured with a hundredth of that, too, which costs the server more."""
import statistics
import sys
import threading
import time

import holdfast
import redis

SLICE_S = 0.3
THREADS = 8

url, port, *rest = sys.argv[1:]
ROUNDS = int(rest[0]) if rest else 20
client = holdfast.open(url)
server = redis.Redis(port=int(port))

OURS = "holdfast"
PEERS = {"redis-py": 0.1, "redis-py, sleep=0.001": 0.001}


def taker(contender, name):
    """A function that makes a context manager for the lock."""
    if contender == OURS:
        return lambda: client.lock(name, ttl=30)
    lock = server.lock(f"peer/{name}", timeout=30, sleep=PEERS[contender])
    return lambda: lock


def measure(contender, threads, one_name):
    """Of threads that take and release a lock: changes of its holder in a second if they share it, or else pairs."""
    until = time.monotonic() + SLICE_S
    numbers, last = [0] * threads, [None]

    def work(index):
        take = taker(contender, "one" if one_name else str(index))
        while time.monotonic() < until:
            with take():
                numbers[index] += not one_name or last[0] != index
                last[0] = index

    began = time.monotonic()
    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(numbers) / (time.monotonic() - began)


def compare(title, threads, one_name, contenders):
    rounds = [{each: measure(each, threads, one_name) for each in contenders} for _ in range(ROUNDS)]
    print(f"\n{title:48} {'in a second':>12}   holdfast to it (quartiles)")
    for each in contenders:
        median = statistics.median(values[each] for values in rounds)
        line = f"  {each:46} {median:12.1f}"
        if each != OURS:
            low, middle, high = statistics.quantiles([values[OURS] / values[each] for values in rounds], n=4)
            line += f"   {middle:6.2f}  ({low:.2f} to {high:.2f})"
        print(line, flush=True)


compare("pairs, one thread", 1, False, [OURS, "redis-py"])
compare(f"pairs, {THREADS} threads, each with its own name", THREADS, False, [OURS, "redis-py"])
compare(f"changes of the holder, {THREADS} threads, one name", THREADS, True, [OURS, *PEERS])
