#!/usr/bin/env python3
"""The Redis store over TLS, with real servers and certificates made for this test: tls_test.py HOLDFAST PUPPET
"""
import contextlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers import suite
from servers.certificates import Authority, openssl
from servers.cluster import Cluster
from servers.process import LIMIT_S
from servers.puppet import Puppet
from servers.redis import Redis
from servers.redis import patient as slowly
from servers.sentinel import SERVICE, Sentinels
from servers.suite import equal, main, test
from support.everyone import copy_for_everyone
from support.tap import Skipped

suite.LIMIT_S = 240  # Sentinels, Clusters and many handshakes need their time
HOLDFAST, PUPPET = map(os.path.abspath, sys.argv[1:3])
BAD_URL = "the URL of the store is not valid: "
DENIED = "the store does not permit it: "
UNREACHABLE = "cannot reach "
SECRET = "hunter2"
USER = f"user jo on >{SECRET} allkeys allchannels allcommands"
OURS, STRANGERS = Authority(), Authority("strangers")


# ---- Words of the tests ----


def run(url, *command, env=None, holdfast=(HOLDFAST,)):
    """(exit code, output, errors) of a command with a lock."""
    with tempfile.TemporaryDirectory(prefix="holdfast-tls-") as home:
        os.chmod(home, 0o755)
        keep = {key: value for key, value in os.environ.items()
                if not key.startswith("HOLDFAST_")}
        done = subprocess.run([*holdfast, "run", "--store-wait", "0s", "name", "--", *(command or ["true"])],
                              capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
                              env=keep | {"HOLDFAST_URL": url, "HOME": home, "XDG_CONFIG_HOME": home} | (env or {}))
    return done.returncode, done.stdout, done.stderr


def works(url, env=None):
    equal(run(url, "echo", "done", env=env), (0, "done\n", ""))


def refused(url, begin, *words, **options):
    """Checks that the command does not run, and that the error says why."""
    code, out, err = run(url, "echo", "done", **options)
    assert code and not out, (code, out, err)
    for word in (begin, *words):
        assert word in err, f"{word!r} is not in {err!r}"
    assert SECRET not in err, err


def url_of(server, ca=None, **options):
    """The server's URL, with other options than its own."""
    options = {"ca": ca} | options if ca else options
    who = f"jo:{SECRET}@" if server.users else ""
    words = "&".join(f"{key}={value}" for key, value in options.items())
    return f"rediss://{who}127.0.0.1:{server.port}/0" + (f"?{words}" if words else "")


@contextlib.contextmanager
def listening(serve):
    """A port at which each connection is handed to serve(socket), on a separate thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def accept():
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def copy(source, target, note=lambda data: None):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            note(data)
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


class Front:
    """Terminates TLS in front of a server without it, as people do with stunnel, and records for each connection
    whether its session was resumed."""

    def __init__(self, server, certificate, version=None):
        self.server = server
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate.cert, certificate.key)
        if version:
            self.context.maximum_version = version
        self.reused, self.open = [], []

    def serve(self, raw):
        with contextlib.suppress(OSError), self.context.wrap_socket(raw, server_side=True) as client, \
                socket.create_connection(("127.0.0.1", self.server.port)) as server:
            self.reused.append(client.session_reused)
            self.open.append(client)
            threading.Thread(target=copy, args=[server, client], daemon=True).start()
            copy(client, server)

    def cut(self):
        """Ends all connections without a TLS close."""
        cut, self.open = self.open, []
        for client in cut:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(client, socket.SHUT_RDWR)


def wait_until(condition, what):
    until = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until, f"in vain: {what}"
        time.sleep(0.005)


# ---- It works ----


@test
def a_lock_is_taken_over_tls_with_a_user():
    with Redis(tls=OURS.issue("server"), users=[USER]) as server:
        works(server.url(user="jo"))
        works(url_of(server, OURS.ca))
        works(url_of(server, OURS.ca).replace("127.0.0.1", "localhost"))


@test
def the_cas_of_the_system_are_trusted_where_none_is_named():
    with Redis(tls=OURS.issue("server")) as server:
        works(url_of(server), env={"SSL_CERT_FILE": str(OURS.ca)})
        refused(url_of(server), DENIED, "CA that is not trusted here", "/CN=authority", "ca=")


@test
def the_cas_may_be_given_as_a_folder():
    with Redis(tls=OURS.issue("server")) as server, tempfile.TemporaryDirectory() as folder:
        shutil.copy(OURS.ca, f"{folder}/one.pem")
        refused(url_of(server, folder), DENIED, "not trusted here")
        openssl("rehash", folder)
        works(url_of(server, folder))


@test
def openssl_is_loaded_only_where_it_is_asked_for():
    with Redis(tls=OURS.issue("server")) as server:
        loaded = [run(url, "sh", "-c", "cat /proc/$PPID/maps")[1]
                  for url in (server.url(), server.url(unix=True))]
        equal(["holdfast-redis.so" in maps for maps in loaded], [True, True])
        equal(["libssl" in maps for maps in loaded], [True, False])


@test
def without_the_module_it_is_named_with_what_would_bring_it():
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(f"{os.path.dirname(HOLDFAST)}/holdfast-redis.so", f"{folder}/holdfast-redis.so")
        refused("rediss://localhost", "the module holdfast-tls.so is not in " + folder, "make install",
                env={"HOLDFAST_MODULE_PATH": folder})


# ---- The server's certificate ----


@test
def a_certificate_of_another_ca_is_refused():
    with Redis(tls=OURS.issue("server"), users=[USER]) as server:
        refused(url_of(server, STRANGERS.ca), DENIED, "comes from a CA that is not trusted here (/CN=authority)")


@test
def a_self_signed_certificate_is_refused_unless_it_is_named():
    alone = OURS.issue("alone", self_signed=True)
    with Redis(tls=alone) as server:
        refused(url_of(server, OURS.ca), DENIED, "the server's certificate is self-signed", "ca=")
        works(url_of(server, alone.cert))


@test
def a_certificate_out_of_its_time_is_refused():
    with Redis(tls=OURS.issue("old", start=-20, end=-1)) as server:
        refused(url_of(server, OURS.ca), DENIED, "the server's certificate expired at 20")
    with Redis(tls=OURS.issue("early", start=1)) as server:
        refused(url_of(server, OURS.ca), DENIED, "the server's certificate is not valid before 20", "clock")


@test
def a_certificate_for_another_host_is_refused():
    with Redis(tls=OURS.issue("elsewhere", names="DNS:db.example,IP:10.0.0.7"), users=[USER]) as server:
        refused(url_of(server, OURS.ca), DENIED, "is not for 127.0.0.1, but for db.example, 10.0.0.7")
        refused(url_of(server, OURS.ca).replace("127.0.0.1", "localhost"), DENIED, "is not for localhost, but for")
        refused(url_of(server, OURS.ca, server_name="x.example"), DENIED, "is not for x.example")
        works(url_of(server, OURS.ca, server_name="db.example"))


@test
def a_certificate_without_names_is_for_its_common_name():
    with Redis(tls=OURS.issue("common.example", names=None)) as server:
        refused(url_of(server, OURS.ca), DENIED, "is not for 127.0.0.1, but for /CN=common.example")
        works(url_of(server, OURS.ca, server_name="common.example"))


# ---- The client's certificate ----


@test("TLSv1.2", "TLSv1.3")
def a_client_certificate_is_shown(version):
    asks = ["tls-auth-clients yes", f"tls-protocols {version}"]
    good, old = OURS.issue("client"), OURS.issue("old-client", start=-20, end=-1)
    strange = STRANGERS.issue("client")
    with Redis(tls=OURS.issue("server"), config=asks) as server:
        works(url_of(server, OURS.ca, cert=good.cert, key=good.key))
        refused(url_of(server, OURS.ca), DENIED, "asks for a client certificate")
        refused(url_of(server, OURS.ca, cert=strange.cert, key=strange.key), DENIED,
                "refuses the client certificate", "CA")
        refused(url_of(server, OURS.ca, cert=old.cert, key=old.key), DENIED, "refuses the client certificate", "expired")


@test
def files_that_are_wrong_are_reported_before_anything_is_connected():
    one, two = OURS.issue("one"), OURS.issue("two")
    sealed = OURS.folder / "sealed.key"
    openssl("pkey", "-in", one.key, "-aes256", "-passout", "pass:x", "-out", sealed)
    url = "rediss://localhost:1/0?"
    refused(url + f"cert={one.cert}&key={two.key}", BAD_URL, "does not belong to the certificate")
    refused(url + f"cert={one.cert}&key={sealed}", BAD_URL, "has a passphrase")
    sealed.chmod(0o644)
    refused(url + f"cert={one.cert}&key={sealed}", BAD_URL, f"the key {sealed} is refused (every user of this host")
    refused(url + f"cert={one.cert}", BAD_URL, "must both be given")
    refused(url + f"key={one.key}", BAD_URL, "must both be given")
    refused(url + "ca=/does/not/exist", BAD_URL, "cannot read the CA /does/not/exist: No such file")
    refused(url + f"ca={one.key}", BAD_URL, f"the CA {one.key} cannot be used")
    refused(url + f"cert=/does/not/exist&key={one.key}", BAD_URL, "cannot read the certificate /does/not/exist: No such")
    refused(url + f"cert={one.key}&key={one.key}", BAD_URL, f"the certificate {one.key} cannot be used")
    refused(url + f"cert={one.cert}&key=/does/not/exist", BAD_URL, "cannot read the key /does/not/exist: No such file")
    one.cert.chmod(0o600)
    refused(url + f"cert={one.cert}&key={one.cert}", BAD_URL, f"the key {one.cert} cannot be used")
    refused(url + "server_name=", BAD_URL, "is not a name")
    refused("rediss+cluster://localhost:1?ca=/nowhere/ca.crt", BAD_URL, "the CA /nowhere/ca.crt")
    refused("rediss+sentinel://localhost:1", BAD_URL, "rediss+sentinel://a:26379,b,c/SERVICE")
    refused("redis://localhost?ca=x", BAD_URL, "it needs a URL that begins with rediss")
    os.chmod(one.key, 0)
    url += f"cert={one.cert}&key={one.key}"
    if os.geteuid() != 0:
        refused(url, BAD_URL, "cannot read the", "Permission denied")
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-tls-") as folder:
        copy = copy_for_everyone(HOLDFAST, folder)
        refused(url, BAD_URL, "cannot read the", "Permission denied",
                holdfast=("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", copy))


# ---- Mismatched protocols ----


@test
def nothing_leaves_in_plaintext_to_a_server_without_tls():
    sent = bytearray()
    with Redis(users=[USER]) as server:
        def serve(client):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port)) as upstream:
                threading.Thread(target=copy, args=[upstream, client], daemon=True).start()
                copy(client, upstream, sent.extend)

        with listening(serve) as port:
            for _ in range(3):  # how a server without TLS reacts depends on chance
                refused(f"rediss://jo:{SECRET}@127.0.0.1:{port}?timeout=700&connect_timeout=700", UNREACHABLE, "TLS")
    assert sent.startswith(b"\x16\x03\x01"), sent[:3]
    for word in (b"AUTH", b"EVAL", b"name", SECRET.encode()):
        assert word not in sent, sent


@test
def a_server_that_says_nothing_is_left_in_time():
    with listening(lambda client: client.recv(1 << 20) and time.sleep(LIMIT_S)) as port:
        began = time.monotonic()
        refused(f"rediss://127.0.0.1:{port}?connect_timeout=500", UNREACHABLE, "did not complete the TLS handshake in time")
        assert 0.4 < time.monotonic() - began < 10


@test
def a_server_of_old_versions_alone_is_refused():
    old = ["tls-protocols TLSv1.1", "tls-ciphers DEFAULT@SECLEVEL=0"]
    with Redis(tls=OURS.issue("server"), config=old) as server:
        refused(url_of(server, OURS.ca), UNREACHABLE, "no TLS of version 1.2 or later")


@test
def plaintext_to_a_port_of_tls_is_reported():
    with Redis(tls=OURS.issue("server")) as server:
        refused(f"redis://127.0.0.1:{server.port}?timeout=500", "did not answer", "a URL that begins with rediss")


@test
def plaintext_beyond_private_networks_is_refused_unless_it_is_asked_for():
    for host in ("203.0.113.5", "128.0.0.1", "[::2]", "[::ffff:203.0.113.5]"):
        refused(f"redis://jo:{SECRET}@{host}", BAD_URL, "rediss://", "plaintext=yes")
    refused("redis://db.example?plaintext=no", BAD_URL, "plaintext")
    refused("rediss://localhost?plaintext=yes", BAD_URL, "no option \"plaintext\"")
    with Redis() as server:
        for host in ("localhost", "127.0.0.1"):
            works(f"redis://{host}:{server.port}")
        works(f"redis://127.0.0.1:{server.port}?plaintext=yes")
        works(server.url(unix=True))


OUTPOST = """
import socket, subprocess, sys, threading
holdfast, kind = sys.argv[1:]
far = socket.create_server(("203.0.113.5", 7001))
near = socket.create_server(("127.0.0.1", 7000))
answers = {"sentinel": b"*2\\r\\n$11\\r\\n203.0.113.5\\r\\n$4\\r\\n7001\\r\\n",
           "cluster": b"*1\\r\\n*3\\r\\n:0\\r\\n:16383\\r\\n*3\\r\\n$11\\r\\n203.0.113.5\\r\\n:7001\\r\\n$1\\r\\nA\\r\\n"}

def answer(connection):
    while heard := connection.recv(4096):
        connection.sendall(b"+OK\\r\\n" if b"AUTH" in heard else answers[kind])

def serve():
    while True:
        threading.Thread(target=answer, args=near.accept()[:1], daemon=True).start()

threading.Thread(target=serve, daemon=True).start()
path = "/orders" if kind == "sentinel" else ""
done = subprocess.run([holdfast, "run", "x", "true"], capture_output=True, text=True, timeout=20,
                      env={"HOLDFAST_URL": f"redis+{kind}://jo:hunter2@127.0.0.1:7000{path}", "HOME": "/nonexistent"})
far.settimeout(0.2)
try:
    print("connected to:", far.accept()[0].recv(4096))
except TimeoutError:
    print("nobody came")
print(done.returncode, done.stderr)
"""


def in_a_network_with(script, *words):
    """Runs Python in a separate network, where lo also has a public address."""
    setup = 'ip link set lo up && ip addr add 203.0.113.5/32 dev lo && exec "$@"'
    return subprocess.run(["unshare", "-n", "sh", "-c", setup, "sh", sys.executable, "-c", script, *words],
                          capture_output=True, text=True, timeout=LIMIT_S)


@test
def a_server_beyond_private_networks_that_another_names_is_not_connected_to():
    """A sentinel, or a node of a Cluster, on this host names one that is not: it must never see the password."""
    if in_a_network_with("pass").returncode:
        raise Skipped("not permitted here: a network namespace")
    for kind in ("sentinel", "cluster"):
        done = in_a_network_with(OUTPOST, HOLDFAST, kind)
        assert done.stdout.startswith("nobody came\n78 "), (kind, done)
        assert "203.0.113.5:7001 is not a private address" in done.stdout, done
        assert "plaintext=yes" in done.stdout and SECRET not in done.stdout, done


@test
def doctor_knows_when_certificates_expire():
    def found(server_days, client_days):
        client = OURS.issue("client", end=client_days)
        with Redis(tls=OURS.issue("server", end=server_days)) as server, tempfile.TemporaryDirectory() as home:
            done = subprocess.run([HOLDFAST, "doctor", "--json"], capture_output=True, text=True, timeout=LIMIT_S,
                                  env=os.environ | {"HOME": home, "XDG_CONFIG_HOME": home, "HOLDFAST_URL": url_of(
                                      server, OURS.ca, cert=client.cert, key=client.key)})
            findings = {each["id"]: each for each in json.loads(done.stdout)["findings"]}
            assert "plaintext" not in findings, findings
            return [findings[name]["severity"] for name in ("certificate", "client-certificate")], \
                findings["certificate"]["found"]

    for days, severity in (("31", "ok"), ("29.0", "warning"), ("3.5", "warning"), ("2.9", "problem")):
        severities, text = found(float(days), 90)
        equal(severities, [severity, "ok"])
        assert text.endswith(f"expires in {days} days"), text
    equal(found(90, 20)[0], ["ok", "warning"])
    equal(found(90, -1)[0], ["ok", "problem"])  # which this server does not look at


# ---- Sentinels and Clusters ----


def with_host(url, host):
    return url.replace("127.0.0.1", host)


@test
def a_master_that_sentinels_name_must_have_a_certificate_for_its_address():
    with Sentinels(tls=OURS.issue("server")) as scene:
        works(scene.url())
        works(with_host(scene.url(), "localhost"))
        refused(scene.url().replace(str(OURS.ca), str(STRANGERS.ca)), DENIED, "comes from a CA that is not trusted here")
        refused(scene.url().replace("rediss", "redis").split("?")[0], UNREACHABLE, "a URL that begins with rediss")
    with Sentinels(tls=OURS.issue("server", names="DNS:localhost,DNS:db.example")) as scene:
        refused(scene.url(), DENIED, "is not for 127.0.0.1")
        refused(with_host(scene.url(), "localhost"), DENIED, "is not for 127.0.0.1, but for localhost, db.example")
        works(scene.url("?server_name=db.example"))
    with Sentinels(tls=OURS.issue("server", names="DNS:localhost"), sentinel_config=[
            "sentinel resolve-hostnames yes", "sentinel announce-hostnames yes"], host="localhost") as scene:
        works(with_host(scene.url(), "localhost"))


@test
def a_master_without_tls_is_not_talked_to():
    with Sentinels(users=[USER]) as scene, Authority() as authority:
        front = Front(scene.sentinels[0], authority.issue("server"))
        with listening(front.serve) as port:
            refused(f"rediss+sentinel://jo:{SECRET}@127.0.0.1:{port}/{SERVICE}?ca={authority.ca}", UNREACHABLE,
                    "is this its TLS port?")


@test
def a_node_must_have_a_certificate_for_what_it_announces():
    with Cluster(masters=3, replicas=0, tls=OURS.issue("server")) as cluster:
        works(cluster.url())
        works(with_host(cluster.url(), "localhost"))
        refused(cluster.url().replace(str(OURS.ca), str(STRANGERS.ca)), DENIED, "comes from a CA that is not trusted here")
        refused(cluster.url().replace("rediss", "redis").split("?")[0], UNREACHABLE, "a URL that begins with rediss")
    with Cluster(masters=3, replicas=0, tls=OURS.issue("server", names="DNS:localhost,DNS:db.example")) as cluster:
        refused(cluster.url(), DENIED, "is not for 127.0.0.1")
        refused(with_host(cluster.url(), "localhost"), DENIED, "is not for 127.0.0.1, but for localhost, db.example")
        works(cluster.url("?server_name=db.example"))
        for node in cluster.nodes:
            node.command("CONFIG", "SET", "cluster-announce-hostname", "localhost",
                         "cluster-preferred-endpoint-type", "hostname")
        wait_until(lambda: all(str(node.command("CLUSTER", "SLOTS")).count("localhost") >= 3
                               for node in cluster.nodes), "that the nodes know their names")
        works(with_host(cluster.url(), "localhost"))
    with Cluster(masters=3, replicas=0) as cluster:
        refused(cluster.url(f"?ca={OURS.ca}").replace("redis+", "rediss+"), UNREACHABLE, "is this its TLS port?")


@test
def doctor_sees_the_certificates_of_all_masters():
    def found(url):
        with tempfile.TemporaryDirectory() as home:
            done = subprocess.run([HOLDFAST, "doctor", "--json"], capture_output=True, text=True, timeout=LIMIT_S,
                                  env=os.environ | {"HOME": home, "XDG_CONFIG_HOME": home, "HOLDFAST_URL": url})
        findings = {each["id"]: each for each in json.loads(done.stdout)["findings"]}
        return findings["certificate"]["severity"], findings["certificate"]["found"]

    short = OURS.issue("short", end=20)
    with Cluster(masters=6, replicas=0, tls=OURS.issue("server")) as cluster:
        equal(found(cluster.url(count=1))[0], "ok")
        for node in cluster.nodes:
            node.command("CONFIG", "SET", "tls-cert-file", short.cert, "tls-key-file", short.key)
            severity, text = found(cluster.url(count=1))
            equal(severity, "warning")
            assert "the first certificate in the servers' chains" in text and "20.0 days" in text, text
            node.command("CONFIG", "SET", "tls-cert-file", cluster.tls.cert, "tls-key-file", cluster.tls.key)


# ---- Connections ----


@test("TLSv1.2", "TLSv1.3")
def sessions_are_resumed_by_the_subscription_and_by_new_connections(version):
    version = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}[version]
    with Redis() as server:
        front = Front(server, OURS.issue("server"), version)
        with listening(front.serve) as port, \
                Puppet(PUPPET, f"rediss://127.0.0.1:{port}?ca={OURS.ca}") as one, \
                Puppet(PUPPET, f"rediss://127.0.0.1:{port}?ca={OURS.ca}") as two:
            one.hold("a", "x")
            equal(front.reused, [False])
            two.acquire("b", "x", wait_ms=-1)
            wait_until(lambda: len(front.reused) == 3, "a subscription")
            equal(front.reused, [False, False, True])
            for _ in range(5):
                before = len(front.reused)
                front.cut()
                equal(one.renew("a"), "OK")
                wait_until(lambda count=before + 3: len(front.reused) >= count, "both links of one, and a link of the other")
            assert all(front.reused[2:]), front.reused
            equal(one.release("a"), "OK")
            two.granted("b")
            one.quit()
            two.quit()


@test
def a_restart_of_the_server_is_survived():
    with Redis(tls=OURS.issue("server"), users=[USER], config=["appendonly yes"]) as server, \
            Puppet(PUPPET, server.url(user="jo")) as one, Puppet(PUPPET, server.url(user="jo")) as two:
        token = one.hold("a", "x", lease_ms=20000).token
        two.acquire("b", "x", wait_ms=-1)
        for _ in range(3):
            server.restart()
            equal(one.renew("a"), "OK")
        equal(one.release("a"), "OK")
        assert two.granted("b").token > token
        one.quit()
        two.quit()


@test
def a_server_with_another_certificate_after_a_restart_is_verified_again():
    with Redis(tls=OURS.issue("server")) as server, Puppet(PUPPET, url_of(server, OURS.ca)) as one:
        one.hold("a", "x")
        server.tls = STRANGERS.issue("server")
        server.restart()
        one.acquire("b", "y")
        equal(one.failed("b"), "DENIED")
        server.tls = OURS.issue("server")
        server.restart()
        one.hold("c", "y")


@test
def connections_that_are_cut_after_any_byte_lose_nothing():
    """The first connection ends after this many bytes from the server; the next ones live."""
    def serve(client):
        limit = limits.pop() if limits else None
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port)) as upstream:
            threading.Thread(target=copy, args=[client, upstream], daemon=True).start()
            while data := upstream.recv(65536 if limit is None else min(65536, limit)):
                client.sendall(data)
                if limit is not None:
                    limit -= len(data)
                    if limit == 0:
                        client.shutdown(socket.SHUT_RDWR)
                        return

    limits, last = [], 0
    with Redis(tls=OURS.issue("server"), users=[USER]) as server, listening(serve) as port:
        for limit in [*range(1, 20), *range(20, 2600, 61)]:
            limits.append(limit)
            with Puppet(PUPPET, server.url(user="jo", port=port)) as one:
                one.acquire("a", "x")
                line = one.wait(("acquired", "a"), ("failed", "a"))
                if line.words[0] == "failed":  # in the greeting: nothing had been sent
                    equal(line.words[2], "UNREACHABLE")
                    last = max(last, limit)
                    one.hold("b", "x")
                    equal(one.release("b"), "OK")
                else:
                    equal(one.release("a"), "OK")
                one.quit()
    assert 500 < last < 2500, last  # cuts came in both


@test
def a_mebibyte_of_commands_goes_through_at_once():
    with Redis(tls=OURS.issue("server")) as server, Puppet(PUPPET, slowly(server.url()), max_lease_ms=600000) as one:
        server.stop()
        count = 1500
        for number in range(count):
            one.acquire(number, f"{number}-" + "n" * 240, lease_ms=600000)
        server.cont()
        for number in range(count):
            one.granted(number)
        equal(server.command("DBSIZE") >= count, True)


with OURS, STRANGERS:
    main()
