#!/usr/bin/env python3
"""Passwords on their way to real Redis servers: no command that holdfast runs gets them, wherever they were
kept, and no output shows them. secrets_test.py HOLDFAST"""
import contextlib
import json
import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.redis import Redis, set_url
from servers.passwords import OTHER, PASSWORD, check_child, check_hidden, holdfast, places, secret_file
from servers.sentinel import Sentinels
from servers.suite import equal, main, test

DENIED, CONFIG = 77, 78


# ---- Every way to name a password ----


@test
def a_command_finds_no_password_that_the_url_names():
    with Redis(password=PASSWORD) as server, secret_file() as (path, fd):
        for place, given in places(path, fd):
            for option in (place, f"{place}&timeout=5000", f"timeout=5000&{place}"):
                check_child("--url", f"{server.url()}?{option}", **given)
                check_child(HOLDFAST_URL=f"{server.url()}?{option}", **given)


@test
def a_command_finds_no_password_that_is_in_the_url():
    with Redis(password=PASSWORD) as server:
        url = server.url().replace("://", f"://:{PASSWORD}@")
        check_child(HOLDFAST_URL=url)
        with secret_file() as (path, _):
            configure(path.parent, f"url = {url}")
            check_child(XDG_CONFIG_HOME=path.parent)
            check_child("--url", server.url(), "--password-file", path, HOLDFAST_URL=url)  # which is not used


@test
def a_command_finds_no_password_that_an_option_or_the_configuration_names():
    with Redis(password=PASSWORD) as server, secret_file() as (path, fd):
        for name, value, given in (("file", path, {}), ("env", "PW", {"PW": PASSWORD}), ("fd", fd, {"fd": fd})):
            check_child("--url", server.url(), f"--password-{name}", value, **given)
            for head, words in (("", ()), ("[profile p]\n", ("--profile", "p"))):
                configure(path.parent, f"{head}url = {server.url()}\npassword-{name} = {value}")
                check_child(*words, XDG_CONFIG_HOME=path.parent, **given)
                configure(path.parent, f"{head}url = {server.url()}?password_{name}={value}")
                check_child(*words, XDG_CONFIG_HOME=path.parent, **given)


def configure(folder, text):
    (folder / "holdfast").mkdir(exist_ok=True)
    (folder / "holdfast/config").write_text(text + "\n")
    (folder / "holdfast/config").chmod(0o600)


@test
def a_command_finds_no_password_of_the_sentinels():
    with Sentinels(replicas=0, sentinels=1, server_password=PASSWORD, sentinel_password=OTHER) as scene, \
            secret_file(OTHER) as (path, fd):
        for place, given in places(path, fd, "sentinel_"):
            check_child("--url", scene.url(f"?{place}&password_env=PW2"), PW2=PASSWORD, **given)


@test
def all_servers_of_a_set_get_the_password():
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Redis(password=PASSWORD)) for _ in range(3)]
        path, fd = stack.enter_context(secret_file())
        for number, (place, given) in enumerate(places(path, fd)):
            for server in servers:
                server.command("FLUSHALL")
            check_child("--url", set_url(servers, f"init=yes&node_timeout=10000&{place}", f"set{number}"), **given)


@test
def the_holder_in_the_background_shows_no_password():
    with Redis(password=PASSWORD) as server, secret_file() as (path, fd):
        for place, given in places(path, fd):
            code, out = holdfast("acquire", "x", "--for", "30s", "--url", f"{server.url()}?{place}",
                                 XDG_RUNTIME_DIR=path.parent, **given)
            equal((code, out), (0, out))
            hold = dict(word.split("=", 1) for word in out.split("; ")[:4])
            folder = Path("/proc") / str(holder_of(server))
            seen = (folder / "environ").read_text() + (folder / "cmdline").read_text()
            seen += "".join(f"\n-> {os.readlink(link)}" for link in (folder / "fd").iterdir())
            equal(holdfast("release", XDG_RUNTIME_DIR=path.parent, **hold)[0], 0)
            check_hidden(seen)


def holder_of(server):
    """The pid of the holder of x."""
    code, out = holdfast("inspect", "x", "--json", HOLDFAST_URL=server.url().replace("://", f"://:{PASSWORD}@"))
    equal((code, out), (0, out))
    return json.loads(out)["holders"][0]["pid"]


# ---- What is printed ----


@test
def no_output_has_a_password():
    """Covers every command that gets a password: success, a server that refuses it, a server that repeats it, and
    no server."""
    with Redis(password=PASSWORD) as server, Redis(password=OTHER + "x") as denies, \
            Redis(config=['rename-command AUTH ""']) as repeats, secret_file() as (path, _):
        with Redis(password=PASSWORD) as gone:
            pass
        report, metrics = path.parent / "report", path.parent / "metrics.prom"
        for port in (server.port, denies.port, repeats.port, gone.port):
            url = f"redis://:{PASSWORD}@127.0.0.1:{port}/0?connect_timeout=500&timeout=500"
            for words in (("run", "-v", "--report", report, "--metrics-file", metrics, "-w", "1s", "x", "true"),
                          ("ls",), ("ls", "--json"), ("inspect", "x"), ("inspect", "--json", "x"), ("doctor",),
                          ("doctor", "--json"), ("config", "show", "--origin"), ("config", "show", "--json"),
                          ("break", "x", "--token", "1", "--yes"), ("acquire", "x", "-n", "--for", "1s"),
                          ("watch", "--json")):
                check_hidden(holdfast(*words, prefix=("timeout", "-s", "INT", "0.5") if words[0] == "watch" else (),
                                      HOLDFAST_URL=url, XDG_RUNTIME_DIR=path.parent)[1])
            check_hidden(report.read_text() + metrics.read_text())


@test
def a_login_that_is_refused_says_what_to_check():
    with Redis(password=PASSWORD) as server, Redis() as without:
        url, open_url = f"127.0.0.1:{server.port}", f"127.0.0.1:{without.port}"
        for login, words in ((url, ("the server asks for a password", "--password-file")),
                             (f":wrong@{url}", ("does not know this user and password", "--password-file")),
                             (f":{PASSWORD}@{open_url}", ("has no password", "--password-file"))):
            for command in (("run", "x", "true"), ("ls",)):
                code, out = holdfast(*command, HOLDFAST_URL=f"redis://{login}")
                equal((login, code), (login, DENIED))
                for word in words:
                    assert word in out, f"{word!r} is not in {out!r}"
                assert '"x"' not in out and "owner" not in out, out
        code, out = holdfast("run", "x", "true", HOLDFAST_URL=f"redis://{open_url}/4711")
        equal(code, CONFIG)
        assert "no database with this number" in out, out
        code, out = holdfast("run", "x", "true", HOLDFAST_URL=f"redis+sentinel://{open_url}/orders")
        equal(code, DENIED)
        assert "the server is not a sentinel" in out, out


main()
