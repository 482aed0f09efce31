"""The Python package beside redis-py's lock, for bench/languages.c: redis_locks.py URL PORT. redis-py's waiters ask again after
`sleep` seconds, 0.1 by default. A hundredth of that is measured, too, which costs the server more."""
import sys

import holdfast
import redis
from serve import again, serve

url, port = sys.argv[1:]
client = holdfast.open(url)
server = redis.Redis(port=int(port))

serve({
    "holdfast": lambda name: lambda: client.lock(name, ttl=30),
    "redis-py": lambda name: again(server.lock(f"peer/{name}", timeout=30)),
    "redis-py-1ms": lambda name: again(server.lock(f"peer/{name}", timeout=30, sleep=0.001)),
})
client.close()
