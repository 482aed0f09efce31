#!/usr/bin/env python3
"""holdfast doctor on Redis: each finding is provoked on a real server. doctor_test.py HOLDFAST PUPPET
"""
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.doctor import OF_HOST, SEVERITY, WORDS, contains, doctor, rights_of, set_user, severities
from servers.proxy import Proxy
from servers.redis import Redis, documented_users, patient
from servers.scene import HOLDFAST, SHIM
from servers.suite import equal, main, test
from support.tap import need_rights_for

KEY_EVENTS = "notify-keyspace-events Kg$xe"
DURABLE = ["appendonly yes", "appendfsync always", KEY_EVENTS]
LIMIT_S = 30
DAY_S = 86400


def wait_until(condition, what):
    until = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until, f"in vain: {what}"
        time.sleep(0.01)


# ---- Fine ----


@test
def a_well_configured_server_has_nothing_against_it():
    with Redis(config=[*DURABLE, "maxmemory 100mb"]) as server:
        for url in (server.url(), server.url(db=3), server.url(unix=True), server.url() + "?prefix=app%3A"):
            code, found, answer = doctor(url)
            equal((code, severities(found), answer["tier"]), (0, {}, "timed"))
            equal(set(found) - OF_HOST,
                  {"version", "role", "persistence", "eviction", "key-events", "clock", "rights"})
            equal(found["version"]["found"], f"the server is Redis {server.info('server')['redis_version']}")
            assert 0 < answer["write_us"] <= answer["slowest_write_us"], answer


@test
def examining_leaves_nothing_behind():
    with Redis() as server:
        server.command("SET", "holdfast:x", "theirs")
        doctor(server.url())
        equal(server.command("KEYS", "*"), ["holdfast:x"])
        equal(server.command("GET", "holdfast:x"), "theirs")


@test
def people_read_it_worst_first_and_without_the_password():
    with Redis(users=["user app on >s3cret ~* &* +@all"]) as server:
        done = subprocess.run([HOLDFAST, "doctor"], capture_output=True, text=True, timeout=LIMIT_S,
                              env=os.environ | {"HOLDFAST_URL": server.url(user="app")})
        equal((done.returncode, done.stderr), (1, ""))
        contains(done.stdout, "best effort", "warning  nothing is kept on disk", "fix: set appendonly yes")
        assert "s3cret" not in done.stdout, done.stdout


# ---- What the server is ----


@contextlib.contextmanager
def rewriting(server, old, new):
    """A relay to the server that replaces bytes in its replies; yields its port."""
    new = new.ljust(len(old))
    assert len(old) == len(new)
    listener = socket.create_server(("127.0.0.1", 0))
    ends = [listener]

    def pump(source, target, change):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(change(data))
            target.shutdown(socket.SHUT_WR)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                client = listener.accept()[0]
                upstream = socket.create_connection(("127.0.0.1", server.port))
                ends.extend((client, upstream))
                for pair in ((client, upstream, bytes), (upstream, client, lambda data: data.replace(old, new))):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        for end in ends:
            end.close()


@test
def a_server_that_is_too_old_is_a_problem():
    with Redis(config=DURABLE) as server:
        old = f"redis_version:{server.info('server')['redis_version']}".encode()
        with rewriting(server, old, b"redis_version:6.0.9") as port:
            code, found, _ = doctor(server.url(port=port))
        equal((code, severities(found)), (2, {"version": "problem"}))
        contains(found["version"]["found"], "Redis 6.0.9")


@test
def valkey_is_known_by_its_name():
    with Redis(config=DURABLE) as server:
        old = b"redis_git_sha1:00000000\r\nredis_git_dirty:0\r\n"
        with rewriting(server, old, b"valkey_version:8.0.1\r\n#\r\n#\r\n") as port:
            code, found, _ = doctor(server.url(port=port))
        equal((code, found["version"]["found"]), (0, "the server is Valkey 8.0.1"))


@test
def a_replica_is_a_problem_and_its_master_best_effort():
    with Redis(config=DURABLE) as master, Redis(config=DURABLE) as replica:
        replica.command("REPLICAOF", "127.0.0.1", master.port)
        wait_until(lambda: replica.info("replication")["master_link_status"] == "up", "the replica follows")
        code, found, _ = doctor(replica.url())
        equal((code, severities(found)), (2, {"role": "problem"}))
        contains(found["role"]["found"], f"replica, of 127.0.0.1 port {master.port}")
        code, found, answer = doctor(master.url())
        equal((code, severities(found), answer["tier"]), (1, {"role": "warning"}, "best effort"))
        contains(found["role"]["found"], "1 replica")
        contains(found["role"]["means"], "fail-over")


@test
def writes_that_need_replicas_are_noted_and_a_problem_without_them():
    with Redis(config=[*DURABLE, "min-replicas-to-write 1"]) as server, Redis() as replica:
        code, found, answer = doctor(server.url())
        equal((code, severities(found)), (2, {"min-replicas": "note", "write": "problem"}))
        contains(found["write"]["found"], "fewer replicas")
        equal(answer["write_us"], -1)
        replica.command("REPLICAOF", "127.0.0.1", server.port)
        wait_until(lambda: server.info("replication").get("min_slaves_good_slaves") == "1", "it follows")
        code, found, _ = doctor(server.url())
        equal((code, severities(found)), (1, {"min-replicas": "note", "role": "warning"}))


@test
def a_node_of_a_cluster_is_a_problem():
    with Redis(config=[*DURABLE, "cluster-enabled yes"]) as server:
        code, found, _ = doctor(server.url())
        equal((code, found["cluster"]["severity"]), (2, "problem"))


# ---- What it keeps ----


@test
def without_persistence_a_restart_forgets_all_locks():
    with Redis(config=[KEY_EVENTS]) as server:
        code, found, answer = doctor(server.url())
        equal((code, severities(found), answer["tier"]), (1, {"persistence": "warning"}, "best effort"))
        contains(found["persistence"]["means"], "a restart forgets all locks")


@test
def snapshots_alone_are_best_effort():
    with Redis(config=[KEY_EVENTS, "save 3600 1"]) as server:
        code, found, answer = doctor(server.url())
        equal((code, severities(found), answer["tier"]), (1, {"persistence": "warning"}, "best effort"))
        contains(found["persistence"]["found"], "snapshots", "save 3600 1")


@test(("everysec", "up to a second"), ("no", "about 30 seconds"))
def a_log_that_is_synced_late_is_a_warning(case):
    fsync, words = case
    with Redis(config=[*DURABLE, f"appendfsync {fsync}"]) as server:
        code, found, answer = doctor(server.url())
        equal((code, severities(found), answer["tier"]), (1, {"persistence": "warning"}, "timed"))
        contains(found["persistence"]["means"], words)


@test
def a_disk_that_takes_nothing_is_a_problem():
    with Redis(config=[KEY_EVENTS, "save 3600 1"]) as server:
        server.command("CONFIG", "SET", "rdbcompression", "no")
        (server.data / "dump.rdb").mkdir()
        with contextlib.suppress(Exception):
            server.command("BGSAVE")
        wait_until(lambda: server.info("persistence")["rdb_last_bgsave_status"] == "err", "it cannot save")
        code, found, _ = doctor(server.url())
        equal((code, severities(found)), (2, {"persistence": "warning", "write": "problem"}))
        contains(found["write"]["found"], "cannot save")


# ---- Messages ----


@test("", "K", "Kg$x", "Eg$xe", "KA", "Kg$xe")
def a_server_that_does_not_publish_what_happens_to_keys_is_noted(classes):
    with Redis(config=[*DURABLE, f'notify-keyspace-events "{classes}"']) as server:
        code, found, _ = doctor(server.url())
        equal((code, found["key-events"]["severity"]), (0, "ok" if classes in ("KA", "Kg$xe") else "note"))
        if found["key-events"]["severity"] == "note":
            contains(found["key-events"]["fix"], "notify-keyspace-events Kg$xe")


# ---- Memory ----


@test("allkeys-lru", "volatile-ttl")
def eviction_is_a_problem_and_without_a_limit_a_note(policy):
    with Redis(config=[*DURABLE, f"maxmemory-policy {policy}"]) as server:
        code, found, _ = doctor(server.url())
        equal((code, severities(found)), (0, {"eviction": "note"}))
        server.command("CONFIG", "SET", "maxmemory", "100mb")
        code, found, _ = doctor(server.url())
        equal((code, severities(found)), (2, {"eviction": "problem"}))
        contains(found["eviction"]["found"], policy, "100 MB")


@test
def memory_that_is_nearly_full_is_a_warning_and_full_a_problem():
    with Redis(config=DURABLE) as server:
        server.command("SET", "ballast", "x" * (20 << 20))
        used = int(server.info("memory")["used_memory"])
        server.command("CONFIG", "SET", "maxmemory", used * 105 // 100)
        code, found, _ = doctor(server.url())
        equal((code, severities(found)), (1, {"memory": "warning"}))
        server.command("CONFIG", "SET", "maxmemory", used // 2)
        code, found, answer = doctor(server.url())
        equal((code, severities(found), answer["write_us"]), (2, {"memory": "warning", "write": "problem"}, -1))
        contains(found["write"]["found"], "maxmemory")


# ---- Its clock ----


@test((10, "warning", "ahead of"), (-10, "warning", "behind"), (2 * DAY_S, "problem", "ahead of"),
      (-2 * DAY_S, "problem", "behind"), (0.5, "ok", "differ"))
def clocks_that_differ_are_reported(case):
    step_s, severity, where = case
    with Redis(config=DURABLE, clock=SHIM) as server:
        server.step_clock(step_s)
        code, found, _ = doctor(server.url())
        equal((code, found["clock"]["severity"]), (max(0, WORDS.index(severity) - 1), severity))
        contains(found["clock"]["found"], where)


@test
def a_reply_that_comes_late_is_no_skew():
    with Redis(config=DURABLE, clock=SHIM) as server, Proxy(server.port) as proxy:
        server.step_clock(-0.6)
        proxy.delay(1200, "down")
        code, found, answer = doctor(patient(server.url(port=proxy.port)), "--ttl", "5m")
        equal((code, found["clock"]["severity"]), (0, "ok"))
        assert answer["write_us"] >= 1200000, answer


@test
def a_store_that_is_slow_for_the_lease_is_a_warning():
    with Redis(config=DURABLE) as server, Proxy(server.port) as proxy:
        proxy.delay(200)
        code, found, _ = doctor(server.url(port=proxy.port), "--ttl", "3s")
        equal((code, found["round-trip"]["severity"]), (1, "warning"))


# ---- Rights ----


@test
def the_documented_rights_are_enough_and_what_they_do_not_show_is_noted():
    with Redis(config=DURABLE, users=documented_users()) as server:
        code, found, answer = doctor(server.url(user="holdfast"))
        equal((code, severities(found), answer["tier"]), (0, {"configuration": "note"}, "best effort"))
        contains(found["configuration"]["found"], "INFO is not permitted")
        assert answer["write_us"] > 0, answer


@test
def each_right_that_is_missing_is_named():
    user = documented_users()[0]
    with Redis(config=DURABLE, users=[user]) as server:
        for right, told in rights_of(user).items():
            set_user(server, user, without=right)
            code, found, _ = doctor(server.url(user="holdfast"))
            expected = {told: SEVERITY[told], "configuration": "note"}
            equal((right, code, severities(found)), (right, ["note", "warning", "problem"].index(SEVERITY[told]), expected))
            equal(found[told]["found"], f'the user "holdfast" lacks {right}')
            equal(found[told]["fix"], f"ACL SETUSER holdfast {right}")


@test
def whoever_has_no_rights_at_all_reads_all_that_are_missing():
    user = documented_users()[0]
    with Redis(users=[user, "user nobody on >x"]) as server:
        code, found, _ = doctor(server.url(user="nobody"))
        equal(code, 2)
        told = " ".join(found[name]["found"] for name in SEVERITY)
        missing = {right for right in rights_of(user) if right not in told.split()}
        equal({right for right in missing if right[0] == "+"}, set())  # keys are checked after commands


@test
def keys_and_channels_of_another_prefix_are_named():
    with Redis(config=DURABLE, users=documented_users()) as server:
        url = server.url(user="holdfast")
        _, found, _ = doctor(url + "?prefix=app%3A")
        equal(found["rights"]["found"], 'the user "holdfast" lacks ~app:* ~{app:*}.? ~{*}.?.app:* &app:@*')
        _, found, _ = doctor(url + "?prefix=%7Bapp%7D%3A")
        equal(found["rights"]["found"], 'the user "holdfast" lacks ~{app}:* ~{*}.?.{app}:* &{app}:@*')


@test
def configuration_that_may_not_be_seen_is_a_note():
    admin = "user admin on >x ~* &* +@all "
    for rules, persistence in (("-config", "note"), ("-info", None), ("-info -config", None)):
        with Redis(config=DURABLE, users=[admin + rules]) as server:
            code, found, answer = doctor(server.url(user="admin"))
            equal((rules, code, found["configuration"]["severity"]), (rules, 0, "note"))
            equal(found.get("persistence", {}).get("severity"), persistence)
            equal(answer["tier"], "best effort" if "-info" in rules else "timed")


@test
def a_renamed_command_that_is_needed_is_a_problem_and_a_renamed_info_a_note():
    with Redis(config=[*DURABLE, 'rename-command INFO ""']) as server:
        code, found, answer = doctor(server.url())
        equal((code, severities(found), answer["tier"]), (0, {"configuration": "note"}, "best effort"))
    with Redis(config=[*DURABLE, 'rename-command HINCRBY ""']) as server:
        code, found, _ = doctor(server.url())
        equal((code, found["rights"]["found"]), (2, 'the user "default" lacks +hincrby'))


@test
def a_renamed_config_is_a_note():
    with Redis(config=[*DURABLE, 'rename-command CONFIG ""']) as server:
        code, found, answer = doctor(server.url())
        equal((code, severities(found), answer["tier"]),
              (0, {"configuration": "note", "persistence": "note"}, "timed"))
    with Redis(config=['rename-command CONFIG ""']) as server:
        code, found, answer = doctor(server.url())
        equal((code, severities(found), answer["tier"]),
              (1, {"configuration": "note", "persistence": "warning"}, "best effort"))


# ---- Who gets in ----


@test
def a_server_without_password_that_others_reach_is_a_warning():
    """In a separate network, where a local connection comes from a different address than it goes to."""
    isolated = ["unshare", "-n", "-p", "--fork", "--mount-proc", "--kill-child", "sh", "-c"]
    need_rights_for(*isolated, "true")
    script = """
        ip link set lo up && ip addr add 10.9.0.1/32 dev lo && ip addr add 10.9.0.2/32 dev lo &&
        ip addr add 203.0.113.5/32 dev lo && ip route change local 10.9.0.1 dev lo table local src 10.9.0.2 || exit 99
        redis-server --bind 10.9.0.1 203.0.113.5 --protected-mode no --port 7001 --save '' --appendonly yes \
            --appendfsync always --dir . >log &
        until redis-cli -h 10.9.0.1 -p 7001 ping >answer 2>&1; do sleep 0.01; done
        "$HOLDFAST" doctor --json --url "redis://10.9.0.1:7001"
        redis-cli -h 10.9.0.1 -p 7001 config set requirepass secret >answer
        HOLDFAST_URL="redis://:secret@203.0.113.5:7001?plaintext=yes" "$HOLDFAST" doctor --json"""
    folder = tempfile.mkdtemp(prefix="holdfast-doctor-")
    try:
        done = subprocess.run([*isolated, script], cwd=folder, env=os.environ | {"HOLDFAST": HOLDFAST},
                              capture_output=True, text=True, timeout=LIMIT_S)
    finally:
        shutil.rmtree(folder)
    equal((len(done.stdout.splitlines()), done.stderr), (2, ""))
    ids = [{finding["id"]: finding["severity"] for finding in json.loads(line)["findings"]}
           for line in done.stdout.splitlines()]
    equal([found.get("access") for found in ids], ["warning", None])
    equal([found.get("plaintext") for found in ids], ["note", "warning"])


# ---- What cannot be asked ----


@test
def a_server_that_lets_nobody_in_is_not_permitted():
    with Redis(users=documented_users()) as server:
        for url in (server.url(), server.url().replace("://", "://:wrong@")):
            code, found, answer = doctor(url)
            equal((code, answer["error"], found["store"]["severity"]), (77, "HF_DENIED", "problem"))


@test
def a_server_that_is_not_there_or_silent_is_unreachable():
    with Redis() as server:
        server.stop()
        code, _, answer = doctor(server.url() + "?timeout=300")
        assert code == 69 and answer["error"] in ("HF_UNREACHABLE", "HF_UNKNOWN"), answer
        server.kill()
        equal((doctor(server.url())[0], doctor(server.url(unix=True))[0]), (69, 69))


@test
def a_connection_that_is_lost_meanwhile_is_restored():
    with Redis(config=DURABLE) as server, Proxy(server.port) as proxy:
        proxy.delay(50)
        stop = threading.Event()

        def disturb():
            while not stop.wait(0.5):
                proxy.reset()

        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            code, found, _ = doctor(server.url(port=proxy.port))
        finally:
            stop.set()
            thread.join()
        equal((code, severities(found)), (0, {}))


main()
