#!/usr/bin/env python3
"""How clients reach an etcd cluster: TLS, passwords, rights, several members: connection_test.py HOLDFAST PUPPET."""
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.certificates import Authority
from servers.connecting import fails, run
from servers.etcd import Etcd, patient
from servers.process import reserve_port
from servers.puppet import Puppet
from servers.scene import LONG_MS, PUPPET, wait_until
from servers.suite import equal, main, test


def works(url, **env):
    done = run(patient(url), **env)
    equal((done.returncode, done.stdout), (0, "done\n"))  # it may print that it waits: a login takes long


@test
def tls_verifies_both_sides():
    with Authority() as authority, Authority("other") as other, Etcd(tls=authority) as cluster:
        works(cluster.url())
        mine, port = cluster.mine, cluster.members[0].port
        fails(f"etcds://127.0.0.1:{port}?ca={other.ca}&cert={mine.cert}&key={mine.key}", "certificate")
        fails(f"etcds://127.0.0.1:{port}?ca={mine.ca}", "127.0.0.1")  # the server demands a certificate
        fails(f"etcd://127.0.0.1:{port}", "etcds")


@test
def the_certificate_names_the_user():
    with Authority() as authority, Etcd(tls=authority) as cluster:
        user = authority.issue(cluster.as_documented().split(":")[0])
        url = f"etcds://127.0.0.1:{cluster.members[0].port}?ca={user.ca}&cert={user.cert}&key={user.key}"
        works(url)
        fails(url + "&prefix=elsewhere/", "not permit", "permission denied")
        fails(cluster.url(), "not permit")  # somebody else's certificate


@test
def a_public_address_needs_tls():
    fails("etcd://192.0.2.1", "192.0.2.1", "etcds", "plaintext=yes")


@test
def a_url_that_makes_no_sense_is_refused():
    fails("etcd://127.0.0.1/path", "no path")
    fails("etcd://127.0.0.1?nonsense=1", "nonsense", "prefix")
    fails("etcd://127.0.0.1?ca=/x", "no option", "ca")
    fails(f"etcd://127.0.0.1?prefix={'x' * 51}", "50 bytes")
    fails("etcd://user@127.0.0.1", "password")


@test
def a_server_that_is_no_etcd_is_named():
    with reserve_port() as silent:
        fails(f"etcd://127.0.0.1:{silent.getsockname()[1]}?timeout=500&connect_timeout=500", "refused")


@test
def passwords_come_from_where_the_url_says():
    with Etcd() as cluster, tempfile.TemporaryDirectory() as folder:
        user, password = cluster.as_documented().split(":")
        file = Path(folder) / "password"
        file.write_text(password + "\n")
        file.chmod(0o600)
        works(cluster.url(user=f"{user}:{password}"))
        works(cluster.url(user=user, options=f"password_file={file}"))
        works(cluster.url(user=user, options="password_env=SECRET"), SECRET=password)
        fails(cluster.url(user=f"{user}:wrong"), "not permit", "authentication failed")
        fails(cluster.url(), "not permit", "user name is empty")
        fails(cluster.url(user=f"{user}:{password}", options="prefix=elsewhere/"), "not permit", "permission denied")


@test
def a_token_that_the_server_forgot_is_renewed_and_a_login_that_begins_to_be_needed_is_made():
    with Etcd(options=["--auth-token-ttl", "1"]) as cluster:
        with Puppet(PUPPET, patient(cluster.url(user="holdfast:secret"))) as one:
            one.hold("lock", "lock", lease_ms=LONG_MS)
            cluster.as_documented()  # this enables it
            equal(one.renew("lock"), "OK")
            one.hold("other", "other", lease_ms=LONG_MS)
            time.sleep(3)  # longer than an unused token lasts
            equal(one.renew("lock"), "OK")
            member, = cluster.members
            member.kill()  # it keeps tokens in memory
            member.start()
            wait_until(lambda: one.renew("lock") == "OK", "a renewal")
            equal(one.release("lock"), "OK")
            equal(one.release("other"), "OK")


@test
def a_member_that_is_away_is_passed_over():
    with Etcd() as cluster, reserve_port() as away:
        works(cluster.url(ports=[away.getsockname()[1], cluster.members[0].port]))


@test
def a_learner_is_passed_over():
    """It answers, but serves nothing."""
    with Etcd() as cluster, Etcd() as other:
        learner = other.members[0]
        learner.kill()
        learner.wipe()
        cluster.command("member", "add", "learner", "--learner", "--peer-urls", learner.peer_address())
        learner.name = "learner"
        learner.start(["--initial-cluster", f"m0={cluster.members[0].peer_address()},learner={learner.peer_address()}",
                       "--initial-cluster-state", "existing",
                       "--initial-cluster-token", cluster.folder.name])
        wait_until(lambda: "true" in cluster.command("endpoint", "status", members=[learner]), "the learner")
        works(cluster.url(ports=[learner.port, cluster.members[0].port]))


main()
