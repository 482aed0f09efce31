#!/usr/bin/env python3
"""What `holdfast doctor` finds in a ZooKeeper ensemble: doctor_test.py HOLDFAST PUPPET."""
import contextlib
import socket
import sys
import threading
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers import suite
from servers.certificates import Authority
from servers.doctor import contains, doctor, severities
from servers.suite import equal, main, test
from servers.zookeeper import Ensemble, Zookeeper, patient

suite.LIMIT_S = 240  # an ensemble may start slowly


def examine(server, **how):
    _, found, answer = doctor(patient(server.url(**how)))
    equal(answer["tier"], "strict")
    return found


def copy(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def serve_as(version, server, client):
    with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", server.port)) as real:
        begin = client.recv(4, socket.MSG_WAITALL)
        if begin == b"srvr":
            client.sendall(f"Zookeeper version: {version}-abc, built on a Monday\nMode: follower\n".encode())
            return
        real.sendall(begin)
        threading.Thread(target=copy, args=[real, client], daemon=True).start()
        copy(client, real)


@contextlib.contextmanager
def as_version(version, server):
    """A port at which the server claims to have this version."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def accept():
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=serve_as, args=[version, server, listener.accept()[0]], daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def judge(server, version):
    """What doctor reports about a member of this version: the severity and the bug."""
    with as_version(version, server) as port:
        found = examine(server, port=port)["version"]
    equal(found["found"], f"ZooKeeper {version}")
    return found["severity"], next((word.strip("():,") for word in found["means"].split() if "ZOOKEEPER-" in word), "")


@test
def one_server_is_a_note_and_one_without_a_login_a_warning():
    """Over TLS."""
    with Authority() as authority, Zookeeper(["maxClientCnxns=60"], tls=authority) as server:
        found = examine(server)
        equal(severities(found), {"members": "note", "access": "warning"})
        contains(found["version"]["found"], "ZooKeeper 3.")
        contains(found["ticks"]["found"], "a tick is 500 ms")
        contains(found["connections"]["found"], "60 connections")
        equal(severities(examine(server, login="jo:secret@")), {"members": "note"})


@test
def what_a_server_does_not_say_is_a_note():
    with Zookeeper(["4lw.commands.whitelist=stat"]) as server:
        equal(severities(examine(server, login="jo:secret@")), {"members": "note", "ticks": "note"})


@test
def limits_that_harm_locks_are_reported():
    with Zookeeper(["minSessionTimeout=500", "maxSessionTimeout=10000", "maxClientCnxns=5"]) as server:
        found = examine(server, login="jo:secret@")
        equal(severities(found), {"members": "note", "session": "note", "ticks": "warning", "connections": "note"})
        contains(found["ticks"]["found"], "minSessionTimeout is 500 ms", "a tick is 500 ms")
        contains(found["session"]["found"], "10000 ms")


@test
def an_ensemble_says_who_is_away_and_how_long_a_silent_leader_is_waited_for():
    with Ensemble(sync_limit=100) as ensemble:
        away = ensemble.followers()[0]
        away.crash()
        found = examine(ensemble, login="jo:secret@")
        equal(severities(found), {"version": "warning", "serving": "warning", "ticks": "warning"})
        contains(found["members"]["found"], "3 voting members")
        contains(found["serving"]["found"], f"not serving: 127.0.0.1:{away.port}")
        contains(found["ticks"]["found"], "after 50000 ms", "the longest lease is 30000 ms")
        member = ensemble.leader()
        equal(judge(member, "3.8.4"), ("warning", "ZOOKEEPER-4785"))
        equal(judge(member, "3.8.5"), ("ok", ""))
        equal(judge(member, "3.9.1"), ("warning", "ZOOKEEPER-4785"))
        equal(judge(member, "3.9.2"), ("ok", ""))
        equal(judge(member, "3.9.3"), ("warning", "ZOOKEEPER-4925"))
        equal(judge(member, "3.9.4"), ("ok", ""))


@test
def versions_that_are_too_old_are_reported_also_on_one_server():
    with Zookeeper() as server:
        equal(judge(server, "3.5.2"), ("problem", ""))
        equal(judge(server, "3.5.10"), ("warning", "ZOOKEEPER-3144"))
        equal(judge(server, "3.6.0"), ("ok", ""))


main()
