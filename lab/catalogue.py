"""All protocols, places and scenarios: each is a file, and is found because the file exists.

A row of the matrix is a protocol at a place. Its name is the protocol's, or name@place if the protocol can be at
several places and this is not the first.
"""
import collections
import functools
import glob
import importlib
import importlib.util
import os
import pkgutil
import shutil
import sys

from lab.place import Place
from lab.protocol import Protocol
from lab.scenario import Scenario


# The first places of all protocols, in the order of the story; the last one is holdfast's.
STORY = ("redis", "redlock", "postgres", "zookeeper", "etcd", "sqlite")


class Row(collections.namedtuple("Row", "protocol place")):
    @property
    def name(self):
        first = self.place.name == self.protocol.places[0] and not self.protocol.always_says_where
        return self.protocol.name if first else f"{self.protocol.name}@{self.place.name}"

    @property
    def title(self):
        return self.protocol.title if "@" not in self.name else f"{self.protocol.title}, {self.place.title}"

    def missing(self, programs=()):
        """Debian packages without which this row cannot be played. programs: those that a scenario needs in
        addition."""
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        programs = self.place.programs | self.protocol.programs | dict(programs)
        found = [package for program, package in programs.items() if not is_there(program, path)]
        found += [package for module, package in self.protocol.needs.items() if not importlib.util.find_spec(module)]
        return sorted(set(found))


def is_there(program, path):
    return glob.glob(program) if program.startswith("/") else shutil.which(program, path=path)


def modules(package):
    folder = importlib.import_module(f"lab.{package}").__path__
    return [importlib.import_module(f"lab.{package}.{found.name}")
            for found in sorted(pkgutil.iter_modules(folder), key=lambda found: found.name)]


def classes(package, base):
    for module in modules(package):
        for thing in vars(module).values():
            if isinstance(thing, type) and issubclass(thing, base) and thing.__module__ == module.__name__ and thing.name:
                yield thing


@functools.cache
def places():
    return {place.name: place for place in classes("places", Place)}


@functools.cache
def protocols():
    return {protocol.name: protocol for protocol in classes("protocols", Protocol)}


@functools.cache
def rows():
    """In the order of the story: each protocol after the one that it was meant to fix, then those that stand alone;
    holdfast is last."""
    every = list(protocols().values())
    followed = {protocol.follows for protocol in every}

    def depth(protocol):
        before = protocols().get(protocol.follows)
        return (*depth(before), protocol.name) if before else (protocol.name,)

    every.sort(key=lambda protocol: (STORY.index(protocol.places[0]),
                                     not protocol.follows and protocol.name not in followed, depth(protocol)))
    return {row.name: row for row in (Row(protocol, places()[place]) for protocol in every for place in protocol.places)}


@functools.cache
def scenarios():
    found = [thing for module in modules("scenarios") for thing in vars(module).values() if isinstance(thing, Scenario)]
    return {scenario.name: scenario for scenario in found}


def contents():
    """All rows and scenarios, for programs and the report."""
    return {"scenarios": [{"name": scenario.name, "title": scenario.title, "summary": scenario.summary}
                          for scenario in scenarios().values()],
            "rows": [{"name": row.name, "title": row.title, "protocol": row.protocol.name,
                      "protocol_title": row.protocol.title, "place": row.place.name,
                      "summary": paragraphs(sys.modules[row.protocol.__module__].__doc__ or ""),
                      "follows": row.protocol.follows, "mends": row.protocol.mends,
                      "mends_in": row.protocol.mends_in, "missing": row.missing()}
                     for row in rows().values()]}


def paragraphs(text):
    """Removes the line breaks within paragraphs. The first may be a title, and is made a sentence like the others."""
    found = (" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))
    return "\n\n".join(paragraph if paragraph.endswith((".", ")")) else f"{paragraph}." for paragraph in found)
