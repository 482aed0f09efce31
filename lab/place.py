"""Where the locks are: real servers that the lab starts on free loopback ports and stops. Each place is one file in
places/.
"""


class Place:
    name = None
    title = None
    programs = {}  # programs that must be installed, with their Debian packages: {"redis-server": "redis-server"}
    has_network = True
    lease_s = 1.0  # of the locks here: as short as the servers permit

    def __init__(self, shim=None):
        """shim: the path of clock_shim.so, for servers whose clock a scenario changes; None: it changes none."""
        self.shim = shim

    def __enter__(self):
        """Starts the servers and returns when they answer."""
        raise NotImplementedError

    def __exit__(self, *_):
        raise NotImplementedError

    @property
    def ports(self):
        """The ports of the servers, in a fixed order."""
        raise NotImplementedError

    def url(self, ports):
        """The URL for holdfast, with these ports, which are those of proxies in front of the servers."""
        raise NotImplementedError

    def part(self, one, other):
        """From now on, the two clients reach different majorities of the servers; with one server, both reach
        it."""

    def heal(self):
        """Ends part()."""


class OneServer(Place):
    """A place with one server, which new_server() makes."""

    def new_server(self):
        raise NotImplementedError

    def __enter__(self):
        self.server = self.new_server().__enter__()
        return self

    def __exit__(self, *_):
        self.server.__exit__()

    @property
    def ports(self):
        return [self.server.port]

    def url(self, ports):
        return self.server.url(port=ports[0])
