"""The client for programs with asyncio. Calls are started and the event loop watches the library's one descriptor, so
there is no thread for a lock. Cancelling a task cancels what it waits for, and gives back what was granted.

    async with holdfast.aio.open("redis://localhost") as client, client.lock("orders", wait=5) as hold:
        await ship_orders(hold.token)

Everything has the name and the meaning that it has in the client that blocks. The recipes that make several requests
(observe, latch, barrier, limit in fixed windows) exist only there: call them in a thread (asyncio.to_thread).
"""
from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, TypeVar

from . import _c
from ._core import (AcquireOptions, BaseClient, Call, ClientOptions, Names, OwnedHold, counter_of, left_of,
                    refuse, ignored, value_of)
from ._errors import BadArgument, Busy, Error, Lost, Timeout, check
from ._look import LockInfo, take_locks

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, Unpack
    P = ParamSpec("P")
    T = TypeVar("T")


class Hold(OwnedHold):
    __doc__ = OwnedHold.__doc__
    _client: Client

    async def renew(self, ttl: float = 0) -> None:
        await self._client._complete(self._start_renew(ttl))

    async def release(self) -> None:
        await self._client._complete(self._start_release())
        self._released()

    def on_lost(self, function: Callable[[Lost], object]) -> None:
        """Has the event loop call `function` if the lock is lost, with the Lost that says why."""
        loop = self._client._attached_loop()
        self._on_lost(lambda lost: loop.call_soon_threadsafe(function, lost))


class Counter:
    """As the counter of the client that blocks."""

    def __init__(self, client: Client, name: str, expiry: float = 0, wait: float = 10) -> None:
        self._client = client
        self._start = functools.partial(client._start_count, name, expiry=expiry, wait=wait)

    async def _do(self, op: int, **options: Any) -> _c.Counter:
        call = self._start(op, **options)
        return counter_of(call, await self._client._code_of(call))

    async def get(self) -> int | None:
        return value_of(await self._do(_c.COUNT_GET))

    async def left(self) -> float | None:
        return left_of(await self._do(_c.COUNT_GET))

    async def add(self, number: int = 1) -> int:
        return int((await self._do(_c.COUNT_ADD, number=number)).value)

    async def swap(self, number: int) -> int | None:
        return value_of(await self._do(_c.COUNT_SWAP, number=number))

    async def cas(self, expected: int | None, number: int) -> None:
        await self._do(_c.COUNT_CAS, expected=expected, number=number)

    async def remove(self) -> int | None:
        return value_of(await self._do(_c.COUNT_REMOVE))


class Client(BaseClient):
    """A connection to one store, for the tasks of one event loop: the one in which it is first used."""

    def __init__(self, url: str | None, options: Any) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fd = -1
        self._futures: dict[int, asyncio.Future[None]] = {}  # of calls in the queue, by the numbers that they have there
        self._numbers = itertools.count(1)
        super().__init__(url, options)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends what other tasks wait for (Closed), and releases the locks that are still held."""
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
        await asyncio.get_running_loop().run_in_executor(None, self._close)
        for future in self._futures.values():
            if not future.done():
                future.set_result(None)

    async def acquire(self, names: Names, **options: Unpack[AcquireOptions]) -> Hold:
        """Acquires a lock, or all of several. Threads own nothing here: reentrant=True needs an owner_key."""
        if options.get("reentrant") and not options.get("owner_key"):
            raise refuse(BadArgument, "with asyncio, reentrant=True needs an owner_key")
        return Hold(self, await self._complete(self._start_acquire(names, options)), options.get("keep", False))

    @contextlib.asynccontextmanager
    async def lock(self, names: Names, *, ignore_loss: bool = False, **options: Unpack[AcquireOptions]
                   ) -> AsyncIterator[Hold]:
        """The same for `async with`. Leaving the block after a loss raises as it does in the client that blocks."""
        hold = await self.acquire(names, **options)
        try:
            yield hold
        except BaseException:
            with contextlib.suppress(Error):
                await hold.release()
            raise
        with contextlib.suppress(*ignored(ignore_loss)):
            await hold.release()

    def only_one(self, name: str, *, ignore_loss: bool = False, **options: Unpack[AcquireOptions]
                 ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T | None]]]:
        """A decorator for jobs, which are coroutine functions here."""
        options.setdefault("wait", 0)

        def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T | None]]:
            @functools.wraps(function)
            async def run(*arguments: P.args, **words: P.kwargs) -> T | None:
                async with contextlib.AsyncExitStack() as stack:
                    try:
                        await stack.enter_async_context(self.lock(name, ignore_loss=ignore_loss, **options))
                    except (Busy, Timeout):
                        return None
                    return await function(*arguments, **words)
                return None
            return run
        return decorate

    async def inspect(self, name: str) -> LockInfo | None:
        found = take_locks(await self._complete(self._start_inspect(name)))
        return found[0] if found else None

    async def list(self, prefix: str = "") -> AsyncIterator[LockInfo]:
        after = None
        while page := take_locks(await self._complete(self._start_list(prefix, after))):
            for found in page:
                yield found
            after = page[-1].name

    async def break_hold(self, name: str, token: int, reason: str | None = None) -> None:
        await self._complete(self._start_break(name, token, reason))

    def counter(self, name: str, expiry: float = 0, wait: float = 10) -> Counter:
        return Counter(self, name, expiry, wait)

    async def limit(self, name: str, rate: int, window: float = 1, wait: float | None = None,
                    label: str | None = None) -> None:
        """Busy and Timeout do not say here when to try again (retry_after is None)."""
        options = {"permits": 1, "capacity": rate, "ttl": window, "wait": wait, "renew": False, "keep": True, "label": label}
        await self._complete(self._start_acquire(name, options))

    # -- The event loop --

    def _attached_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            with self._mutex:
                self._fd = _c.library.hf_fd(self._open_handle())
            check(self._fd)
            loop.add_reader(self._fd, self._on_ready)
            self._loop = loop
        if self._loop is not loop:
            raise RuntimeError("a client belongs to the event loop in which it was first used")
        return loop

    def _on_ready(self) -> None:
        with self._mutex:
            if self._handle is None:
                return
            _c.library.hf_process(self._handle)
            while call := _c.quick.hf_call_next(self._handle):
                future = self._futures.pop(_c.quick.hf_call_data(call))
                if not future.done():
                    future.set_result(None)

    async def _code_of(self, call: Call) -> int:
        """Waits for the call."""
        loop = self._attached_loop()
        if _c.quick.hf_call_status(call.handle) == _c.PENDING:
            number = next(self._numbers)
            self._futures[number] = future = loop.create_future()
            try:
                check(_c.quick.hf_call_queue(call.handle, number))
                await future
            except BaseException:
                call.drop()
                raise
            finally:
                self._futures.pop(number, None)
        return int(_c.quick.hf_call_status(call.handle))

    async def _complete(self, call: Call) -> Call:
        call.check(await self._code_of(call))
        return call


def open(url: str | None = None, **options: Unpack[ClientOptions]) -> Client:  # pylint: disable=redefined-builtin
    """Opens a client for the store that `url` names; None: the embedded store, a file that belongs to the user."""
    return Client(url, options)
