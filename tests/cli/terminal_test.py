"""holdfast run on a terminal: a pty, and a shell with job control where that matters."""
import os
import subprocess

import harness
from harness import equal, is_free, main, pass_time, read_line, start, test, wait_until, with_longer_leases
from terminal import Terminal


def stop_job(terminal, pid):
    """Types Ctrl-Z, and waits for the prompt. A command that has not stopped yet may still read what is typed next."""
    terminal.type("\x1a")
    terminal.expect(r"Stopped")
    terminal.expect(r"\$ ")
    wait_until(lambda: harness.state_of(pid) == "T", "the command is stopped")


def bring_back(terminal, pid):
    """Types fg, and waits until the job has the terminal and continues."""
    terminal.type("fg\n")
    terminal.expect(r"holdfast run.*\n")
    wait_until(lambda: os.tcgetpgrp(terminal.fd) == os.getpgid(pid) and
               harness.state_of(pid) != "T", "the job goes on")


def shell():
    terminal = Terminal("bash", "--norc", "--noprofile", "-i")
    terminal.expect(r"\$ ")
    return terminal


@test
def ctrl_c_reaches_the_command_once():
    terminal = Terminal(harness.HOLDFAST, "run", "x", "-c",
                        "trap 'echo INT; came=1' INT; echo up; until [ $came ]; do sleep 0.05; done; "
                        "sleep 0.5; echo end; exit 4")
    terminal.expect("up")
    terminal.type("\x03")
    found = terminal.expect(r"((?:INT\s+)+)end")
    equal(found[1].split(), ["INT"])
    equal(terminal.wait(), 4)


@test
def ctrl_c_ends_a_plain_command_with_130():
    terminal = Terminal(harness.HOLDFAST, "run", "x", "-c", "echo up; exec sleep 1000")
    terminal.expect("up")
    terminal.type("\x03")
    equal(terminal.wait(), 130)
    assert is_free("x")


@test
def ctrl_c_ends_the_wait():
    holder = start("run", "x", "-c", "echo held; read line", stdin=subprocess.PIPE)
    equal(read_line(holder.stdout), "held")
    terminal = Terminal(harness.HOLDFAST, "run", "x", "echo", "ran")
    terminal.expect("waiting")
    terminal.type("\x03")
    equal(terminal.wait(), 130)
    holder.stdin.close()


def check_ctrl_z(ttl_s):
    terminal = shell()
    terminal.type(f"holdfast run --ttl {ttl_s}s x -c 'echo pid $$.; read line; echo read $line.; exit 7'\n")
    pid = int(terminal.expect(r"pid (\d+)\.\s")[1])
    stop_job(terminal, pid)
    pass_time(1.5 * ttl_s)  # more than its lease
    assert not is_free("x")
    bring_back(terminal, pid)
    terminal.type("hello\n")
    terminal.expect(r"read hello\.")
    terminal.type("echo code $?.\n")
    terminal.expect(r"code 7\.")
    assert is_free("x")


@test
def ctrl_z_stops_the_job_and_keeps_the_lock_and_fg_goes_on():
    with_longer_leases(check_ctrl_z, leases=(4, 12, 30))


@test
def ctrl_z_works_again_and_again():
    terminal = shell()
    terminal.type("holdfast run x -c 'echo pid $$.; read line; echo read $line.'\n")
    pid = int(terminal.expect(r"pid (\d+)\.\s")[1])
    for _ in range(5):
        stop_job(terminal, pid)
        bring_back(terminal, pid)
    terminal.type("hello\n")
    terminal.expect(r"read hello\.")


@test
def a_job_that_was_stopped_while_it_waited_starts_its_command_when_continued():
    holder = start("run", "x", "-c", "echo held; read line", stdin=subprocess.PIPE)
    equal(read_line(holder.stdout), "held")
    terminal = shell()
    terminal.type("holdfast run x -c 'touch ran; echo ran.'\n")
    terminal.expect(r"waiting")
    terminal.type("\x1a")
    terminal.expect(r"Stopped")
    terminal.expect(r"\$ ")
    holder.stdin.close()
    wait_until(lambda: holder.poll() is not None, "the holder has ended")
    wait_until(lambda: not is_free("x"), "the waiter has the lock")
    assert not os.path.exists(f"{harness.folder}/ran")
    terminal.type("fg\n")
    terminal.expect(r"ran\.\s")


@test
def a_command_that_stops_itself_stops_the_job():
    terminal = shell()
    terminal.type("holdfast run x -c 'kill -STOP $$; echo on again.'\n")
    terminal.expect(r"Stopped")
    terminal.expect(r"\$ ")
    terminal.type("fg\n")
    terminal.expect(r"on again\.")
    terminal.expect(r"\$ ")


@test
def a_job_in_the_background_runs_on():
    terminal = shell()
    terminal.type("holdfast run x -c 'echo bg > out; exit 3' & wait $!; echo code $?.\n")
    terminal.expect(r"code 3\.")


@test
def a_pager_has_the_terminal():
    with open(f"{harness.folder}/text", "w") as file:
        file.write("".join(f"line {i}\n" for i in range(1000)))
    terminal = shell()
    terminal.type("holdfast run x -- less text; echo code $?.\n")
    terminal.expect(r"line 5\s")
    terminal.type("G")
    terminal.expect(r"line 999\s")
    terminal.type("q")
    terminal.expect(r"code 0\.")


@test
def a_pager_behind_a_pipe_works_and_its_end_ends_the_command():
    terminal = shell()
    terminal.type("holdfast run x -- seq 10000000 | less; echo codes ${PIPESTATUS[*]}.\n")
    terminal.expect(r"20\s")
    terminal.type("q")
    terminal.expect(r"codes 141 0\.")
    assert is_free("x")


@test
def the_line_of_those_who_wait_is_drawn_again():
    holder = start("run", "x", "--label", "nightly \x1b[31m", "-c", "echo held; read line",
                   stdin=subprocess.PIPE)
    equal(read_line(holder.stdout), "held")
    terminal = Terminal(harness.HOLDFAST, "run", "x", "echo", "ran.")
    terminal.expect(r"\rwaiting \S+ · held by \S+ pid \d+ \(nightly \\x1b\[31m\) for ")
    terminal.expect(r"\rwaiting [1-9]\d*s · held by ")
    holder.stdin.close()
    terminal.expect(r"\r\x1b\[K")
    terminal.expect(r"ran\.")
    equal(terminal.wait(), 0)


@test
def the_terminal_going_away_ends_the_command():
    terminal = Terminal(harness.HOLDFAST, "run", "x", "-c", "echo pid $$.; exec sleep 1000")
    pid = int(terminal.expect(r"pid (\d+)\.\s")[1])
    os.close(terminal.fd)
    harness.wait_gone(pid)
    wait_until(lambda: is_free("x"), "the lock is free")


main()
