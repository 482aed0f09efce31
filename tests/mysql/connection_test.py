#!/usr/bin/env python3
"""How clients reach a MariaDB server: TLS, passwords, rights, names: connection_test.py HOLDFAST PUPPET."""
import contextlib
import os
import pwd
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers import connecting
from servers.certificates import Authority
from servers.mariadb import PASSWORD, MariaDB, Session, documented, patient
from servers.process import LIMIT_S
from servers.puppet import Puppet
from servers.scene import HOLDFAST, LONG_MS, PUPPET, puppets, wait_until
from servers.suite import equal, main, test


def works(url, **env):
    connecting.works(patient(url), **env)


def fails(url, *words, **env):
    connecting.fails(patient(url), *words, **env)


@test
def tls_verifies_the_certificate():
    with Authority() as authority, Authority("other") as other, MariaDB(tls=authority.issue("server")) as server:
        server.command("ALTER USER holder@'%' REQUIRE SSL")
        for scheme in ("mysqls", "mariadbs"):
            works(f"{server.url(scheme=scheme)}?ca={authority.ca}")
        fails(f"{server.url(scheme='mysqls')}?ca={other.ca}", "certificate")
        fails(server.url(), "Access denied")
        with puppets(2, patient(f"{server.url(scheme='mysqls')}?ca={authority.ca}")) as (one, two):
            one.hold("a", "lock")
            two.acquire("b", "lock", wait_ms=-1)
            equal(one.release("a"), "OK")
            two.granted("b")


@test
def a_certificate_of_another_host_is_refused():
    with Authority() as authority, MariaDB(tls=authority.issue("server", names="DNS:elsewhere.example")) as server:
        url = f"{server.url(scheme='mysqls')}?ca={authority.ca}"
        works(f"{url}&server_name=elsewhere.example")
        fails(url, "elsewhere.example")


@test
def a_server_without_tls_is_refused_before_the_login():
    with Authority() as authority, MariaDB() as server:
        fails(f"{server.url(scheme='mysqls')}?ca={authority.ca}", "does not offer TLS")


@test
def a_public_address_needs_tls():
    fails("mysql://app:word@192.0.2.1/db", "192.0.2.1", "mysqls://", "plaintext=yes")
    fails("mariadb://app:word@192.0.2.1/db", "mariadbs://")


@test
def the_url_is_checked():
    fails("mysql://app:word@127.0.0.1/", "names no database")
    fails("mysql://127.0.0.1/db", "names no user")
    fails("mysql://app:word@a,b/db", "one host")
    fails("mysql://app:word@127.0.0.1/db?nonsense=1", "nonsense")


@test
def the_password_is_where_the_url_says():
    with MariaDB() as server:
        secret = server.folder / "password"
        secret.write_text(PASSWORD + "\n")
        secret.chmod(0o600)
        url = server.url(user="holder")
        works(f"{url}?password_file={secret}")
        works(f"{url}?password_env=SECRET", SECRET=PASSWORD)
        works(server.url())
        works(server.url(scheme="mariadb"))
        works(server.url().replace("127.0.0.1", "localhost"))
        works(server.url(unix=True))
        fails(url, "Access denied")
        fails(f"{url}?password_env=SECRET", "Access denied", SECRET="wrong")
        fails(server.url(database="nowhere"), "nowhere")


@test
def a_user_of_this_host_needs_no_password_on_a_socket():
    with MariaDB() as server:
        me = pwd.getpwuid(os.geteuid()).pw_name
        for name in ("other", me):
            server.command(f"CREATE USER IF NOT EXISTS {name}@localhost; GRANT ALL ON locks.* TO {name}@localhost;"
                           f"ALTER USER {name}@localhost IDENTIFIED VIA unix_socket")
        works(server.url(user=me, unix=True))
        fails(server.url(user="other", unix=True), "Access denied")


@test
def row_15_a_server_without_a_free_connection_is_out_of_reach():
    with MariaDB(config=["--max-connections=10"]) as server, contextlib.ExitStack() as stack:
        url = server.url(user=server.make_role(HOLDFAST))
        for _ in range(10):
            stack.enter_context(Session(server, user="app", password=PASSWORD)).say("SELECT 1")
        fails(url, "Too many connections", "cannot reach")
        stack.close()
        wait_until(lambda: connecting.run(patient(url)).returncode == 0, "a free connection")


@test
def a_login_that_is_not_known_is_named():
    with MariaDB() as server:
        server.command("INSTALL SONAME 'auth_ed25519'; CREATE USER other@'%' IDENTIFIED VIA ed25519 USING PASSWORD('word')")
        fails(server.url(user="other:word"), "client_ed25519", "mysql_native_password")


@test
def an_administrator_can_make_the_schema():
    for dialect in ("mysql", "mariadb"):
        with MariaDB() as server:
            printed = subprocess.run([HOLDFAST, "schema", "--dialect", dialect], capture_output=True, text=True, check=True,
                                     timeout=LIMIT_S).stdout
            rights = "".join(line[3:] for line in printed.splitlines(True) if line.startswith("-- GRANT"))
            equal(rights, documented("rights"))
            server.command(printed)
            server.command("CREATE USER app@'%' IDENTIFIED BY 'word';" + rights)
            works(server.url(user="app:word"))
            equal(server.command("SELECT COUNT(*) FROM holdfast_locks"), "1")


@test
def the_documented_rights_are_enough_and_needed():
    with MariaDB() as server:
        server.command("CREATE USER app@'%' IDENTIFIED BY 'word'; GRANT USAGE ON *.* TO app@'%'")
        url = server.url(user="app:word")
        fails(url, "denied")
        works(server.url())
        server.command(documented("rights"))
        works(url)
        with puppets(2, patient(url)) as (one, two):
            token = one.hold("a", "lock").token
            equal(two.break_lock("lock", token), "OK")
            one.lost("a")
        for table in ("locks", "claims"):
            for right in ("SELECT", "INSERT", "UPDATE", "DELETE"):
                server.command(f"REVOKE {right} ON holdfast_{table} FROM app@'%'")
                with Puppet(PUPPET, patient(url)) as one:
                    one.acquire("a", f"{table}-{right}")
                    words = one.wait("acquired a", "failed a").words
                    outcomes = [words[2]] if words[0] == "failed" else [one.renew("a"), one.release("a")]
                    equal("DENIED" in outcomes, (table, right) != ("locks", "DELETE"))  # that right is for old names
                server.command(documented("rights"))


@test
def a_listener_has_more_time_to_log_in_than_others():
    """The server takes 3 s to start each session, like one to which all waiters of a lock connect at once."""
    with MariaDB() as server, puppets(2, server.url(user=server.make_role(HOLDFAST)), wait_lease_ms=LONG_MS) as (one, two):
        one.hold("lock", "lock", lease_ms=LONG_MS, wait_ms=-1)
        two.hold("other", "other", lease_ms=LONG_MS, wait_ms=-1)
        server.command("SET GLOBAL init_connect = 'DO SLEEP(3)'")
        two.acquire("lock", "lock", wait_ms=-1)
        wait_until(lambda: one.inspect("lock")["waiters"], "the waiter")
        equal(one.release("lock"), "OK")
        two.granted("lock", limit_s=15)  # without a hint it would ask after a third of its wait lease


main()
