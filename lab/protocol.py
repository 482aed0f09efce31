"""The interface that every protocol of the lab implements, each in its own file in protocols/.

An object is one client, in its own process (client.py). lock() returns when the client has the lock; how to wait for it
is the protocol's business. What a protocol does about lost replies, pauses and crashes is in its file and nowhere else:
the lab never helps it.
"""
import time


class Protocol:
    name = None  # what the user types
    title = None  # what the report says
    places = ()  # where it can run: names from places/
    has_lease = False  # whether the lock becomes free when its holder is gone for good
    has_token = False  # whether lock() returns a number that is larger for every later holder
    always_says_where = False  # whether its place is part of its name, even if it is the first
    is_exclusive = True  # a limiter lets several in
    needs = {}  # Python modules that it imports, with their Debian packages: {"kazoo": "python3-kazoo"}
    programs = {}  # programs that its client needs beside those of the place: {"javac": "default-jdk-headless"}
    follows = None  # the name of the protocol that this one was meant to fix
    mends = None  # what it fixes, in a sentence
    mends_in = None  # the name of the scenario that shows it best

    def __init__(self, settings):
        """ports: of the servers, on this host, as this client reaches them. url: the same for holdfast. key: the
        name of the lock. lease_s: how long a lease is. id: unique to this client."""
        self.ports, self.url, self.key = settings["ports"], settings["url"], settings["key"]
        self.lease_s, self.id = settings["lease_s"], settings["id"]
        self.lease_ms = round(self.lease_s * 1000)

    @classmethod
    def prepare(cls, folder):
        """Called before its first client: makes what its clients need, in this folder, which belongs to the
        protocol."""

    @classmethod
    def command(cls, settings):
        """The words that start a client in a language other than Python; None: client.py runs this class."""
        return None

    def connect(self):
        """Called before the first lock(), and again after a lock() or unlock() that failed."""

    def lock(self):
        """Returns the token, if the protocol has one."""
        raise NotImplementedError

    def unlock(self):
        raise NotImplementedError

    def check(self):
        """Whether the client still believes that it has the lock. Most protocols have no means to find out."""
        return True

    def pause(self):
        """Waits between two attempts."""
        time.sleep(0.05)
