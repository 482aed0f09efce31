#!/usr/bin/env python3
"""Where the passwords of a MariaDB server come from: options_test.py HOLDFAST PUPPET."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers import connecting
from servers.mariadb import PASSWORD, MariaDB, patient
from servers.suite import main, test


def works(url, **options):
    connecting.works(patient(url), **options)


def fails(url, *words, **options):
    connecting.fails(patient(url), *words, **options)


@test
def a_password_can_come_from_a_descriptor_a_variable_or_a_file():
    with MariaDB() as server:
        url = server.url(user="holder")
        works(f"{url}?password_fd=5", secret=PASSWORD)
        fails(f"{url}?password_fd=5", "Access denied", secret="wrong")
        fails(f"{url}?password_fd=5", "descriptor 5")  # which is not open
        works(f"{url}?password_env=SECRET", SECRET=PASSWORD)
        fails(f"{url}?password_env=SECRET", "SECRET")
        secret = server.folder / "password"
        secret.write_text(PASSWORD + "\n")
        secret.chmod(0o600)
        works(f"{url}?password_file={secret}")
        secret.chmod(0o644)
        fails(f"{url}?password_file={secret}", str(secret))


main()
