"""holdfast run: signals, and what happens when the lock is lost or one of the two processes is killed or stopped."""
import os
import signal
import sqlite3
import subprocess
from contextlib import closing

import harness
from harness import (boot_ms, break_lock, contains, environment, equal, finish, is_free, lives, main, parent_of,
                     pass_time, read_line, read_pids, start, state_of, test, wait_gone, wait_until, with_longer_leases)
from support.tap import Skipped

# A process tree with a grandchild in another group, one in another session, and one that lost its parent.
TREE = """
echo $$
sh -c 'echo $$; exec sleep 1000' &
setsid sh -c 'echo $$; exec sleep 1000' &
sh -c 'setsid sh -c "trap \\"\\" TERM; echo \\$\\$; exec sleep 1000" &' &
wait; sleep 1000
"""
TREE_SIZE = 4


def start_tree(*options):
    """A run with a tree: (process, the pid of its keeper, the pids of the tree)."""
    process = start("run", *options, "x", "-c", TREE)
    pids = read_pids(process, TREE_SIZE)
    return process, parent_of(pids[0]), pids  # the command printed first, the others in any order


def deadline_after(*options, env=None):
    """A run that printed its pid, and two times of CLOCK_BOOTTIME between which its first deadline lies: a busy machine
    takes seconds to start something, so the time left is counted both from before the start and from the command's
    start."""
    before_ms = boot_ms()
    process = start("run", *options, "x", "-c",
                    "trap 'echo TERM' TERM; read up rest </proc/uptime; "
                    "echo $$ $HOLDFAST_DEADLINE_MS $up $HOLDFAST_TOKEN; while :; do sleep 1000 & wait; done", env=env)
    pid, left_ms, up_s, token = read_line(process.stdout).split()
    after_ms = int(float(up_s) * 1000) + 10  # it is given in hundredths of a second
    return process, int(pid), (before_ms + int(left_ms), after_ms + int(left_ms)), token


@test
def signals_reach_the_command():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
                   signal.SIGUSR2, signal.SIGWINCH):
        name = signal.Signals(number).name[3:]
        process = start("run", "x", "-c", f"trap 'echo got {name}; exit 5' {name}; echo up; "
                        "while :; do sleep 0.01; done")
        equal(read_line(process.stdout), "up")
        process.send_signal(number)
        code, out, _ = finish(process)
        equal((code, out), (5, f"got {name}\n"))


@test
def a_signal_that_was_ignored_stays_ignored():
    process = start("run", "x", "-c", "echo $$; read line", stdin=subprocess.PIPE,
                    preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    pid = int(read_line(process.stdout))
    process.send_signal(signal.SIGHUP)
    os.kill(pid, signal.SIGHUP)
    process.stdin.write(b"go on\n")
    equal(finish(process)[0], 0)


@test
def a_signal_ends_the_wait_and_gives_up_the_place():
    holder = start("run", "x", "-c", "echo held; read line", stdin=subprocess.PIPE)
    equal(read_line(holder.stdout), "held")
    waiter = start("run", "x", "--", "echo", "ran")
    contains(read_line(waiter.stderr), "waiting")
    waiter.send_signal(signal.SIGTERM)
    code, out, _ = finish(waiter)
    equal((code, out), (128 + signal.SIGTERM, ""))
    holder.stdin.close()
    holder.wait(timeout=harness.PATIENCE_S)
    assert is_free("x")


@test
def kill_9_of_the_front_ends_the_tree_and_frees_the_lock():  # row 41
    process, keeper, pids = start_tree()
    process.kill()
    wait_gone(*pids, keeper)
    assert is_free("x")


@test
def kill_9_of_the_keeper_ends_the_tree():  # row 41
    process, keeper, pids = start_tree()
    os.kill(keeper, signal.SIGKILL)
    code, _, err = finish(process)
    equal(code, 79)
    contains(err, "the process that renews it was killed")
    assert not [pid for pid in pids if lives(pid)]


@test
def kill_9_of_the_keeper_lets_nobody_in_before_the_tree_has_gone():  # row 41
    for _ in range(10):
        process, keeper, pids = start_tree()
        waiter = start("run", "x", "-c", "".join(f"ps -o stat= -p {pid}; " for pid in pids) + "true")
        read_line(waiter.stderr)
        os.kill(keeper, signal.SIGKILL)
        code, out, _ = finish(waiter)
        finish(process)
        equal((code, [state for state in out.split() if not state.startswith("Z")]), (0, []))


@test
def kill_9_of_the_keeper_frees_the_locks_once_the_tree_has_gone():  # row 41
    process, keeper, _ = start_tree("--ttl", "60s", "--also", "y")
    os.kill(keeper, signal.SIGKILL)
    equal(finish(process)[0], 79)
    assert is_free("x") and is_free("y")
    contains(harness.run("inspect", "x")[1], "the process that renews it was killed")


@test
def kill_9_of_the_front_during_the_grace_ends_it():  # row 41
    process, keeper, pids = with_longer_leases(
        lambda seconds: start_tree("--ttl", "60s", "--grace", "30s", "--max-hold", f"{seconds}s"), leases=(3, 10, 30))
    wait_gone(pids[0])  # by the TERM; one ignores that
    assert any(lives(pid) for pid in pids)
    process.kill()
    wait_gone(*pids, keeper, seconds=20)
    assert is_free("x")


@test
def nothing_is_started_where_proc_does_not_show_it():  # it is that of the outer pid namespace
    process = harness.start_unshared("-pf", harness.HOLDFAST, "--url", "memory:", "run", "x", "echo",
                                     "ran")
    code, out, err = finish(process)
    equal((code, out), (78, ""))
    contains(err, "/proc")


def lease_end_ms():
    """When the lease ends, according to the store."""
    with closing(sqlite3.connect(f"{harness.folder}/locks.db")) as database:
        (until_us,), = database.execute("SELECT until_us FROM claims WHERE name = 'x'")
    return until_us // 1000


def check_stopped_keeper(ttl_s):
    """It is stopped soon after a renewal: the next one is due when two thirds of the lease are left."""
    process, keeper, pids = start_tree("--ttl", f"{ttl_s}s")
    wait_until(lambda: lease_end_ms() > boot_ms() + ttl_s * 850, "it is renewed")
    end_ms = lease_end_ms()
    os.kill(keeper, signal.SIGSTOP)
    wait_gone(*pids)
    gone_ms = boot_ms()
    equal(lease_end_ms(), end_ms)  # otherwise it was stopped too late
    # The lease minus drift: never after the deadline.
    deadline_ms = end_ms - ttl_s * 10 - 2
    assert gone_ms < deadline_ms, f"{gone_ms - deadline_ms} ms late"
    code, _, err = finish(process)
    equal(code, 79)
    contains(err, "the process that renews it is not running")
    assert not lives(keeper)


@test
def a_stopped_keeper_ends_with_the_tree_before_the_deadline():  # row 41
    with_longer_leases(check_stopped_keeper)


def check_stopped_front(ttl_s):
    process, _, pids = start_tree("--ttl", f"{ttl_s}s")
    process.send_signal(signal.SIGSTOP)
    pass_time(1.5 * ttl_s)
    assert all(lives(pid) for pid in pids)
    assert not is_free("x")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    process.send_signal(signal.SIGCONT)
    equal(finish(process)[0], 128 + signal.SIGKILL)


@test
def a_stopped_front_changes_nothing():
    with_longer_leases(check_stopped_front, leases=(4, 12, 30))


@test
def who_continues_the_front_continues_the_command_however_slow_the_keeper_is():
    process = start("run", "x", "--ttl", "1m", "-c", "echo $$; while :; do sleep 0.05; done")
    pid = int(read_line(process.stdout))
    keeper = parent_of(pid)
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state_of(process.pid) == "T", "the front is stopped, too")
    os.kill(keeper, signal.SIGSTOP)
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: state_of(pid) != "T", "the command goes on")  # before the deadline
    os.kill(keeper, signal.SIGCONT)
    os.kill(pid, signal.SIGKILL)
    equal(finish(process)[0], 128 + signal.SIGKILL)


@test
def both_killed_at_once_take_the_command_along_and_leave_the_rest_to_the_lease():
    process, keeper, pids = start_tree("--ttl", "60s")
    process.send_signal(signal.SIGSTOP)
    os.kill(keeper, signal.SIGKILL)
    process.kill()
    wait_gone(pids[0])
    assert any(lives(pid) for pid in pids) and not is_free("x")


@test
def a_waiter_of_which_both_processes_were_killed_is_passed_over():
    holder = start("run", "x", "-c", "echo held; read line", stdin=subprocess.PIPE)
    equal(read_line(holder.stdout), "held")
    dead = start("run", "x", "--", "true")
    read_line(dead.stderr)
    last = start("run", "x", "--", "echo", "ran")
    read_line(last.stderr)
    with open(f"/proc/{dead.pid}/task/{dead.pid}/children", encoding="ascii") as file:
        keeper = int(file.read())
    dead.send_signal(signal.SIGSTOP)
    os.kill(keeper, signal.SIGKILL)
    dead.kill()
    wait_gone(keeper, dead.pid)
    holder.stdin.close()
    equal(finish(last)[:2], (0, "ran\n"))


def block_store():
    """Prevents all writes to the store from now on."""
    database = sqlite3.connect(f"{harness.folder}/locks.db", isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    return database


def is_between(least_ms, ms, most_ms):
    assert least_ms <= ms < most_ms, f"{ms - least_ms} ms after the earliest time, {ms - most_ms} after the latest"


def check_end_before_deadline(ttl_s):
    process, pid, (least_ms, most_ms), _ = deadline_after("--ttl", f"{ttl_s}s", "--grace", f"{ttl_s // 3}s")
    with closing(block_store()):
        equal(read_line(process.stdout), "TERM")
        is_between(least_ms - 500 * ttl_s, boot_ms(), most_ms - 500 * ttl_s // 3)
        wait_gone(pid)
        is_between(0, boot_ms(), most_ms)
    code, _, err = finish(process)
    equal(code, 79)
    contains(err, "holdfast: the lock x ")


@test
def a_lock_that_cannot_be_renewed_ends_a_tree_that_ignores_term_before_the_deadline():  # row 42
    with_longer_leases(check_end_before_deadline)


def check_term_in_time(ttl_s, stalls):
    """The first renewal finds a store that does not come back, just before the command is to be ended."""
    stall = f"{harness.folder}/stall"
    env = environment(LD_PRELOAD=harness.DISK_SHIM, HOLDFAST_TEST_STALL=stall,
                      ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0")
    grace_ms = ttl_s * 500
    process, pid, (least_ms, most_ms), _ = deadline_after("--ttl", f"{ttl_s}s", "--grace", f"{grace_ms}ms", env=env)
    with open(stall, "w") if stalls else closing(block_store()):
        equal(read_line(process.stdout), "TERM")
        is_between(least_ms - grace_ms, boot_ms(), most_ms - grace_ms + ttl_s * 150)
        wait_gone(pid)
        is_between(0, boot_ms(), most_ms + ttl_s * 50)
    if stalls:
        os.unlink(stall)
    equal(finish(process)[0], 79)


@test
def a_database_that_is_locked_does_not_delay_the_term():  # it would, by up to 3 s, with these leases
    with_longer_leases(lambda ttl_s: check_term_in_time(ttl_s, False), leases=(3, 6, 9, 9))


@test
def a_disk_that_stalls_does_not_delay_the_term():
    with_longer_leases(lambda ttl_s: check_term_in_time(ttl_s, True))


def check_end_after_renewal(ttl_s):
    process, pid, (_, most_ms), _ = deadline_after("--ttl", f"{ttl_s}s", "--grace", f"{ttl_s // 3}s")
    with closing(block_store()):
        equal(read_line(process.stdout), "TERM")
    equal(finish(process)[0], 79)
    assert not lives(pid) and boot_ms() < most_ms + 500


@test
def a_renewal_that_succeeds_after_the_term_does_not_call_it_back():
    with_longer_leases(check_end_after_renewal)


def check_short_outage(ttl_s):
    process, pid, _, _ = deadline_after("--ttl", f"{ttl_s}s", "--grace", "500ms")
    with closing(block_store()):
        pass_time(ttl_s / 2)
    pass_time(ttl_s * 5 / 6)
    equal(process.poll(), None)
    assert lives(pid) and not is_free("x")
    os.kill(pid, signal.SIGKILL)


@test
def an_outage_shorter_than_the_lease_goes_unnoticed():  # row 23
    with_longer_leases(check_short_outage)


@test
def a_broken_lock_ends_the_command():  # row 13
    process, pid, _, token = deadline_after("--ttl", "10s", "--grace", "4s")
    break_lock("x", token)
    equal(read_line(process.stdout), "TERM")
    code, _, err = finish(process)
    equal(code, 79)
    contains(err, "was lost")
    assert not lives(pid)


@test
def on_lost_kill_skips_the_term():
    process, pid, _, token = deadline_after("--ttl", "10s", "--on-lost", "kill")
    break_lock("x", token)
    code, out, _ = finish(process)
    equal((code, out), (79, ""))
    assert not lives(pid)


@test
def on_lost_ignore_lets_the_command_end_by_itself():
    process = start("run", "x", "--ttl", "10s", "--on-lost", "ignore", "-c",
                    "echo $HOLDFAST_TOKEN; read line; exit 3", stdin=subprocess.PIPE)
    break_lock("x", read_line(process.stdout))
    contains(read_line(process.stderr), "the command goes on")
    process.stdin.close()
    equal(process.wait(timeout=harness.PATIENCE_S), 79)


@test
def max_hold_ends_a_command_whose_loss_was_ignored():
    process = start("run", "x", "--ttl", "10s", "--on-lost", "ignore", "--max-hold", "8s", "-c",
                    "echo $HOLDFAST_TOKEN; exec sleep 1000")
    break_lock("x", read_line(process.stdout))
    contains(read_line(process.stderr), "the command goes on")
    equal(finish(process)[0], 79)


def start_forking(max_hold_s):
    process = start("run", "x", "--max-hold", f"{max_hold_s}s", "--grace", "100ms", "-c",
                    "trap '' TERM; go() { (sleep 0.01; go) & }; go; go; go; echo up; sleep 1000")
    equal(read_line(process.stdout), "up")
    return process


@test
def one_who_forks_all_the_time_is_ended_too():
    process = with_longer_leases(start_forking, leases=(0.3, 3, 20))
    equal(finish(process)[0], 124)
    assert not list(harness.marked())


def group_of(pid):
    """The folder of its control group (v2); skips the test if the command does not get its own."""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        mounts = [line.split() for line in file if " - cgroup2 " in line]
    with open(f"/proc/{pid}/cgroup", encoding="utf-8") as file:
        own = next((line[3:].strip() for line in file if line.startswith("0::")), "")
    if not mounts or "holdfast-" not in own:
        raise Skipped("no control group can be made here")
    return mounts[0][4] + own


def start_in_groups(ttl_s):
    """A run in a run: (process, pid of the inner command, control group of the outer one)."""
    process = start("run", "a", "--", harness.HOLDFAST, "run", "--ttl", f"{ttl_s}s", "x", "-c",
                    "echo $$; exec sleep 1000")
    pid = int(read_line(process.stdout))
    inner = group_of(pid)
    outer = os.path.dirname(inner)
    assert os.path.isdir(inner) and "holdfast-" in os.path.basename(outer)
    return process, pid, outer


@test
def the_control_group_of_the_command_goes_with_it():
    for end in ("the command", "the front", "the keeper"):
        process, pid, outer = with_longer_leases(start_in_groups)
        outer_keeper = int(outer.rpartition("-")[2])
        os.kill({"the command": pid, "the front": process.pid, "the keeper": outer_keeper}[end],
                signal.SIGKILL)
        wait_until(lambda: not os.path.exists(outer), f"the groups are gone after {end}")
        finish(process)


@test
def the_control_group_of_a_killed_run_goes_with_the_next():
    process, keeper, pids = start_tree()
    group = group_of(pids[0])
    process.send_signal(signal.SIGSTOP)
    os.kill(keeper, signal.SIGKILL)
    process.kill()
    process.wait()
    harness.end_marked()  # (a run of another test may be the next)

    def is_gone_after_a_run():  # or after another one: a killed process may not have ended yet
        equal(harness.run("run", "y", "true")[0], 0)
        return not os.path.exists(group)

    wait_until(is_gone_after_a_run, "the group is gone")


def start_nested(ttl_s):
    process = start("run", "a", "--", harness.HOLDFAST, "run", "--ttl", f"{ttl_s}s", "x", "-c", TREE)
    return process, read_pids(process, TREE_SIZE)


@test
def nested_runs_end_as_one_tree():
    process, pids = with_longer_leases(start_nested)
    process.kill()
    wait_gone(*pids)
    wait_until(lambda: is_free("a"), "the outer lock is free")
    wait_until(lambda: is_free("x"), "so is the inner one, when its lease has ended")


main()
