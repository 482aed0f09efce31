#!/usr/bin/env python3
"""holdfast doctor on several servers together, a master with sentinels and a Cluster: each finding is provoked, and
goes away again. doctor_several_test.py HOLDFAST"""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers import suite
from servers.cluster import Cluster
from servers.doctor import SEVERITY, contains, doctor, rights_of, set_user, severities
from servers.redis import documented_user, documented_users, patient
from servers.sentinel import PASSWORD, Sentinels, info, login_at_sentinels, wait_until
from servers.suite import equal, main, test

suite.LIMIT_S = 240
LIMIT_S = 90
DURABLE = ["appendonly yes", "appendfsync always", "notify-keyspace-events Kg$xe"]
ALWAYS = {"fail-over": "warning"}  # and the tier, best effort
NO_RESERVE = ALWAYS | {"min-replicas": "note"}


def is_told(url, words):
    """Whether something is reported in these words."""
    return any(words in finding["found"] for finding in doctor(url)[1].values())


# ---- Sentinels ----


@test
def sentinels_and_their_quorum_are_counted():
    with Sentinels(config=DURABLE) as scene:
        code, found, answer = doctor(scene.url())
        equal((code, severities(found), answer["tier"]), (1, NO_RESERVE, "best effort"))
        contains(found["sentinels"]["found"], "3 of the 3 sentinels", "know of 3", "a quorum of 2")
        contains(found["fail-over"]["means"], "locks are lost in a fail-over")
        contains(found["fail-over"]["fix"], 'for "timed"')
        last = f",127.0.0.1:{scene.sentinels[2].port}"
        _, found, _ = doctor(scene.url().replace(last, ""))
        equal(severities(found), NO_RESERVE | {"sentinels-url": "note"})
        contains(found["sentinels-url"]["found"], "3 sentinels, and 2 in the URL")
        scene.sentinels[0].kill()
        _, found, _ = doctor(scene.url())
        equal(severities(found), NO_RESERVE | {"sentinels": "warning"})
        contains(found["sentinels"]["found"], "2 of the 3 sentinels")
        equal("cannot agree" in found["sentinels"]["means"], False)
        scene.sentinels[1].kill()
        _, found, _ = doctor(scene.url())
        contains(found["sentinels"]["found"], "1 of the 3 sentinels")
        contains(found["sentinels"]["means"], "cannot agree")


@test
def two_sentinels_are_too_few():
    with Sentinels(sentinels=2) as scene:
        _, found, _ = doctor(scene.url())
        equal(found["sentinels"]["severity"], "warning")
        contains(found["sentinels"]["found"], "2 of the 2 sentinels")


@test
def replicas_that_lag_or_are_missing_are_a_warning():
    with Sentinels(config=[*DURABLE, "repl-timeout 60"]) as scene:
        replica = scene.replica
        _, found, _ = doctor(scene.url())
        equal(severities(found), NO_RESERVE)
        contains(found["replica-lag"]["found"], "1 replica, the slowest")
        replica.stop()
        wait_until(lambda: int(info(scene.master, "replication")["slave0"].rsplit("lag=")[1]) > 5, "a lag", LIMIT_S)
        _, found, _ = doctor(scene.url())
        equal(severities(found), NO_RESERVE | {"replica-lag": "warning"})
        replica.kill()
        wait_until(lambda: info(scene.master, "replication")["connected_slaves"] == "0", "a master alone", LIMIT_S)
        _, found, _ = doctor(scene.url())
        equal(severities(found), ALWAYS | {"replicas": "warning"})
        contains(found["replicas"]["found"], "the master has no replica")


@test("sentinels", "a Cluster")
def masters_that_do_not_care_for_replicas_are_noted(which):
    with Sentinels() if which == "sentinels" else Cluster() as scene:
        _, found, _ = doctor(scene.url())
        contains(found["min-replicas"]["found"], "min-replicas-to-write is 0")
        for server in scene.servers if which == "sentinels" else scene.nodes:
            server.command("CONFIG", "SET", "min-replicas-to-write", 1)
        _, found, _ = doctor(scene.url())
        contains(found["min-replicas"]["found"], "writes need 1 connected replica")


# ---- A Cluster ----


@test
def slots_nodes_and_replicas_of_a_cluster_are_counted():
    with Cluster(config=["cluster-require-full-coverage no", *DURABLE]) as cluster:
        url = patient(cluster.url(count=6))
        code, found, answer = doctor(url)
        equal((code, severities(found), answer["tier"]), (1, NO_RESERVE, "best effort"))
        contains(found["cluster"]["found"], "is up", "16384 of 16384 slots are assigned, 0 failing")
        contains(found["nodes"]["found"], "3 masters with slots; 0 nodes failing")
        contains(found["replicas"]["found"], "0 of 3 masters have no replica")
        contains(found["replica-lag"]["found"], "3 replicas, the slowest")
        cluster.hurry()
        cluster.replica_of(cluster.nodes[0]).kill()
        wait_until(lambda: is_told(url, "1 node failing") and is_told(url, "1 of 3 masters has no replica"),
                   "a replica less", LIMIT_S)
        for node in cluster.nodes[:3]:
            node.command("CLUSTER", "DELSLOTS", 0)
        wait_until(lambda: is_told(url, "16383 of 16384 slots"), "a slot without a master", LIMIT_S)
        code, found, _ = doctor(url)
        equal((code, severities(found).get("cluster")), (2, "problem"))
        contains(found["cluster"]["means"], "names in slots without a master")


@test
def a_replica_of_any_master_of_a_cluster_that_lags_is_a_warning():
    with Cluster(config=DURABLE) as cluster:
        replica, master = cluster.replica_of(cluster.nodes[2]), cluster.nodes[2]
        equal(severities(doctor(cluster.url())[1]), NO_RESERVE)
        replica.stop()
        wait_until(lambda: int(info(master, "replication")["slave0"].rsplit("lag=")[1]) > 5, "a lag", LIMIT_S)
        equal(severities(doctor(cluster.url())[1]), NO_RESERVE | {"replica-lag": "warning"})


@test
def a_cluster_that_is_down_is_a_problem():
    with Cluster(replicas=0, config=["cluster-require-full-coverage no"]) as cluster:
        equal(doctor(cluster.url())[1]["cluster"]["severity"], "ok")
        cluster.hurry()
        cluster.nodes[1].kill()
        wait_until(lambda: "cluster_slots_fail:0" not in cluster.nodes[0].command("CLUSTER", "INFO"), "a failure", LIMIT_S)
        wait_until(lambda: doctor(cluster.url())[1].get("cluster", {}).get("severity") == "problem",
                   "a problem that is told, where what doctor writes is in another's slots", LIMIT_S)


# ---- Rights ----


@test
def each_right_that_is_missing_at_a_server_with_sentinels_or_at_a_sentinel_is_named():
    user, (watcher,) = documented_user("acl: servers with sentinels"), documented_users(title="acl: sentinels")
    with Sentinels(config=DURABLE, users=[user], sentinel_users=[watcher]) as scene:
        url = scene.url(login_at_sentinels("holdfast"), user="holdfast")
        env = {PASSWORD: scene.sentinels[0].password_of("holdfast")}
        usual = ALWAYS | {"configuration": "note", "sentinels": "note"}
        code, found, _ = doctor(url, env=env)
        equal((code, severities(found)), (1, usual))
        contains(found["sentinels"]["found"], "3 of the 3", "SENTINEL MASTER is not permitted")
        for right in ("+subscribe", "&+switch-master", "+ping", "+sentinel|get-master-addr-by-name"):
            for sentinel in scene.sentinels:
                set_user(sentinel, watcher, without=right)
            code, found, answer = doctor(url, env=env)
            if right.startswith("+sentinel"):
                equal((code, answer["error"]), (77, "HF_DENIED"))
                contains(found["store"]["found"], right[1:])
                continue
            equal((right, severities(found)), (right, usual | {"sentinel-rights": "warning"}))
            contains(found["sentinel-rights"]["found"], f'the user "holdfast" of the sentinels lacks {right}')
            contains(found["sentinel-rights"]["fix"], f"ACL SETUSER holdfast {right}")
        for sentinel in scene.sentinels:
            set_user(sentinel, f"{watcher} +sentinel|master")
        equal(severities(doctor(url, env=env)[1]), ALWAYS | {"configuration": "note"})
        code, found, _ = doctor(url + "&wait_replicas=1", env=env)
        equal((code, found["rights"]["found"]), (2, 'the user "holdfast" lacks +wait'))
        set_user(scene.master, user, without="+role")
        code, found, answer = doctor(url, env=env)
        equal((code, answer["error"]), (77, "HF_DENIED"))
        contains(found["store"]["found"], "'role'")


@test
def each_right_that_is_missing_at_a_node_of_a_cluster_is_named():
    user = documented_user("acl: a Cluster")
    with Cluster(replicas=0, config=DURABLE, users=[user]) as cluster:
        url, usual = cluster.url(user="holdfast"), ALWAYS | {"configuration": "note", "cluster-unseen": "note"}
        code, found, _ = doctor(url)
        equal((code, severities(found)), (1, usual))
        for number, (right, told) in enumerate(rights_of(user).items()):
            if told == "key-rights":
                continue  # in a Cluster nobody listens to keys
            concerned = cluster.nodes if right == "+subscribe" else [cluster.nodes[number % 3]]
            for node in concerned:
                set_user(node, user, without=right)
            _, found, _ = doctor(url)
            equal((right, severities(found)), (right, usual | {told: SEVERITY[told]}))
            equal(found[told]["found"], f'the user "holdfast" lacks {right}')
            equal(found[told]["fix"], f"ACL SETUSER holdfast {right}, on each node")
            for node in concerned:
                set_user(node, user)
        for node in cluster.nodes:
            set_user(node, user, without="+cluster|slots")
        code, found, answer = doctor(url)
        equal((code, answer["error"]), (77, "HF_DENIED"))
        contains(found["store"]["found"], "cluster|slots")


main()
