"""What only the Python package has, or does differently: the decorator, fences, double barriers, and asyncio's loop and
tasks."""
import asyncio
import math
import os
import sqlite3
import sys
import threading

from harness import PATIENCE_S, main, new_url, path_of, raises, test

import holdfast
import holdfast.aio


@test
def the_text_of_an_error_is_the_librarys():
    with holdfast.open("memory:") as client:
        client_error = raises(holdfast.BadLease, client.acquire, "job", ttl=3600)
        assert "max_lease is 60000 ms" in str(client_error), client_error
        hold = client.acquire("job")
        assert '"job"' in str(raises(holdfast.Busy, client.acquire, "job", wait=0))
        hold.release()
    assert "no-such" in str(raises(holdfast.NoStore, holdfast.open, "no-such:"))
    raises(TypeError, client.acquire, "job", waits=5)


@test
def a_wait_of_less_than_a_millisecond_is_a_wait():
    with holdfast.open("memory:") as client:
        hold = client.acquire("job")
        raises(holdfast.Timeout, client.acquire, "job", wait=0.0001)
        raises(holdfast.Busy, client.acquire, "job", wait=0)
        hold.release()


@test
def numbers_that_do_not_fit_are_refused_not_cut():
    with holdfast.open("memory:") as client:
        raises(holdfast.BadArgument, client.acquire, "gpu", permits=2**32 + 1, capacity=2**32 + 2)
        raises(holdfast.BadArgument, client.acquire, "job", wait=1e30)
        raises(holdfast.BadArgument, client.limit, "mail", rate=2**32 + 1)
        counter = client.counter("n")
        raises(holdfast.BadArgument, counter.add, 2**63)
        counter.add(-2**63)
        assert counter.remove() == -2**63


@test
def errors_say_what_is_wrong():
    with holdfast.open("memory:") as client:
        for wrong, shown in ((5, "5"), (b"job", "b'job'"), (["job", b"b"], "b'b'")):
            assert str(raises(TypeError, client.acquire, wrong)) == f"{shown} is not a string"
        assert str(raises(TypeError, holdfast.open, 5)) == "5 is not a string"
        assert "nan seconds" in str(raises(holdfast.BadArgument, client.acquire, "job", wait=math.nan))
        with client.lock("job", wait=math.inf) as hold:
            assert "'oracle' is not one of postgres, mysql, sqlite" in str(raises(holdfast.BadArgument, hold.fence_sql, "oracle"))


@test
def a_job_that_somebody_else_runs_is_skipped():
    with holdfast.open("memory:") as client:
        @client.only_one("nightly")
        def job(number):
            """Works."""
            assert job(number) is None  # we run it already
            if number == 0:
                raise holdfast.Busy("the job's own")
            return number

        assert (job.__name__, job.__doc__) == ("job", "Works.")
        assert [job(1), job(2)] == [1, 2]
        raises(holdfast.Busy, job, 0)
        assert job(3) == 3


@test
def an_exception_of_the_block_goes_before_the_loss():
    with holdfast.open("memory:") as client:
        def work():
            with client.lock("job", ttl=0.2, renew=False) as hold:
                lost = threading.Event()
                hold.on_lost(lambda _: lost.set())
                assert lost.wait(PATIENCE_S)
                raise ValueError

        raises(ValueError, work)
        client.acquire("job", wait=PATIENCE_S).release()


@test
def the_loss_of_one_of_several_names_is_reported():
    with holdfast.open("memory:") as client:
        hold = client.acquire(["one", "two"])
        lost, calls = threading.Event(), []
        sys.unraisablehook = lambda _: None
        hold.on_lost(lambda _: 1 / 0)  # this does not keep the others from being called
        hold.on_lost(calls.append)
        hold.on_lost(lambda _: lost.set())
        client.break_hold("two", hold.tokens[1], "a test")
        assert lost.wait(PATIENCE_S)
        assert hold.name == "two" and "a test" in str(calls[0]), calls
        raises(holdfast.Lost, hold.check)


@test
def a_block_that_is_entered_by_several_threads_has_a_hold_for_each():
    with holdfast.open("memory:") as client:
        barrier, tokens = threading.Barrier(3), []

        def work():
            with client.lock("data", shared=True) as hold:
                barrier.wait(PATIENCE_S)
                tokens.append(hold.token)
                hold.check()

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(tokens) == 3
        client.acquire("data", wait=0).release()


@test
def the_locks_are_listed_page_by_page():
    with holdfast.open("memory:") as client:
        holds = [client.acquire(f"some/{index:04}") for index in range(1002)]
        other = client.acquire("other")
        assert [found.name for found in client.list("some/")] == [hold.name for hold in holds]
        assert len(list(client.list())) == 1003
        for hold in [*holds, other]:
            hold.release()
        assert client.inspect("no such name") is None


@test
def a_token_fences_a_file_and_a_database():
    with holdfast.open(new_url()) as client:
        with client.lock(["job", "other"]) as old:
            assert len(old.tokens) == 2 and old.tokens[0] == old.token == old.fence_token()
            statement = old.fence_sql("sqlite")
            raises(holdfast.BadArgument, old.fence_sql, "oracle")
        hold = client.acquire("job")
        hold.fence_open(path_of("state"))
        hold.fence_write(path_of("state"), b"a\0b")
        with open(path_of("state"), "rb") as file:
            assert file.read() == b"a\0b"
        database = sqlite3.connect(path_of("data.db"))
        database.execute("CREATE TABLE holdfast_fences (name PRIMARY KEY NOT NULL, token INTEGER NOT NULL "
                         "CONSTRAINT holdfast_token_is_stale CHECK (token > 0)) WITHOUT ROWID")
        database.execute(hold.fence_sql("sqlite"))
        raises(sqlite3.IntegrityError, database.execute, statement)
        hold.release()


@test
def the_parties_of_a_double_barrier_end_together():
    with holdfast.open("memory:") as client:
        story, left = [], threading.Event()

        def work(index):
            with client.barrier("phase", 2, wait=PATIENCE_S).together() as place:
                place.check()
                assert place.token
                if index == 0:
                    left.wait(PATIENCE_S)
                story.append(f"{index} works")
                left.set()
            story.append("left")

        threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert story == ["1 works", "0 works", "left", "left"], story


@test
def a_limiter_says_when_to_try_again():
    with holdfast.open("memory:") as client:
        client.limit("mail", 1, window=30)
        assert 0 < raises(holdfast.Busy, client.limit, "mail", 1, window=30, wait=0).retry_after <= 30
        client.limit("fixed", 1, window=30, wait=0, fixed=True)
        raises(holdfast.Busy, client.limit, "fixed", 1, window=30, wait=0, fixed=True)


# ---- asyncio ----


def run_with_client(function, url="memory:"):
    async def run():
        async with holdfast.aio.open(url) as client:
            await function(client)

    asyncio.run(run())


async def raises_in_loop(kind, awaitable):
    try:
        await awaitable
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


@test
def many_tasks_take_turns_without_a_thread_for_each():
    async def work(client):
        inside, most, threads = 0, 0, 0

        async def take_a_turn():
            nonlocal inside, most, threads
            async with client.lock("job", wait=PATIENCE_S):
                inside += 1
                most = max(most, inside)
                threads = max(threads, len(os.listdir("/proc/self/task")))
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*(take_a_turn() for _ in range(200)))
        assert most == 1
        assert threads <= 4, threads

    for url in ("memory:", new_url()):
        run_with_client(work, url)


@test
def the_loop_goes_on_while_a_task_waits():
    async def work(client):
        hold = await client.acquire("job")
        waiter = asyncio.create_task(client.acquire("job"))
        for _ in range(100):
            await asyncio.sleep(0.001)
        assert not waiter.done()
        await hold.release()
        await (await waiter).release()

    run_with_client(work)


@test
def what_is_granted_to_a_task_that_is_being_cancelled_is_given_back():
    async def work(client):
        for turns in range(10):  # of the loop, between the grant and the cancelling
            hold = await client.acquire("job")
            waiter = asyncio.create_task(client.acquire("job"))
            await asyncio.sleep(0.01)
            await hold.release()
            for _ in range(turns):
                await asyncio.sleep(0)
            waiter.cancel()
            try:
                await (await waiter).release()
            except asyncio.CancelledError:
                pass
            await (await client.acquire("job", wait=PATIENCE_S)).release()

    run_with_client(work)


@test
def a_timeout_of_asyncio_ends_a_wait():
    async def work(client):
        hold = await client.acquire("job")
        await raises_in_loop(asyncio.TimeoutError, asyncio.wait_for(client.acquire("job"), 0.05))
        for _ in range(PATIENCE_S * 100):
            if not (await client.inspect("job")).waiters:
                break
            await asyncio.sleep(0.01)
        else:
            raise AssertionError("its place in the queue is still there")
        await hold.release()

    run_with_client(work)


@test
def the_loop_calls_on_lost():
    async def work(client):
        hold = await client.acquire("job", ttl=0.2, renew=False)
        lost = asyncio.get_running_loop().create_future()
        hold.on_lost(lost.set_result)
        assert "not renewed" in str(await asyncio.wait_for(lost, PATIENCE_S))
        again = asyncio.get_running_loop().create_future()
        hold.on_lost(again.set_result)
        assert str(await again) == str(await lost)
        await raises_in_loop(holdfast.Lost, hold.release())

    run_with_client(work)


@test
def a_job_of_asyncio_that_somebody_else_runs_is_skipped():
    async def work(client):
        @client.only_one("nightly")
        async def job(number):
            assert await job(number) is None
            return number

        assert [await job(1), await job(2)] == [1, 2]

    run_with_client(work)


@test
def the_locks_are_listed_in_the_loop():
    async def work(client):
        async with client.lock("one"), client.lock("two"):
            assert [found.name async for found in client.list()] == ["one", "two"]

    run_with_client(work)


@test
def a_client_belongs_to_one_event_loop_and_threads_own_nothing_in_it():
    client = holdfast.aio.open("memory:")

    async def use():
        await (await client.acquire("job")).release()

    async def refused():
        await raises_in_loop(RuntimeError, client.acquire("job"))
        await raises_in_loop(holdfast.BadArgument, client.acquire("job", reentrant=True))

    asyncio.run(use())
    asyncio.run(refused())
    asyncio.run(client.close())


main()
