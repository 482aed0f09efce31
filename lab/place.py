"""Where the locks are: real servers that the lab starts on free ports of loopback and stops. One file of places/ each.
"""


class Place:
    name = None
    title = None
    programs = {}  # that must be installed: {"redis-server": "redis-server"}, with Debian's packages
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
        """Of the servers, in an order that stays."""
        raise NotImplementedError

    def url(self, ports):
        """For holdfast, by these ports, which are of proxies before the servers."""
        raise NotImplementedError

    def part(self, one, other):
        """Two clients from here on reach different majorities of the servers; with one server, the same."""

    def heal(self):
        """Ends part()."""


class OneServer(Place):
    """One server, which new_server() makes."""

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
