"""The package in a process: its threads, signals, children, exit and death. Mostly on sqlite:, which other processes
see."""
import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

from harness import LIMIT_S, PATIENCE_S, main, new_url, path_of, raises, start_python, test

import holdfast
import holdfast.aio
from holdfast import _c

# Waits in a thread end after this long: a failing test reports its failure instead of hanging.
LONG_S = 100

HOLDS = """
import holdfast, sys
client = holdfast.open(sys.argv[1], guard_pid=int(sys.argv[2]))
hold = client.acquire("job")
print(hold.token, flush=True)
"""


def waiting(client, name="job"):
    """A thread that waits for the lock, and its result."""
    results = []

    def wait():
        try:
            results.append(client.acquire(name, wait=LONG_S))
        except holdfast.Error as error:
            results.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, results


def wait_for_queue(client, length, name="job"):
    until = time.monotonic() + PATIENCE_S
    while len(client.inspect(name).waiters) != length:
        assert time.monotonic() < until, client.inspect(name)
        time.sleep(0.01)


@test
def a_library_that_is_missing_or_too_old_is_named():
    for library, word in (("/no/such/library", "/no/such/library"), ("libc.so.6", "libc.so.6 lacks hf_")):
        child = start_python("import holdfast", stderr=subprocess.PIPE, env={**os.environ, "HOLDFAST_LIBRARY": library})
        said = child.communicate(timeout=PATIENCE_S)[1]
        assert "ImportError" in said and word in said, said


@test
def other_threads_run_while_one_waits():
    with holdfast.open("memory:") as client:
        hold = client.acquire("job")
        thread, results = waiting(client)
        wait_for_queue(client, 1)
        hold.release()
        thread.join(PATIENCE_S)
        assert isinstance(results[0], holdfast.Hold), results
        results[0].release()


@test
def closing_the_client_ends_the_waits_of_other_threads():
    client = holdfast.open("memory:")
    hold = client.acquire("job")
    thread, results = waiting(client)
    wait_for_queue(client, 1)
    client.close()
    thread.join(PATIENCE_S)
    assert isinstance(results[0], holdfast.Closed), results
    raises(holdfast.Closed, client.acquire, "job")
    raises(holdfast.Closed, hold.check)


@test
def a_client_may_be_closed_while_many_threads_begin_calls():
    for _ in range(20):
        client = holdfast.open("memory:")
        began = threading.Semaphore(0)

        def work(client=client, began=began, name=f"{_}"):
            try:
                while True:
                    client.acquire(name).release()
                    began.release()
            except holdfast.Closed:
                pass

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        began.acquire()
        client.close()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


INTERRUPTED = """
import holdfast, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
client = holdfast.open(sys.argv[1])
try:
    {}
except KeyboardInterrupt as error:
    kept = error  # with its traceback
    print("interrupted", flush=True)
sys.stdin.readline()
print(client.acquire("job", wait=0).token, flush=True)
"""


def interrupt(child):
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted\n"


@test
def a_client_is_closed_after_the_recipes_that_were_about_to_begin():
    client, story = holdfast.open("memory:"), []

    def recipe(_):
        began.set()
        while client._handle is not None:
            time.sleep(0.001)
        time.sleep(0.1)
        story.append("recipe")
        return holdfast.Cancelled.code

    began = threading.Event()
    thread = threading.Thread(target=lambda: raises(holdfast.Closed, client._block, recipe))
    thread.start()
    began.wait()
    client.close()
    story.append("closed")
    thread.join()
    assert story == ["recipe", "closed"], story


@test
def ctrl_c_ends_a_wait_and_gives_up_the_place_in_the_queue():
    with holdfast.open(new_url()) as client:
        hold = client.acquire("job")
        child = start_python(INTERRUPTED.format('client.acquire("job")'), new_url())
        wait_for_queue(client, 1)
        interrupt(child)
        wait_for_queue(client, 0)
        hold.release()
        child.communicate("\n", PATIENCE_S)
        assert child.returncode == 0


@test
def an_interrupt_while_the_thread_of_a_recipe_starts_ends_the_recipe():
    """Tries a thread that runs but that nobody waits for yet, and one that has not started."""
    class Interrupted(Exception):
        pass

    class Late(threading.Thread):
        def start(self):
            super().start()
            if begun is not None:
                assert begun.wait(PATIENCE_S)
            raise Interrupted

        def run(self):
            if begun is None:
                assert interrupted.wait(PATIENCE_S)
            super().run()

    def recipe(handle):
        if begun is not None:
            begun.set()
        return _c.library.hf_latch_await(handle, b"latch", None)

    original, threading.Thread = threading.Thread, Late
    for begun in (threading.Event(), None):
        interrupted = threading.Event()
        with holdfast.open("memory:") as client:
            raises(Interrupted, client._block, recipe)
            interrupted.set()
            assert client._recipes == 0
            for thread in threading.enumerate():
                if thread.name == "holdfast":
                    thread.join()
    threading.Thread = original


@test
def ctrl_c_ends_a_recipe():
    with holdfast.open(new_url()) as client:
        child = start_python(INTERRUPTED.format('client.barrier("party", 2).wait()'), new_url())
        until = time.monotonic() + PATIENCE_S
        while not (found := client.inspect("party")) or not found.holders:
            assert time.monotonic() < until
            time.sleep(0.01)
        interrupt(child)
        while client.inspect("party").holders:  # its lease is longer than our patience
            assert time.monotonic() < until + PATIENCE_S
            time.sleep(0.01)
        child.communicate("\n", PATIENCE_S)
        assert child.returncode == 0


@test
def a_signal_handler_that_returns_does_not_end_a_wait():
    handled = []
    signal.signal(signal.SIGUSR1, lambda *_: handled.append(True))
    with holdfast.open("memory:") as client:
        hold = client.acquire("job")

        def release_when_handled():
            while not handled:
                os.kill(os.getpid(), signal.SIGUSR1)
                time.sleep(0.01)
            hold.release()

        thread = threading.Thread(target=release_when_handled)
        thread.start()
        client.acquire("job", wait=LONG_S).release()
        thread.join()
    assert handled


@test
def a_signal_handler_may_use_the_client():
    with holdfast.open("memory:") as client:
        hold = client.acquire("job")
        signal.signal(signal.SIGALRM, lambda *_: hold.release())
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        client.acquire("job", wait=LONG_S).release()


@test
def a_signal_handler_may_use_the_client_while_a_call_starts():
    with holdfast.open("memory:") as client:
        signal.signal(signal.SIGUSR1, lambda *_: client.acquire("other").release())
        open_handle = client._open_handle

        def interrupted():  # with the client's mutex locked
            client._open_handle = open_handle
            os.kill(os.getpid(), signal.SIGUSR1)
            return open_handle()

        client._open_handle = interrupted
        client.acquire("job").release()


@test
def on_lost_is_called_once_and_at_once_if_it_is_late():
    with holdfast.open("memory:") as client:
        hold = client.acquire("job", ttl=0.2, renew=False)
        called, calls = threading.Event(), []
        hold.on_lost(lambda lost: (calls.append(lost), called.set()))
        assert called.wait(PATIENCE_S)
        assert isinstance(calls[0], holdfast.Lost) and "not renewed" in str(calls[0]), calls
        hold.on_lost(calls.append)
        assert len(calls) == 2
        raises(holdfast.Lost, hold.check)
        assert hold.left == 0
        raises(holdfast.Lost, hold.release)


@test
def on_lost_may_close_the_client():
    client = holdfast.open("memory:")
    hold = client.acquire("job", ttl=0.2, renew=False)
    closed = threading.Event()
    hold.on_lost(lambda _: (client.close(), closed.set()))
    assert closed.wait(PATIENCE_S)
    for thread in threading.enumerate():
        if thread.name == "holdfast":
            thread.join()
    raises(holdfast.Closed, hold.check)


@test
def what_on_lost_raises_is_reported_and_does_no_harm():
    seen = threading.Event()
    sys.unraisablehook = lambda _: seen.set()
    with holdfast.open("memory:") as client:
        first, second = (client.acquire(name, ttl=0.2, renew=False) for name in "ab")
        first.on_lost(lambda _: 1 / 0)
        called = threading.Event()
        second.on_lost(lambda _: called.set())
        assert seen.wait(PATIENCE_S) and called.wait(PATIENCE_S)


@test
def a_hold_that_nobody_refers_to_is_released_with_a_warning():
    with holdfast.open("memory:") as client, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hold = client.acquire("job")
        hold.on_lost(lambda _, hold=hold: None)  # a cycle, for the collector to find
        del hold
        gc.collect()
        assert [each.category for each in caught] == [ResourceWarning], caught
        client.acquire("job", wait=LONG_S).release()


@test
def in_a_child_after_fork_the_handles_are_the_parents():
    client = holdfast.open(new_url())
    hold = client.acquire("job")
    pid = os.fork()
    if pid == 0:
        try:
            for function in (hold.check, hold.release, lambda: client.acquire("other")):
                raises(holdfast.Forked, function)
            client.close()
            del hold
            with holdfast.open("memory:") as own:
                own.acquire("job").release()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    hold.check()
    hold.release()
    client.close()


@test
def a_fork_while_another_thread_starts_a_call_does_no_harm():
    client = holdfast.open("memory:")
    ended = threading.Event()

    def work():
        while not ended.is_set():
            client.acquire("job").release()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(50):
            pid = os.fork()
            if pid == 0:
                try:
                    signal.alarm(PATIENCE_S)
                    raises(holdfast.Forked, client.acquire, "job")
                    client.close()
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        ended.set()
        thread.join()


def add_one(url, path):
    with holdfast.open(url) as client:
        for _ in range(20):
            with client.lock("job"):
                with open(path, "r+") as file:
                    number = int(file.read())
                    file.seek(0)
                    file.write(str(number + 1))


@test
def processes_of_multiprocessing_exclude_each_other():
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        path = path_of("number")
        with open(path, "w") as file:
            file.write("0")
        with holdfast.open(new_url()) as client:  # in the parent, as programs have it
            client.acquire("other").release()
            children = [context.Process(target=add_one, args=(new_url(), path)) for _ in range(3)]
            for child in children:
                child.start()
            for child in children:
                child.join(LONG_S)
                assert child.exitcode == 0, (method, child.exitcode)
        with open(path) as file:
            assert file.read() == "60", method


@test
def the_exit_of_the_interpreter_releases_what_is_held():
    """It is not the death of the process that frees it: with this guard_pid, the store does not count that."""
    url = new_url()
    done = subprocess.run([sys.executable, "-c", HOLDS + """
import threading
hold.on_lost(lambda lost: print("lost", lost, flush=True))
def wait():
    try:
        client.acquire("job")
    except holdfast.Closed:
        pass
threading.Thread(target=wait, daemon=True).start()
globals()["in a cycle"] = [hold, client]
""", url, "-1"], capture_output=True, text=True, timeout=LONG_S)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout.count("\n") == 1, done.stdout
    with holdfast.open(url) as client:
        hold = client.acquire("job", wait=10)  # its lease is longer
        assert hold.token > int(done.stdout)
        hold.release()


@test
def the_lock_of_a_killed_process_passes_on_with_a_larger_token():
    url = new_url()
    child = start_python(HOLDS + "sys.stdin.read()", url, 0)
    token = int(child.stdout.readline())
    with holdfast.open(url) as client:
        raises(holdfast.Busy, client.acquire, "job", wait=0)
        child.kill()
        child.wait()
        hold = client.acquire("job", wait=LONG_S)
        assert hold.token > token
        hold.release()


PAIRS = int(os.environ.get("HOLDFAST_TEST_PAIRS", 5000))  # 100000 shows more, and takes a minute


def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def check_flat(work):
    work(PAIRS // 5)  # for things that are allocated once
    before, descriptors = resident(), os.listdir("/proc/self/fd")
    work(PAIRS)
    assert os.listdir("/proc/self/fd") == descriptors
    grown = resident() - before
    print(f"# {grown} bytes more after {PAIRS} pairs")
    assert grown < 1 << 20, grown


@test
def pairs_leave_no_memory_and_no_descriptors_behind():
    with holdfast.open("memory:") as client:
        def work(count):
            for _ in range(count):
                with client.lock("job", wait=5) as hold:
                    hold.on_lost(print)
                    hold.check()
                    raises(holdfast.Busy, client.acquire, "job", wait=0)

        check_flat(work)


@test
def pairs_of_asyncio_leave_no_memory_and_no_descriptors_behind():
    loop = asyncio.new_event_loop()
    client = holdfast.aio.open("memory:")

    async def pairs(count):
        for _ in range(count):
            async with client.lock("job"):
                waiter = asyncio.create_task(client.acquire("job"))
                await asyncio.sleep(0)
                waiter.cancel()
            await asyncio.gather(waiter, return_exceptions=True)

    check_flat(lambda count: loop.run_until_complete(pairs(count)))
    loop.run_until_complete(client.close())
    loop.close()


if __name__ == "__main__":  # not in the processes that multiprocessing starts
    main(LIMIT_S + PAIRS // 200)
