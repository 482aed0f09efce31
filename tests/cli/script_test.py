"""holdfast acquire, renew and release: locks for scripts."""
import json
import os
import shutil
import signal

import harness
from harness import (boot_ms, break_lock, contains, equal, finish, is_free, lives, main, matches, read_line,
                     read_pids, run, shell, start_program, test, wait_gone, wait_until, with_path)

ACQUIRE = 'lock=$(holdfast acquire x --for-pid $$) && eval "$lock" || exit; '


def start_script(script, shell="bash"):
    return start_program(shell, "-c", script, env=with_path())


def kill_script(process):
    process.kill()
    process.wait(timeout=harness.PATIENCE_S)


def pid_of_holder(name):
    holder, = json.loads(run("inspect", "--json", name)[1])["holders"]
    equal(holder["command"], "holdfast acquire")
    return holder["pid"]


@test
def a_script_locks_here_and_unlocks_there():
    code, out, _ = run("acquire", "it's mine", "--for", "1m")
    equal(code, 0)
    hold = matches(out, r"HOLDFAST_HOLD=([0-9a-f]{16});")[1]
    assert not is_free("it's mine")
    code, out, err = shell(out + 'echo "$HOLDFAST_LOCK"; holdfast release')
    equal((code, out, err), (0, "it's mine\n", ""))
    assert is_free("it's mine")
    code, _, err = run("release", hold)
    equal(code, 79)
    contains(err, "holdfast: the lock is not held")


@test
def only_a_holder_makes_the_folder_of_holders():
    holders = f"{harness.folder}/holdfast"
    equal(run("release", 16 * "0")[0], 79)
    assert not os.path.exists(holders)
    hold = matches(run("acquire", "x", "--for", "1s")[1], r"HOLD=(\w+)")[1]
    pid = pid_of_holder("x")
    shutil.rmtree(holders)
    wait_gone(pid)
    assert not os.path.exists(holders)
    equal(run("release", hold)[0], 79)


@test
def a_time_too_short_for_any_work_is_refused():
    for time in ("0", "999ms"):
        code, out, err = run("acquire", "x", "--for", time)
        equal((code, out), (64, "(exit 64)\n"))
        contains(err, "--for must be at least 1s")
    hold = matches(run("acquire", "x", "--for", "1m")[1], r"HOLD=(\w+)")[1]
    code, _, err = run("renew", hold, "--for", "0")
    equal(code, 64)
    contains(err, "--for must be at least 1s")
    assert not is_free("x")
    equal(run("release", hold)[0], 0)


@test
def with_both_times_the_lock_ends_with_the_first():
    code, out, _ = shell('holdfast acquire x --for 1s --for-pid $$ >/dev/null && until holdfast run -q -n x true; '
                         'do sleep 0.1; done; echo free')
    equal((code, out), (0, "free\n"))
    script = start_script('eval "$(holdfast acquire x --for 1h --for-pid $$)"; echo $$; kill -STOP $$')
    read_pids(script, 1)
    assert not is_free("x")
    kill_script(script)
    wait_until(lambda: is_free("x"), "the lock is free")


@test
def the_lock_ends_with_the_shell_that_it_is_for():
    script = start_script(ACQUIRE + "echo $HOLDFAST_TOKEN; kill -STOP $$")
    assert int(read_line(script.stdout)) > 0
    assert not is_free("x")
    kill_script(script)
    wait_until(lambda: is_free("x"), "the lock is free")


@test
def it_ends_too_when_the_script_just_ends():
    equal(shell('eval "$(holdfast acquire x --for-pid $$)" && holdfast run -q -n x true')[0], 75)
    wait_until(lambda: is_free("x"), "the lock is free")


@test
def a_script_without_standard_descriptors_holds_its_lock():
    for closed in ("<&-", "2>&-", "<&- 2>&-"):
        code, _, _ = shell(f"holdfast acquire x --for 1m >lock.env {closed} || exit; . ./lock.env; "
                           "holdfast run -q -n x true; code=$?; holdfast release && exit $code")
        equal((closed, code), (closed, 75))
    equal(shell("holdfast run x -c 'exit 7' <&- >&- 2>&-")[0], 7)


# ---- What the script has started ----


@test
def what_a_killed_script_has_started_keeps_the_lock():
    shells = [name for name in ("bash", "dash", "zsh") if shutil.which(name)]
    assert len(shells) >= 2, shells
    for name in shells:
        script = start_script(ACQUIRE + "sh -c 'echo $$; exec sleep 1000'; :", name)
        step, = read_pids(script, 1)
        kill_script(script)
        assert not is_free("x") and lives(step), name
        os.kill(step, signal.SIGKILL)
        wait_until(lambda: is_free("x"), "the lock is free")


@test
def so_does_a_part_of_the_script_itself():
    """A loop after a pipe is a process of the shell itself: it executes no program that could be recognised."""
    script = start_script(ACQUIRE + "yes | while read line; do echo $BASHPID; sleep 1000; done; :")
    loop, = read_pids(script, 1)
    kill_script(script)
    steps = lambda: open(f"/proc/{loop}/task/{loop}/children").read().split()
    wait_until(steps, "its step")
    step = int(steps()[0])
    os.kill(loop, signal.SIGKILL)
    assert not is_free("x")  # the step goes on
    os.kill(step, signal.SIGKILL)
    wait_until(lambda: is_free("x"), "the lock is free")


@test
def so_does_what_has_a_session_and_an_environment_of_its_own():
    script = start_script(ACQUIRE + "env -i setsid -f sh -c 'echo $$; exec sleep 1000'; sleep 1000; :")
    daemon, = read_pids(script, 1)
    kill_script(script)
    children = [pid for pid in harness.marked() if pid != daemon]
    for pid in children:
        if "sleep" in open(f"/proc/{pid}/cmdline").read():
            os.kill(pid, signal.SIGKILL)
    assert not is_free("x")
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: is_free("x"), "the lock is free")


@test
def a_script_with_several_locks_keeps_each_of_them():
    script = start_script(ACQUIRE + 'eval "$(holdfast acquire y --for-pid $$)"; '
                          "sh -c 'echo $$; exec sleep 1000'; :")
    step, = read_pids(script, 1)
    kill_script(script)
    assert not is_free("x") and not is_free("y")
    os.kill(step, signal.SIGKILL)
    wait_until(lambda: is_free("x") and is_free("y"), "the locks are free")


@test
def a_release_does_not_wait_for_what_still_runs():
    script = start_script(ACQUIRE + "sleep 1000 & echo; holdfast release; echo done; sleep 1000; :")
    equal([read_line(script.stdout) for _ in range(2)], ["", "done"])
    assert is_free("x")


@test
def a_script_may_lock_again_and_again():
    code, out, err = shell('for i in 1 2 3 4 5 6 7 8 9 10; do eval "$(holdfast acquire x --for-pid $$)" || exit; '
                           "holdfast release || exit; done; ls -l /proc/$$/fd | grep -c lifeline")
    equal((code, out, err), (0, "1\n", ""))


@test
def a_descriptor_of_the_script_is_left_alone():
    code, out, _ = shell("exec 9>nine 8>eight; " + ACQUIRE + "echo 9 >&9; echo 8 >&8; cat nine eight")
    equal((code, out), (0, "9\n8\n"))
    code, out, err = shell("exec 3>a 4>a 5>a 6>a 7>a 8>a 9>a; " + ACQUIRE + "echo not here")
    equal((code, out), (78, ""))
    contains(err, "has no free descriptor from 3 to 9", "holdfast run")


@test
def a_lost_lock_ends_what_a_killed_script_has_started():
    script = start_script(ACQUIRE + "echo $HOLDFAST_TOKEN; sh -c 'echo $$; exec sleep 1000'; :")
    token = read_line(script.stdout)
    step, = read_pids(script, 1)
    kill_script(script)
    assert not is_free("x")
    break_lock("x", token)
    wait_gone(step)


@test
def the_holder_of_another_lock_does_not_count():
    """The other keeper was also started by the script, and each would wait for the other to end."""
    equal(shell(ACQUIRE + 'eval "$(holdfast acquire y --for-pid $$)"')[0], 0)
    wait_until(lambda: is_free("x") and is_free("y"), "the locks are free")


@test
def a_holder_that_is_killed_frees_nothing_at_once():
    """The script continues and does not notice: the lease decides."""
    script = start_script(ACQUIRE + "echo; kill -STOP $$")
    read_line(script.stdout)
    holder = pid_of_holder("x")
    os.kill(holder, signal.SIGKILL)
    wait_gone(holder)
    kill_script(script)
    assert not is_free("x")


# ---- Times ----


@test
def ttl_is_the_lease_and_for_is_the_time_of_the_hold():
    for words, least_s, most_s in (((), 0, 30), (("--ttl", "59s"), 31, 59)):
        equal(run("acquire", "x", "--for", "10h", *words)[0], 0)
        left_ms = int(matches(run("inspect", "x", "--json")[1], r'"left_ms":(\d+)')[1])
        assert least_s * 1000 < left_ms <= most_s * 1000, left_ms
        holder = int(matches(run("inspect", "x")[1], r"pid (\d+)")[1])
        os.kill(holder, signal.SIGTERM)
        wait_gone(holder)
    for words, expected in ((("--for", "10h", "--ttl", "10h"), "--ttl must be at most 1m00s (--max-lease)"),
                            (("--for", "10h", "--ttl", "10ms"), "--ttl must be at least 1s"),
                            (("--ttl", "10h"), "or --for 10m")):
        code, _, err = run("acquire", "x", *words)
        equal(code, 64)
        contains(err, expected)
    contains(run("renew", "0123456789abcdef", "--ttl", "1m")[2], "--ttl is not an option here")


@test
def its_time_is_up_unless_it_is_renewed():
    before = boot_ms()
    hold = matches(run("acquire", "x", "--for", "5s")[1], r"HOLD=(\w+)")[1]
    equal(run("renew", hold, "--for", "7s")[0], 0)
    wait_until(lambda: is_free("x"), "the lock is free")
    assert boot_ms() - before > 6900
    equal(run("renew", hold)[0], 79)


@test
def a_script_that_does_not_find_the_command_stops():
    code, out, _ = shell("PATH=/nonexistent; " + ACQUIRE + "echo not here")
    equal((code, out), (127, ""))


@test
def a_script_that_does_not_get_the_lock_stops():
    run("acquire", "x", "--for", "1m")
    code, out, _ = shell(ACQUIRE.replace("acquire x", "acquire -n x") + "echo not here")
    equal((code, out), (75, ""))


@test
def who_does_not_get_it_knows_it_from_eval():
    run("acquire", "x", "--for", "1m")

    def is_told_who_holds_it():  # unless a slow machine does not find out in half a second
        code, out, err = shell('eval "$(holdfast acquire -n x --for-pid $$)" || exit; echo not here')
        equal((code, out), (75, ""))
        contains(err, "did not acquire x (")
        return "(held by" in err

    wait_until(is_told_who_holds_it, "it says who holds it")
    equal(shell('eval "$(holdfast acquire -n -E 9 x --for-pid $$)"')[0], 9)
    equal(shell('eval "$(holdfast acquire x)"')[0], 64)
    equal(shell('eval "$(holdfast acquire x --for-pid 999999999)"')[0], 64)


@test
def a_wait_that_is_killed_leaves_nothing_behind():
    out = run("acquire", "x", "--for", "1m")[1]
    waiter = start_program("holdfast", "acquire", "x", "--for", "1m", env=with_path())
    contains(read_line(waiter.stderr), "waiting for x")
    waiter.terminate()
    finish(waiter)
    equal(shell(out + "holdfast release")[0], 0)
    wait_until(lambda: is_free("x"), "the lock is free")


@test
def a_lost_lock_ends_the_process_that_it_is_for():
    process = start_program("bash", "-c", 'eval "$(holdfast acquire x --for-pid $$)"; '
                            "trap 'echo lost; exit 4' TERM; echo $HOLDFAST_TOKEN; "
                            "while :; do sleep 0.05; done", env=with_path())
    break_lock("x", read_line(process.stdout))
    equal(read_line(process.stdout), "lost")
    equal(finish(process)[0], 4)


@test
def a_holder_that_is_told_to_end_releases_the_lock():
    equal(run("acquire", "x", "--for", "1m")[0], 0)
    holder = pid_of_holder("x")
    os.kill(holder, signal.SIGTERM)
    wait_gone(holder)
    assert is_free("x")


main()
