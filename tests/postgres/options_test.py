#!/usr/bin/env python3
"""What libpq reads besides the URL, and where passwords come from: options_test.py HOLDFAST PUPPET."""
import contextlib
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers import connecting
from servers.postgres import Postgres, patient
from servers.process import reserve_port
from servers.scene import wait_until
from servers.suite import main, test


def works(url, **options):
    connecting.works(patient(url), **options)


def fails(url, *words, **options):
    connecting.fails(patient(url), *words, **options)


@test
def a_password_can_come_from_a_descriptor_a_variable_or_a_file():
    with Postgres() as server:
        server.command("CREATE ROLE app LOGIN SUPERUSER PASSWORD 's3cret'")
        (server.data / "pg_hba.conf").write_text("local all all trust\nhost all all all scram-sha-256\n")
        server.restart()
        url = server.url(user="app")
        works(f"{url}?password_fd=5", secret="s3cret")
        fails(f"{url}?password_fd=5", "password authentication failed", secret="wrong")
        fails(f"{url}?password_fd=5", "descriptor 5")  # which is not open
        works(f"{url}?password_env=SECRET", SECRET="s3cret")
        fails(f"{url}?password_env=SECRET", "SECRET")
        secret = server.folder / "password"
        secret.write_text("s3cret\n")
        secret.chmod(0o600)
        works(f"{url}?password_file={secret}")
        secret.chmod(0o644)
        fails(f"{url}?password_file={secret}", str(secret))


@test
def what_the_url_leaves_out_is_in_the_environment_or_a_service():
    with Postgres() as server, contextlib.closing(reserve_port()) as nobody:
        here, nowhere = str(server.port), nobody.getsockname()[1]
        works("postgres://postgres@127.0.0.1/postgres", PGPORT=here)
        works("postgres://postgres@localhost/postgres", PGPORT=here)
        works(f"postgres://postgres@127.0.0.1:{here}/postgres", PGPORT=str(nowhere))
        works(f"postgres://postgres@127.0.0.1:{nowhere},127.0.0.1:{here}/postgres", PGPORT="1")
        works(f"postgres:///postgres?port={here}&user=postgres", PGHOST="127.0.0.1")
        works("postgres://postgres@/postgres", PGHOST=str(server.folder), PGPORT=here)
        works("postgres://postgres@127.0.0.2,127.0.0.1/postgres", PGPORT=here)  # the port of each host
        works(f"postgres://postgres@127.0.0.2,127.0.0.1:{here}/postgres")  # the first has the default port
        works("postgres://postgres@127.0.0.1", PGPORT=here, PGDATABASE="postgres")
        works("postgres:///", PGHOSTADDR="127.0.0.1", PGPORT=here, PGUSER="postgres")
        services = server.folder / "services"
        services.write_text(f"[locks]\nhost=127.0.0.1\nport={here}\nuser=postgres\ndbname=postgres\n"
                            f"[elsewhere]\nhost=127.0.0.1\nport={nowhere}\nuser=postgres\ndbname=postgres\n")
        files = {"PGSERVICEFILE": str(services)}
        works("postgres:///", PGSERVICE="locks", **files)
        works("postgres:///?service=locks", PGSERVICE="elsewhere", **files)
        works(f"postgres://127.0.0.1:{here}/?service=elsewhere", **files)
        fails("postgres:///?service=elsewhere", "refused", **files)


@test
def of_several_hosts_the_one_that_takes_locks_is_used():
    with Postgres() as primary, Postgres(follows=primary) as standby:
        works(primary.url())
        wait_until(lambda: standby.command("SELECT to_regclass('holdfast.claims')"), "replication")
        both = f"postgres://postgres@127.0.0.1:{standby.port},127.0.0.1:{primary.port}/postgres"
        works(both)
        works(f"{both}?target_session_attrs=primary")
        works(f"postgres:///postgres?host=127.0.0.1,localhost&port={standby.port},{primary.port}&user=postgres")
        works(f"postgres:///postgres?hostaddr=127.0.0.1,127.0.0.1&port={standby.port},{primary.port}&user=postgres")
        fails(standby.url(), "read-only")
        fails(f"{both}?target_session_attrs=standby", "standby")


main()
