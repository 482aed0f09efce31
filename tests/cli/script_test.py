"""holdfast acquire, renew and release: locks for scripts."""
import os
import signal

from harness import (boot_ms, break_lock, contains, equal, finish, is_free, main, matches, read_line,
                     run, shell, start_program, test, wait_gone, wait_until, with_path)


@test
def a_script_locks_here_and_unlocks_there():
    code, out, _ = run("acquire", "it's mine", "--ttl", "1m")
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
def the_lock_ends_with_the_shell_that_it_is_for():
    process = start_program("bash", "-c", 'eval "$(holdfast acquire x --for-pid $$)"; '
                            "echo $HOLDFAST_TOKEN; sleep 1000; :", env=with_path())
    assert int(read_line(process.stdout)) > 0
    assert not is_free("x")
    process.kill()
    wait_until(lambda: is_free("x"), "the lock is free")


@test
def it_ends_too_when_the_script_just_ends():
    equal(shell('eval "$(holdfast acquire x --for-pid $$)" && holdfast run -q -n x true')[0], 75)
    wait_until(lambda: is_free("x"), "the lock is free")


@test
def its_time_is_up_unless_it_is_renewed():
    before = boot_ms()
    hold = matches(run("acquire", "x", "--ttl", "5s")[1], r"HOLD=(\w+)")[1]
    equal(run("renew", hold, "--ttl", "7s")[0], 0)
    wait_until(lambda: is_free("x"), "the lock is free")
    assert boot_ms() - before > 6900
    equal(run("renew", hold)[0], 79)


@test
def who_does_not_get_it_knows_it_from_eval():
    run("acquire", "x", "--ttl", "1m")
    code, out, err = shell('eval "$(holdfast acquire -n x --for-pid $$)" || exit; echo not here')
    equal((code, out), (75, ""))
    contains(err, "did not acquire x (held by")
    equal(shell('eval "$(holdfast acquire -n -E 9 x --for-pid $$)"')[0], 9)
    equal(shell('eval "$(holdfast acquire x)"')[0], 64)
    equal(shell('eval "$(holdfast acquire x --for-pid 999999999)"')[0], 64)


@test
def a_wait_that_is_killed_leaves_nothing_behind():
    out = run("acquire", "x", "--ttl", "1m")[1]
    waiter = start_program("holdfast", "acquire", "x", "--ttl", "1m", env=with_path())
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
def a_holder_that_is_told_to_end_lets_go():
    holder = matches(shell('eval "$(holdfast acquire x --ttl 1m)"; holdfast run -n x true')[2],
                     r"pid (\d+) \(holdfast acquire\)")[1]
    os.kill(int(holder), signal.SIGTERM)
    wait_gone(int(holder))
    assert is_free("x")


main()
