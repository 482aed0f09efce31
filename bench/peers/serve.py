"""What the peers in Python share: the protocol of bench/process.h."""
import sys
import threading
import time


def serve(locks):
    """locks: for each WHAT a function that takes a lock's name and returns another, which makes a context manager for each
    pair."""
    for line in sys.stdin:
        measure, what, count, ms = line.split()
        value, times = contend(locks[what], measure, int(count), int(ms) / 1000)
        print(value, *(f"{us:.1f}" for us in times), flush=True)


def again(lock):
    """One context manager for all pairs."""
    return lambda: lock


def contend(lock_of, measure, count, seconds):
    until = time.monotonic() + seconds
    times, changes, last = [[] for _ in range(count)], [0] * count, [None]

    def work(index):
        take = lock_of("one" if measure == "changes" else str(index))
        now = 0
        while now < until:
            began = time.monotonic()
            with take():
                changes[index] += last[0] != index
                last[0] = index
            now = time.monotonic()
            times[index].append((now - began) * 1e6)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    began, computed = time.monotonic(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, computed = time.monotonic() - began, time.process_time() - computed
    pairs = [us for each in times for us in each]
    values = {"pairs": len(pairs) / took, "changes": sum(changes) / took, "cpu": computed / len(pairs) * 1e6}
    return values[measure], pairs
