#!/usr/bin/env python3
"""How clients reach ZooKeeper: TLS and its certificates, passwords, members that are away: connection_test.py HOLDFAST
PUPPET."""
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers import connecting
from servers.certificates import Authority
from servers.process import reserve_port
from servers.suite import main, test
from servers.zookeeper import Zookeeper, patient


def works(url, **options):
    connecting.works(patient(url), **options)


def fails(url, *words, **options):
    connecting.fails(url, *words, flags=("--store-wait", "2s"), **options)


@test
def tls_verifies_both_sides():
    with Authority() as authority, Authority("other") as other, Zookeeper(tls=authority, client_auth="need") as server:
        mine, strange = authority.issue("client"), other.issue("client")
        right = f"&cert={mine.cert}&key={mine.key}"
        works(server.url() + right)
        fails(server.url(), "not permit", "client certificate")
        fails(server.url() + f"&cert={strange.cert}&key={strange.key}", "not permit", "client certificate")
        fails(f"zookeepers://localhost:{server.secure_port}?ca={other.ca}{right}", "certificate")
        fails(f"zookeeper://127.0.0.1:{server.secure_port}", "127.0.0.1")


@test
def passwords_come_from_where_the_url_says():
    """A client with the right password can use the lock that the first has created."""
    with Zookeeper() as server, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "password"
        file.write_text("secret\n")
        file.chmod(0o600)
        url = server.url(login="jo@", path="/jo")
        works(server.url(login="jo:secret@", path="/jo"))
        works(f"{url}?password_file={file}")
        works(f"{url}?password_env=SECRET", SECRET="secret")
        works(f"{url}?password_fd=5", secret="secret")
        fails(f"{url}?password_env=SECRET", "not permit", SECRET="wrong")
        fails(server.url(path="/jo"), "not permit")
        file.write_text("wrong\n")
        fails(f"{url}?password_file={file}", "not permit")


@test
def a_url_that_makes_no_sense_is_refused():
    fails("zookeeper://127.0.0.1?nonsense=1", "nonsense", "layout")
    fails("zookeeper://127.0.0.1?ca=/x", "no option", "ca")
    fails("zookeeper://127.0.0.1/a//b", "chroot")
    fails("zookeeper://127.0.0.1?layout=redis", "layout", "curator")
    fails("zookeeper://192.0.2.1", "192.0.2.1", "zookeepers", "plaintext=yes")


@test
def a_member_that_is_away_is_passed_over():
    with Zookeeper() as server, reserve_port() as away:
        works(f"zookeeper://127.0.0.1:{away.getsockname()[1]},127.0.0.1:{server.port}")


main()
