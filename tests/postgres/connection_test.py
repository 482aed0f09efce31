#!/usr/bin/env python3
"""How clients reach a PostgreSQL server: TLS, passwords, rights, several hosts, a pooler: connection_test.py HOLDFAST
PUPPET."""
import contextlib
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers import connecting
from servers.certificates import Authority
from servers.pgbouncer import Pooler
from servers.postgres import Postgres, Session, documented, patient
from servers.process import LIMIT_S, reserve_port
from servers.puppet import Puppet
from servers.scene import HOLDFAST, LONG_MS, PUPPET, puppets, wait_until
from servers.suite import equal, main, test
from servers.watch import watching


def run(url, **env):
    return connecting.run(patient(url), **env)


def works(url, **env):
    connecting.works(patient(url), **env)


def fails(url, *words, **env):
    connecting.fails(patient(url), *words, **env)


@contextlib.contextmanager
def tls_server(certificate):
    with Postgres() as server:
        server.use_tls(certificate)
        yield server


@test
def tls_verifies_the_certificate():
    with Authority() as authority, Authority("other") as other, \
            tls_server(authority.issue("server")) as server:
        works(f"{server.url()}?sslmode=verify-full&sslrootcert={authority.ca}")
        fails(f"{server.url()}?sslmode=verify-full&sslrootcert={other.ca}", "certificate verify failed")
        fails(f"{server.url()}?sslmode=disable", "pg_hba.conf")


@test
def a_certificate_of_another_host_is_refused():
    with Authority() as authority, \
            tls_server(authority.issue("server", names="DNS:elsewhere.example")) as server:
        works(f"{server.url()}?sslmode=verify-ca&sslrootcert={authority.ca}")
        fails(f"{server.url()}?sslmode=verify-full&sslrootcert={authority.ca}", "elsewhere.example")


@test
def a_public_address_needs_tls_that_verifies():
    for mode in ("disable", "allow", "require"):
        fails(f"postgres://192.0.2.1/db?sslmode={mode}", "192.0.2.1", "verify-full", "plaintext=yes")


@test
def the_password_is_where_the_url_says():
    with Postgres() as server:
        server.command("CREATE ROLE app LOGIN SUPERUSER PASSWORD 's3cret'")
        (server.data / "pg_hba.conf").write_text("local all all trust\nhost all all all scram-sha-256\n")
        server.restart()
        secret = server.folder / "password"
        secret.write_text("s3cret\n")
        secret.chmod(0o600)
        url = server.url(user="app")
        works(f"{url}?password_file={secret}")
        works(f"{url}?password_env=SECRET", SECRET="s3cret")
        works(url.replace("app@", "app:s3cret@"))
        works(url, PGPASSWORD="s3cret")
        fails(url, "password")
        fails(f"{url}?password_env=SECRET", "password authentication failed", SECRET="wrong")


@test
def a_server_that_is_not_there_is_passed_over():
    with Postgres() as server, contextlib.closing(reserve_port()) as nobody:
        here = f"127.0.0.1:{server.port}"
        works(f"postgres://postgres@127.0.0.1:{nobody.getsockname()[1]},{here}/postgres")
        works(f"postgresql://postgres@localhost:{server.port}/postgres")
        works(server.url(unix=True))
        service = server.folder / "services"
        service.write_text(f"[locks]\nhost=localhost\nport={server.port}\nuser=postgres\ndbname=postgres\n")
        works("postgres:///?service=locks", PGSERVICEFILE=str(service))
        works("postgres:///", PGHOST="127.0.0.1", PGPORT=str(server.port), PGUSER="postgres", PGDATABASE="postgres")
        fails(server.url() + "?nonsense=1", "nonsense")
        fails("postgres:///?service=nobody", "nobody", PGSERVICEFILE=str(service))


@test
def an_administrator_can_make_the_schema():
    printed = subprocess.run([HOLDFAST, "schema", "--dialect", "postgres"], capture_output=True, text=True, check=True,
                             timeout=LIMIT_S).stdout
    rights = "".join(line[3:] for line in printed.splitlines(True) if line.startswith("-- GRANT"))
    equal(rights, documented("rights"))
    with Postgres() as server:
        server.command(printed)
        server.command("CREATE ROLE app LOGIN;" + rights)
        works(server.url(user="app"))


@test
def the_documented_rights_are_enough_and_needed():
    with Postgres() as server:
        server.command("CREATE ROLE app LOGIN")
        url = server.url(user="app")
        fails(url, "denied", "cannot create the schema \"holdfast\"")
        works(server.url())
        fails(url, "permission denied")
        server.command(documented("rights"))
        works(url)
        with Puppet(PUPPET, patient(url)) as one, Puppet(PUPPET, patient(server.url())) as two:
            token = one.hold("a", "lock").token
            equal(two.break_lock("lock", token), "OK")
            one.lost("a")
        rights = [(table, right) for table in ("locks", "claims") for right in ("SELECT", "INSERT", "UPDATE", "DELETE")]
        for table, right in [*rights, ("watchers", "SELECT")]:
            server.command(f"REVOKE {right} ON holdfast.{table} FROM app")
            with Puppet(PUPPET, patient(url)) as one:
                one.acquire("a", f"{table}-{right}")
                words = one.wait("acquired a", "failed a").words
                outcomes = [words[2]] if words[0] == "failed" else [one.renew("a"), one.release("a")]
                equal("DENIED" in outcomes, (table, right) != ("locks", "DELETE"))  # that right is for old names
            server.command(documented("rights"))
        for right in ("INSERT", "UPDATE", "DELETE"):
            server.command(f"REVOKE {right} ON holdfast.watchers FROM app")
            with watching(patient(url), "--json", "other") as watch:
                assert "denied" in watch.expect("polling")["reason"]
            server.command(documented("rights"))


@test
def row_15_a_server_without_a_free_connection_is_out_of_reach():
    with Postgres() as server:
        url = server.url(user=server.make_role())
        server.command("ALTER ROLE app CONNECTION LIMIT 1")
        with Session(server, user="app") as other:
            other.say("SELECT 1")
            fails(url, "too many connections", "cannot reach")
        wait_until(lambda: run(url).returncode == 0, "a free connection")


@test
def a_listener_has_more_time_to_connect_than_others():
    """The server takes 3 s for a login, like one to which all waiters of a lock connect at once."""
    with Postgres() as server, puppets(2, server.url(), wait_lease_ms=LONG_MS) as (one, two):
        one.hold("lock", "lock", lease_ms=LONG_MS, wait_ms=-1)
        two.hold("other", "other", lease_ms=LONG_MS, wait_ms=-1)
        server.command("ALTER SYSTEM SET pre_auth_delay = 3")
        server.command("SELECT pg_reload_conf()")
        two.acquire("lock", "lock", wait_ms=-1)
        wait_until(lambda: one.inspect("lock")["waiters"], "the waiter")
        equal(one.release("lock"), "OK")
        two.granted("lock", limit_s=15)  # without a notification it would ask after a third of its wait lease


@test
def row_33_leases_work_through_a_transaction_pooler():
    with Postgres() as server, Pooler(server) as pooler:
        url = server.url(port=pooler.port)
        wait_until(lambda: run(url).returncode == 0, "the pooler")
        with puppets(3, patient(url), wait_lease_ms=LONG_MS) as (one, two, three):
            token = one.hold("a", "lock", lease_ms=LONG_MS).token
            for number, puppet in enumerate((two, three), 1):
                puppet.acquire("a", "lock", lease_ms=LONG_MS, wait_ms=-1)
                wait_until(lambda: int(server.command("SELECT count(*) FROM holdfast.claims")) == number + 1, "a waiter")
            for before, after in ((one, two), (two, three)):
                equal(before.release("a"), "OK")  # nobody is notified, and the wait lease is long
                grant = after.granted("a")
                assert grant.token > token
                token = grant.token
        with watching(patient(url), "--json", "other") as watch:
            assert "pooler" in watch.expect("polling")["reason"]


main()
