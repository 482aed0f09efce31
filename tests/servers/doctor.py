"""What `holdfast doctor` reports about a store, for tests whose first argument is the command."""
import json
import os
import subprocess
import sys
import tempfile

from servers.process import LIMIT_S
from servers.suite import equal

WORDS = ["ok", "note", "warning", "problem"]
OF_HOST = {"clock-sync", "clock-rate", "round-trip", "lease"}  # what the command itself adds


def doctor(url, *words, env=None):
    """(exit code, {id: finding}, the whole answer)."""
    with tempfile.TemporaryDirectory(prefix="holdfast-doctor-") as home:
        keep = {key: value for key, value in os.environ.items()
                if not key.startswith("HOLDFAST_")}
        done = subprocess.run([os.path.abspath(sys.argv[1]), "doctor", "--json", *words], capture_output=True, text=True,
                              timeout=LIMIT_S, stdin=subprocess.DEVNULL, check=False,
                              env=keep | {"HOLDFAST_URL": url, "HOME": home, "XDG_CONFIG_HOME": home} | (env or {}))
    equal(done.stderr, "")
    answer = json.loads(done.stdout)
    worst = max(WORDS.index(finding["severity"]) for finding in answer["findings"])
    if answer["error"] is None:
        equal(done.returncode, max(0, worst - 1))
    for finding in answer["findings"]:
        assert finding["means"] and (finding["fix"] or WORDS.index(finding["severity"]) < 2), finding
    found = {finding["id"]: finding for finding in answer["findings"]}
    equal(len(found), len(answer["findings"]))
    return done.returncode, found, answer


def severities(found):
    """The store's findings that are not fine: {id: severity}."""
    return {name: finding["severity"] for name, finding in found.items()
            if name not in OF_HOST and finding["severity"] != "ok"}


def contains(text, *words):
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"


# ---- Rights ----

SEVERITY = {"rights": "problem", "wake-ups": "warning", "looking": "warning", "key-rights": "note",
            "counter-rights": "note"}  # of a missing right


def rights_of(user):
    """{right: where its lack is reported}."""
    told = {"+subscribe": "wake-ups", "+ping": "wake-ups", "+scan": "looking", "+hgetall": "looking",
            "+unsubscribe": "key-rights", "&__keyspace@*__:holdfast:*": "key-rights", "+incrby": "counter-rights"}
    return {word: told.get(word, "rights") for word in user.split() if word[0] in "+~&"}


def set_user(server, user, without=None):
    name, *rules = user.split()[1:]
    server.command("ACL", "SETUSER", name, "reset", *(rule for rule in rules if rule != without))
