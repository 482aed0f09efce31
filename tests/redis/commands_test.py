#!/usr/bin/env python3
"""No command of the Redis store is newer than Redis 6.2: commands_test.py. It searches the scripts and sources for
commands, and looks each up in a real server's COMMAND DOCS."""
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0:1] = [str(Path(__file__).resolve().parents[1])]
from servers.redis import Redis
from servers.suite import main, test

FOLDER = Path(__file__).resolve().parents[2] / "src/store/redis"
NEWEST = (6, 2, 0)
OF_SENTINEL = {"sentinel get-master-addr-by-name", "sentinel master"}  # since 2.8; a server does not document them
SURE = {"evalsha", "get", "hset", "zrangebyscore", "publish", "subscribe", "scan", "wait", "asking", "cluster slots",
        "sentinel master", "role", "auth", "info", "pexpire"}


def in_scripts():
    for path in FOLDER.glob("scripts/*.lua"):
        yield from re.findall(r"""call\(\s*['"]([A-Za-z]+)""", path.read_text())


def in_sources():
    yield from ("EVAL", "EVALSHA", "PING")  # which are not built from words alone
    for path in FOLDER.glob("*.c"):
        if path.name.endswith("_test.c"):
            continue
        text = path.read_text()
        for first, second in re.findall(r'command_start\([^;]*;\s*command_add_text\([^,]*, "([A-Z]+)"\);\s*'
                                        r'(?:command_add_text\([^,]*, "([A-Z-]+)"\))?', text):
            yield f"{first} {second}" if first in ("CLUSTER", "SENTINEL", "CONFIG", "CLIENT") else first
        for words in re.findall(r'(?:start_command\(x, |FOR_[A-Z]+, |greet_with_word\(link, )"([A-Z ]+)', text):
            words = words.split()
            yield " ".join(words[:2]) if words[0] in ("CLUSTER", "CONFIG", "CLIENT") else words[0]


def since(server, command):
    name = command.replace(" ", "|")
    container = server.command("COMMAND", "DOCS", name.split("|")[0])
    assert container, f"the server does not know {command}"
    found = dict(zip(container[1][::2], container[1][1::2]))
    if "|" in name:
        subcommands = dict(zip(found["subcommands"][::2], found["subcommands"][1::2]))
        found = dict(zip(subcommands[name][::2], subcommands[name][1::2]))
    return tuple(map(int, found["since"].split(".")))


@test
def no_command_is_newer_than_6_2():
    used = {command.lower() for command in (*in_scripts(), *in_sources())}
    assert used >= SURE, f"the search finds too little: {SURE - used}"
    with Redis() as server:
        newer = {command: since(server, command) for command in used - OF_SENTINEL}
        assert all(version <= NEWEST for version in newer.values()), \
            {command: version for command, version in newer.items() if version > NEWEST}


main()
