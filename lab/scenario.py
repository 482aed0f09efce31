"""What a file of scenarios/ declares: a function that plays on a stage, and the protocols to which it applies.

    @scenario("pause", needs_lease=True)
    def play(stage):
        a, b = stage.clients("A", "B")
        ...

The first line of the file's docstring is the scenario's title, the rest says what happens.
"""
import sys

ROUNDS_MOST = 6
SQL = ("postgres", "postgres-rows", "mariadb", "mariadb-rows")  # the places that are databases


class Scenario:
    def __init__(self, play, name, places, at, needs_lease, needs_holder, needs_network, harms, programs, applies):
        self.play, self.name, self.places, self.at = play, name, places, at
        self.needs_lease, self.needs_holder, self.needs_network = needs_lease, needs_holder, needs_network
        self.harms, self.programs, self.applies = harms or bool(at), programs, applies
        title, _, rest = (sys.modules[play.__module__].__doc__ or name).strip().partition("\n")
        self.title, self.summary = title.rstrip("."), " ".join(rest.split())

    def why_not(self, protocol, place):
        """Why this scenario means nothing for the protocol at that place, in words; None if it applies."""
        if self.places and place.name not in self.places:
            return f"it happens only on {' and '.join(self.places)}"
        if self.needs_lease and not protocol.has_lease:
            return "the lock has no lease that could end"
        if self.needs_holder and not protocol.is_exclusive:
            return "nobody holds a limiter"
        if self.needs_network and not place.has_network:
            return "there is no network between client and store"
        return self.applies(protocol, place) if self.applies else None


def scenario(name, *, places=(), at=None, needs_lease=False, needs_holder=False, needs_network=False, harms=False,
             programs=(), applies=None):
    """places: where it can happen; everywhere by default. at: a place that has the servers which it needs, if the
    protocol's own does not: three instead of one. harms: its servers cannot be used for anything else at the same time,
    or afterwards. programs: those that it needs itself, as in a place. applies(protocol, place): a reason why not, or
    None."""
    return lambda play: Scenario(play, name, places, at, needs_lease, needs_holder, needs_network, harms, dict(programs),
                                 applies)


def rounds(first=0):
    """The numbers of rounds, for a fault that hits each request of a protocol in turn. There are only a few, so that a
    cell is short."""
    return range(first, first + ROUNDS_MOST)
