"""The lock of Python's redis package: redis_lock.py PORT. See interop_test.py for the lines that it reads and
writes."""
import sys

import redis
from redis.exceptions import LockError

client = redis.Redis(port=int(sys.argv[1]))
lock = None


def obey(word, first=None, second=None):
    global lock
    if word in ("acquire", "wait"):
        lock = client.lock(first, timeout=int(second) / 1000)
        return lock.acquire(blocking=word == "wait")
    try:
        if word == "extend":
            return lock.extend(int(first) / 1000, replace_ttl=True)
        lock.release()
        return True
    except LockError:
        return False


for line in sys.stdin:
    print("yes" if obey(*line.split()) else "no", flush=True)
