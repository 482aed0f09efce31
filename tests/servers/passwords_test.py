#!/usr/bin/env python3
"""Passwords on their way to the servers of each store (except Redis, which has its own tests): no command that
holdfast runs gets them, and no output shows them. passwords_test.py HOLDFAST"""
import contextlib
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.etcd import Etcd
from servers.mariadb import MariaDB
from servers.postgres import Postgres
from servers.passwords import OTHER, PASSWORD, check_child, check_hidden, holdfast, places, secret_file
from servers.suite import main, test
from servers.zookeeper import Zookeeper

COMMANDS = (("run", "-v", "-w", "1s", "x", "true"), ("ls", "--json"), ("inspect", "x"), ("doctor",), ("doctor", "--json"),
            ("config", "show", "--origin"), ("acquire", "x", "-n", "--for", "1s"))


@contextlib.contextmanager
def postgres():
    with Postgres() as server:
        server.command(f"CREATE ROLE app LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
        (server.data / "pg_hba.conf").write_text("local all all trust\nhost all all all scram-sha-256\n")
        server.restart()
        yield server.url(user="app")


@contextlib.contextmanager
def mysql():
    with MariaDB() as server:
        server.command(f"CREATE USER app@'%' IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON *.* TO app@'%'")
        yield server.url(user="app")


@contextlib.contextmanager
def etcd():
    with Etcd() as cluster:
        for words in (("user", "add", f"root:{PASSWORD}"), ("user", "grant-role", "root", "root"), ("auth", "enable")):
            cluster.command(*words)
        yield cluster.url(user="root")


@contextlib.contextmanager
def zookeeper():
    with Zookeeper() as server:
        yield server.url(login="jo@", path="/jo")


SERVERS = {"postgres": postgres, "mysql": mysql, "etcd": etcd, "zookeeper": zookeeper}


def with_option(url, option):
    return f"{url}{'&' if '?' in url else '?'}{option}"


@test(*SERVERS)
def a_command_finds_no_password(store):
    with SERVERS[store]() as url, secret_file() as (path, fd):
        for place, given in places(path, fd):
            check_child("--url", with_option(url, place), **given)
            check_child(HOLDFAST_URL=with_option(url, place), **given)
        check_child(HOLDFAST_URL=url.replace("@", f":{PASSWORD}@"))


@test(*SERVERS)
def no_output_has_a_password(store):
    """Covers success, a server that refuses the password, and no server."""
    with SERVERS[store]() as url, secret_file() as (path, _):
        good, bad = (url.replace("@", f":{word}@") for word in (PASSWORD, OTHER))
        for words in COMMANDS:
            for one in good, bad:
                check_hidden(holdfast(*words, HOLDFAST_URL=one, XDG_RUNTIME_DIR=path.parent)[1])
    for words in COMMANDS:
        check_hidden(holdfast(*words, "--store-wait", "1s", HOLDFAST_URL=good)[1])


main()
