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
    """Of threads that take and release a lock: pairs in a second, or changes of the holder if they share it, and the
    computing time of this process for each pair, in microseconds."""
    until = time.monotonic() + SLICE_S
    pairs, changes, last = [0] * threads, [0] * threads, [None]

    def work(index):
        take = taker(contender, "one" if one_name else str(index))
        while time.monotonic() < until:
            with take():
                pairs[index] += 1
                changes[index] += last[0] != index
                last[0] = index

    began, computed = time.monotonic(), time.process_time()
    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    computed = time.process_time() - computed
    return sum(changes if one_name else pairs) / (time.monotonic() - began), computed / sum(pairs) * 1e6


def ratio(ours, theirs):
    low, middle, high = statistics.quantiles([a / b for a, b in zip(ours, theirs)], n=4)
    return f"{middle:8.2f}  ({low:.2f} to {high:.2f})"


def compare(title, threads, one_name, contenders):
    rounds = [[measure(each, threads, one_name) for each in contenders] for _ in range(ROUNDS)]
    print(f"\n{title:44} {'in a second':>12} {'CPU, us':>8}   holdfast to it: in a second, CPU (quartiles)")
    ours = None
    for each, values in zip(contenders, zip(*rounds)):
        rates, costs = zip(*values)
        line = f"  {each:42} {statistics.median(rates):12.1f} {statistics.median(costs):8.1f}"
        ours = ours or (rates, costs)
        print(line if each == OURS else line + ratio(ours[0], rates) + ratio(ours[1], costs), flush=True)


compare("pairs, one thread", 1, False, [OURS, "redis-py"])
compare(f"pairs, {THREADS} threads, each with its own name", THREADS, False, [OURS, "redis-py"])
compare(f"changes of the holder, {THREADS} threads, one name", THREADS, True, [OURS, *PEERS])
