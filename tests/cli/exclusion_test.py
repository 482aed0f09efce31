"""holdfast run: nobody else works while anything that the command started is still working.

The command keeps writing to a file. The next holder of the lock checks whether that file still
grows. $ROUNDS is how often each test is repeated.
"""
import functools
import os
import random
import signal
import subprocess
import time

import harness
from harness import boot_ms, contains, equal, finish, main, read_line, start, test, wait_until, with_longer_leases

harness.LIMIT_S = 3600 if "ROUNDS" in os.environ else 300
WRITER = os.path.join(os.path.dirname(harness.BREAK), "cli-writer")


def rounds(usual):
    return int(os.environ.get("ROUNDS", usual))


def start_writing(kind, *options, start=start):
    """A run whose command writes: (process, pid of its keeper, the file, a time that is not after its
    deadline)."""
    path = f"{harness.folder}/written"
    if os.path.exists(path):
        os.unlink(path)
    before_ms = boot_ms()
    process = start("run", *options, "x", "--", WRITER, kind, path)
    keeper, left_ms = read_line(process.stdout).split()
    wait_until(lambda: os.path.getsize(path) >= 4 or process.poll() is not None, "it writes")
    return process, int(keeper), path, before_ms + int(left_ms)


def start_watching(path):
    """The next holder."""
    return start("run", "x", "--", WRITER, "watch", path)


def wait_for_its_place(watcher):
    contains(read_line(watcher.stderr), "waiting")


def seen_by(watcher):
    """When it started to work, and how many bytes somebody else wrote meanwhile."""
    code, out, err = finish(watcher)
    assert code == 0, err
    return [int(word) for word in out.split()]


# ---- Ending processes that keep forking ----


def end_by_killing_the_keeper(process, keeper, watcher):
    wait_for_its_place(watcher)
    os.kill(keeper, signal.SIGKILL)
    contains(finish(process)[2], "the process that renews it was killed", "the command was ended")


def end_by_killing_the_front(process, _, watcher):
    wait_for_its_place(watcher)
    process.kill()
    finish(process)


def end_by_max_hold(process, _, __):
    code, _, err = finish(process)
    equal(code, 124)
    contains(err, "the command was ended")


def start_without_cgroup(*words):
    hide = 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"'
    return harness.start_unshared("-m", "sh", "-c", hide, "sh", harness.HOLDFAST, *words)


def start_chain(end, start):
    """A busy machine may take longer to start the command than it may hold the lock: then it gets more time."""
    if end is not end_by_max_hold:
        return start_writing("chain", start=start)
    return with_longer_leases(lambda max_hold_s: start_writing("chain", "--max-hold", f"{max_hold_s}s", "--grace", "1ms",
                                                               start=start), leases=(0.3, 3, 20))


def check_chains(start):
    for number in range(rounds(9)):
        end = (end_by_killing_the_keeper, end_by_killing_the_front, end_by_max_hold)[number % 3]
        process, keeper, path, _ = start_chain(end, start)
        watcher = start_watching(path)
        end(process, keeper, watcher)
        size = os.path.getsize(path)
        _, written = seen_by(watcher)
        equal((number, end.__name__, written), (number, end.__name__, 0))
        if end is not end_by_killing_the_front:
            equal(os.path.getsize(path), size)  # "was ended" was true when it was printed


@test
def a_command_that_forks_without_end_has_ended_before_the_next_holder_works():
    check_chains(start)


@test
def a_command_that_forks_without_end_is_ended_without_a_control_group_too():
    check_chains(start_without_cgroup)


# ---- Both processes killed ----


def crew_is_gone():
    """Whether everything that the command started has ended."""
    def belongs(pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return file.read().startswith(f"{WRITER}\0crew\0".encode())
        except OSError:
            return False
    return not any(belongs(pid) for pid in harness.marked())


def kill_one_of_two(has_time, ttl_s):
    """Kills the front or the keeper of a run that writes: (process, pids of the two, when the first was killed, the
    next holder, a time that is not after the deadline). With has_time, the one that is left has then ended the tree."""
    process, keeper, path, deadline_ms = start_writing("crew", "--ttl", f"{ttl_s}s")
    watcher = start_watching(path)
    wait_for_its_place(watcher)
    victims = [process.pid, keeper]
    random.shuffle(victims)
    equal(process.poll(), None)
    os.kill(victims[0], signal.SIGKILL)
    killed_s = time.monotonic()
    if has_time:
        wait_until(crew_is_gone, "the one that is left ends the tree")
        assert boot_ms() < deadline_ms, "the lease may have ended first"
    return process, victims, killed_s, watcher, deadline_ms


@test
def who_kills_both_processes_lets_nobody_in_before_the_tree_or_the_lease_has_ended():
    """In every fifth round, the one that is left has time to end the tree."""
    survived = []
    for number in range(rounds(20)):
        has_time = number % 5 == 0
        process, victims, killed_s, watcher, deadline_ms = with_longer_leases(
            functools.partial(kill_one_of_two, has_time), leases=(2, 6, 18))
        if not has_time:
            time.sleep(random.uniform(0, 0.03))
        apart_ms = 1000 * (time.monotonic() - killed_s)
        try:
            os.kill(victims[1], signal.SIGKILL)
        except ProcessLookupError:
            pass
        began_ms, written = seen_by(watcher)
        who = "the front" if victims[0] == process.pid else "the keeper"
        story = f"round {number}: {who} first, {apart_ms:.1f} ms apart; {written} bytes"
        if written:
            survived.append(story)
            assert began_ms >= deadline_ms, f"{story}, {deadline_ms - began_ms} ms early"
            assert not has_time, story
        harness.end_marked()
        process.communicate()
    print(f"# {len(survived)} times something outlived both, and the lease decided")


# ---- Another boot id ----


@test
def a_container_with_a_boot_id_of_its_own_meets_the_locks_of_its_host():
    boot_id = f"{harness.folder}/boot_id"
    with open(boot_id, "w", encoding="ascii") as file:
        file.write("00000000-0000-4000-8000-000000000000\n")
    holder = start("run", "x", "-c", "echo held; read line", stdin=subprocess.PIPE)
    equal(read_line(holder.stdout), "held")
    inside = harness.start_unshared(
        "-m", "sh", "-c", f"mount --bind {boot_id} /proc/sys/kernel/random/boot_id && "
        f"cat /proc/sys/kernel/random/boot_id && exec {harness.HOLDFAST} run -n x echo ran")
    code, out, _ = finish(inside)
    equal((code, out), (75, "00000000-0000-4000-8000-000000000000\n"))
    assert not harness.is_free("x")
    equal(finish(holder, "go on\n")[0], 0)


main()
