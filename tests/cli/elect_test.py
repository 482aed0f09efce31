"""holdfast elect: one leads, the others wait; a leader that loses campaigns again; observers see who leads."""
import functools
import json
import os
import signal

import harness
from harness import (contains, equal, finish, is_free, lives, main, read_line, run, start, test, wait_gone,
                     with_longer_leases)

# The pid of the command and of its keeper, and the token.
LEAD = ("sh", "-c", "echo $$ $PPID $HOLDFAST_TOKEN; exec sleep 1000")


def campaign(*options):
    return start("elect", "x", *options, "--", *LEAD)


def elected(process):
    """Waits until it leads: (pid of the command, of its keeper, token)."""
    return [int(word) for word in read_line(process.stdout).split()]


def observe(*options):
    return start("elect", "x", "--observe", *options)


def break_leadership(token):
    equal(run("break", "x", "--token", str(token), "--yes")[0], 0)


def end(*processes):
    """A process that was just between two terms dies from the signal itself, which is the same to a shell."""
    for process in processes:
        process.terminate()
    for process in processes:
        assert finish(process)[0] in (128 + signal.SIGTERM, -signal.SIGTERM)


@test
def one_leads_and_the_others_say_who():
    one = campaign("--value", "web1:80")
    elected(one)
    two = campaign()
    contains(read_line(two.stderr), "waiting for x", "pid ", "(web1:80)")
    end(two, one)
    assert is_free("x")


@test
def the_exit_code_is_that_of_the_command():
    equal(run("elect", "x", "--", "sh", "-c", "exit 42"), (42, "", ""))
    equal(run("elect", "x", "-c", "exit 0"), (0, "", ""))
    equal(run("elect", "x", "--", "/no/such/command")[0], 127)
    assert is_free("x")


@test
def lost_leadership_ends_the_command_and_is_campaigned_for_again():
    one = campaign()
    command, _, token = elected(one)
    two = campaign()
    contains(read_line(two.stderr), "waiting for x")
    break_leadership(token)
    _, _, second = elected(two)
    wait_gone(command)
    assert second > token
    contains(read_line(one.stderr), "the lock x was lost (broken by", "the command was ended")
    contains(read_line(one.stderr), "campaigning for x again")
    end(two)
    third = elected(one)[2]  # its command has standard output again
    assert third > second
    end(one)


def stop_leader(which, ttl_s):
    """(the one that led, the one that waits for it, the pid of the command and the token of the first)"""
    one = campaign("--ttl", f"{ttl_s}s")
    command, keeper, token = elected(one)
    two = campaign("--ttl", f"{ttl_s}s")
    contains(read_line(two.stderr), "waiting for x")
    os.kill(keeper if which == "keeper" else one.pid, signal.SIGSTOP)
    if which == "front":  # the keeper renews as before; now it is killed, and nobody is left to do so
        os.kill(keeper, signal.SIGKILL)
    return one, two, command, token


@test
def who_cannot_renew_stops_leading():
    for which in ("keeper", "front"):
        one, two, command, token = with_longer_leases(functools.partial(stop_leader, which))
        assert elected(two)[2] > token
        assert not lives(command), "two lead"
        os.kill(one.pid, signal.SIGCONT)
        contains(read_line(one.stderr), "the lock x cannot be kept", "the command was ended")
        contains(read_line(one.stderr), "campaigning for x again")
        end(one, two)


@test
def a_killed_keeper_is_replaced():
    one = campaign()
    command, keeper, token = elected(one)
    os.kill(keeper, signal.SIGKILL)
    contains(read_line(one.stderr), "the process that renews it was killed")
    command_again, keeper_again, next_token = elected(one)
    wait_gone(command)
    assert next_token > token and keeper_again != keeper and command_again != command
    end(one)


@test
def who_is_told_to_end_does_not_campaign_again():
    one = start("elect", "x", "--grace", "100ms", "--", "sh", "-c",
                "trap '' TERM; echo $$ $PPID $HOLDFAST_TOKEN; while :; do sleep 0.1; done")
    _, _, token = elected(one)
    one.terminate()  # which the command ignores
    break_leadership(token)
    code, _, err = finish(one)
    equal(code, 79)
    contains(err, "the lock x was lost")
    assert "campaigning" not in err, err


@test
def an_observer_prints_the_leaders_as_they_change():
    text, objects = observe(), observe("--json")
    contains(read_line(text.stdout), " no leader")
    first = json.loads(read_line(objects.stdout))
    equal((first["name"], first["token"], first["value"], first["host"]), ("x", None, None, None))
    one = campaign("--value", "web1:80")
    token = elected(one)[2]
    contains(read_line(text.stdout), " pid ", "(web1:80)", f"token {token}")
    leader = json.loads(read_line(objects.stdout))
    equal((leader["token"], leader["value"]), (str(token), "web1:80"))
    end(one)
    contains(read_line(text.stdout), " no leader")
    equal(json.loads(read_line(objects.stdout))["token"], None)


@test
def what_makes_no_sense_is_refused():
    for words, why in (((), "missing lock name"), (("x",), "missing command"),
                       (("x", "--observe", "true"), "--observe runs no command"),
                       (("x", "--ttl", "1ms", "true"), "must be at least 1s"),
                       (("x", "--value", "v" * 256, "true"), "label")):
        code, _, err = run("elect", *words)
        equal(code, 64)
        contains(err, why)


main()
