"""The client for programs that may block. Waiting lets other threads run.

The recipes (limit, observe, latch, barrier) make several requests, so they have no call to drop. For the main thread they
run on another one, while it waits where signals can interrupt it. What ends them is hf_client_cancel, and so an exception
of a signal handler also ends what other threads wait for with this client.
"""
from __future__ import annotations

import contextlib
import functools
import threading
from ctypes import byref, c_int64, c_void_p
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Callable, Iterator, TypeVar

from . import _c
from ._core import (AcquireOptions, BaseClient, Call, ClientOptions, HoldView, Names, OwnedHold, counter_of, encoded,
                    encoded_name, ignored, left_of, milliseconds, struct, value_of)
from ._errors import Busy, Cancelled, Closed, Error, Lost, Timeout, check, error, sentence
from ._look import Leader, LockInfo, leader, take_locks

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, Unpack
    P = ParamSpec("P")
    T = TypeVar("T")

SIGNALS_MS = 50  # how often the main thread looks for signals while it waits for a call
CANCEL_S = 0.01  # how often what is to end is cancelled: it may not have begun yet


def in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def code_of(call: Call) -> int:
    """Waits for the call."""
    slice_ms = SIGNALS_MS
    try:
        while (code := _c.library.hf_call_wait(call.handle, slice_ms)) == _c.PENDING:
            slice_ms = SIGNALS_MS if in_main_thread() else _c.FOREVER
    except BaseException:
        call.drop()
        raise
    return int(code)


def complete(call: Call) -> Call:
    call.check(code_of(call))
    return call


# ---- The hold ----


class Hold(OwnedHold):
    __doc__ = OwnedHold.__doc__

    def renew(self, ttl: float = 0) -> None:
        """Renews now, for `ttl` seconds from now on (0: as before)."""
        complete(self._start_renew(ttl))

    def release(self) -> None:
        """Raises Lost if the lock was lost before, Unknown or Unreachable if the store did not confirm the release.
        The lock is no longer held, whatever it raises."""
        complete(self._start_release())
        self._released()

    def on_lost(self, function: Callable[[Lost], object]) -> None:
        """Has `function` called if the lock is lost, with the Lost that says why, on a thread of the library. If it is
        lost already, the function is called at once."""
        self._on_lost(function)

    def fence_open(self, path: str | PathLike[str]) -> None:
        """Registers the token for a file. Call it before the first read."""
        check(_c.library.hf_fence_open(self._handle, encoded(fspath(path))))

    def fence_write(self, path: str | PathLike[str], data: bytes) -> None:
        """Checks the token and replaces the content of the file, in one step."""
        check(_c.library.hf_fence_write(self._handle, encoded(fspath(path)), data, len(data)))


# ---- Counters, latch, barrier ----


class Counter:
    """A number in the store. expiry is how long a counter lasts that the call creates, 0 for no end; wait is how long to
    wait for the store."""

    def __init__(self, client: Client, name: str, expiry: float = 0, wait: float = 10) -> None:
        self._start = functools.partial(client._start_count, name, expiry=expiry, wait=wait)

    def _do(self, op: int, **options: Any) -> _c.Counter:
        call = self._start(op, **options)
        return counter_of(call, code_of(call))

    def get(self) -> int | None:
        return value_of(self._do(_c.COUNT_GET))

    def left(self) -> float | None:
        """Seconds until it expires; None if it does not, or there is no counter."""
        return left_of(self._do(_c.COUNT_GET))

    def add(self, number: int = 1) -> int:
        return int(self._do(_c.COUNT_ADD, number=number).value)

    def swap(self, number: int) -> int | None:
        """Sets it; returns what was there before."""
        return value_of(self._do(_c.COUNT_SWAP, number=number))

    def cas(self, expected: int | None, number: int) -> None:
        """Sets it if it is as expected (None: there is no counter). Otherwise raises Mismatch, whose value says what
        it is."""
        self._do(_c.COUNT_CAS, expected=expected, number=number)

    def remove(self) -> int | None:
        """Returns what was there before."""
        return value_of(self._do(_c.COUNT_REMOVE))


class Latch:
    """Opens once `count` calls have counted it down, and then stays open."""

    def __init__(self, client: Client, name: str, count: int, expiry: float = 0) -> None:
        self._client, self._name, self._count, self._expiry = client, encoded_name(name), count, expiry

    def _options(self, wait: float | None) -> Any:
        return byref(struct(_c.LatchOptions, self._count, milliseconds(self._expiry), milliseconds(wait)))

    def count_down(self, wait: float = 10) -> int:
        """Returns how many are still missing."""
        left = c_int64()
        self._client._block(_c.library.hf_latch_count_down, self._name, self._options(wait), byref(left))
        return left.value

    def wait(self, wait: float | None = None) -> None:
        """Until it is open."""
        self._client._block(_c.library.hf_latch_await, self._name, self._options(wait))


class Place(HoldView):
    """A party's place in a double barrier, to be checked like a hold. Whoever drops it, gives it up."""

    def __init__(self, enter: Callable[[Any], None]) -> None:
        self._barrier = c_void_p()
        enter(byref(self._barrier))
        super().__init__(_c.quick.hf_barrier_hold(self._barrier))

    def __del__(self, free: Callable[[c_void_p], Any] = _c.library.hf_barrier_free) -> None:
        free(self._barrier)

    def leave(self, _client: int, wait_ms: int) -> int:
        return int(_c.library.hf_barrier_leave(self._barrier, wait_ms))


class Barrier:
    """Where `parties` wait for each other, for `wait` seconds at most."""

    def __init__(self, client: Client, name: str, parties: int, ttl: float = 30, wait: float | None = None) -> None:
        self._client, self._name, self._wait_ms = client, encoded_name(name), milliseconds(wait)
        self._options = struct(_c.BarrierOptions, parties, milliseconds(ttl), self._wait_ms)

    def wait(self) -> None:
        """Until all are there."""
        self._client._block(_c.library.hf_barrier_wait, self._name, byref(self._options))

    @contextlib.contextmanager
    def together(self) -> Iterator[Place]:
        """A double barrier: the parties begin the block together and end it together. A party that raises does not wait
        for the others."""
        place = Place(functools.partial(self._client._block, _c.library.hf_barrier_enter, self._name,
                                        byref(self._options)))
        yield place
        self._client._block(place.leave, self._wait_ms)


# ---- Recipes ----


class Recipe:
    """A call of one, which may run on another thread than the one that waits for it."""

    def __init__(self, client: Client, function: Callable[..., int], arguments: tuple[Any, ...]) -> None:
        self.client, self.function, self.arguments = client, function, arguments
        self.code, self.text = Cancelled.code, b""
        self.handle: int | None = None  # of the client, while it runs
        self.abandoned = False
        self.done = threading.Event()

    def run(self) -> None:
        if self.begin():
            try:
                self.code = self.function(self.handle, *self.arguments)
                self.text = _c.quick.hf_last_error()
            finally:
                self.end()
        self.done.set()

    def begin(self) -> bool:
        with self.client._mutex:
            if not self.abandoned and self.client._handle is not None:
                self.handle = self.client._handle
                self.client._recipes += 1
            return self.handle is not None

    def end(self) -> None:
        with self.client._mutex:
            self.handle = None
            self.client._recipes -= 1

    def run_beside(self) -> None:
        """The exception may come while the thread starts."""
        try:
            threading.Thread(target=self.run, name="holdfast").start()
            self.done.wait()
        except BaseException:
            while self.cancel():
                self.done.wait(CANCEL_S)
            raise

    def cancel(self) -> bool:
        """Whether it still runs."""
        with self.client._mutex:
            self.abandoned = True
            if self.handle is not None:
                _c.library.hf_client_cancel(self.handle)
            return self.handle is not None


# ---- The client ----


class Client(BaseClient):
    """A connection to one store, for all threads of the program. Close it, or use it as a context manager."""

    def __init__(self, url: str | None, options: Any) -> None:
        self._recipes = 0  # that run
        super().__init__(url, options)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends what other threads wait for (Closed), and releases the locks that are still held."""
        self._close()

    def acquire(self, names: Names, **options: Unpack[AcquireOptions]) -> Hold:
        """Acquires a lock, or all of several: client.acquire(["db", Want("cache", shared=True)])."""
        return Hold(self, complete(self._start_acquire(names, options)), options.get("keep", False))

    @contextlib.contextmanager
    def lock(self, names: Names, *, ignore_loss: bool = False, **options: Unpack[AcquireOptions]
             ) -> Iterator[Hold]:
        """The same for `with`: acquires when the block is entered, releases when it is left.

        If the lock was lost meanwhile, leaving the block raises Lost, unless an exception is already on its way or
        ignore_loss is true. That the store did not confirm the release is no reason to raise: the work was done under
        the lock, and the library repeats the release."""
        hold = self.acquire(names, **options)
        try:
            yield hold
        except BaseException:
            with contextlib.suppress(Error):
                hold.release()
            raise
        with contextlib.suppress(*ignored(ignore_loss)):
            hold.release()

    def only_one(self, name: str, *, ignore_loss: bool = False, **options: Unpack[AcquireOptions]
                 ) -> Callable[[Callable[P, T]], Callable[P, T | None]]:
        """A decorator for jobs: the function runs under the lock. If somebody else has it, the function does not run and
        None is returned, at once or after `wait` seconds."""
        options.setdefault("wait", 0)

        def decorate(function: Callable[P, T]) -> Callable[P, T | None]:
            @functools.wraps(function)
            def run(*arguments: P.args, **words: P.kwargs) -> T | None:
                with contextlib.ExitStack() as stack:
                    try:
                        stack.enter_context(self.lock(name, ignore_loss=ignore_loss, **options))
                    except (Busy, Timeout):
                        return None
                    return function(*arguments, **words)
                return None
            return run
        return decorate

    def inspect(self, name: str) -> LockInfo | None:
        """None if the store knows nothing of the name."""
        found = take_locks(complete(self._start_inspect(name)))
        return found[0] if found else None

    def list(self, prefix: str = "") -> Iterator[LockInfo]:
        """The locks that are held or waited for, in the order of their names."""
        after = None
        while page := take_locks(complete(self._start_list(prefix, after))):
            yield from page
            after = page[-1].name

    def break_hold(self, name: str, token: int, reason: str | None = None) -> None:
        """Ends somebody else's hold: the one with this token."""
        complete(self._start_break(name, token, reason))

    def counter(self, name: str, expiry: float = 0, wait: float = 10) -> Counter:
        return Counter(self, name, expiry, wait)

    def limit(self, name: str, rate: int, window: float = 1, wait: float | None = None, label: str | None = None,
              fixed: bool = False) -> None:
        """Returns when the caller is let through: at most `rate` are in any `window` seconds. Busy and Timeout mean that
        it is not; their retry_after says how long it would have to wait."""
        options = struct(_c.LimitOptions, rate, milliseconds(window), milliseconds(wait), encoded(label), fixed)
        after_ms = c_int64(-1)
        try:
            self._block(_c.library.hf_limit, encoded_name(name), byref(options), byref(after_ms))
        except (Busy, Timeout) as refusal:
            refusal.retry_after = None if after_ms.value < 0 else after_ms.value / 1000
            raise

    def observe(self, name: str, known: int = 0, wait: float | None = None) -> Leader:
        """Waits until the leader is another than the one with the token `known` (0: nobody), and returns it. To
        campaign, acquire the lock with a label; to resign, release it."""
        found = struct(_c.Leader)
        self._block(_c.library.hf_observe, encoded_name(name), known, milliseconds(wait), byref(found))
        return leader(found)

    def latch(self, name: str, count: int, expiry: float = 0) -> Latch:
        return Latch(self, name, count, expiry)

    def barrier(self, name: str, parties: int, ttl: float = 30, wait: float | None = None) -> Barrier:
        return Barrier(self, name, parties, ttl, wait)

    # -- Recipes --

    def _block(self, function: Callable[..., int], *arguments: Any) -> None:
        """Calls a function of the library that blocks, with the client's handle and these arguments."""
        recipe = Recipe(self, function, arguments)
        if in_main_thread():
            recipe.run_beside()
        else:
            recipe.run()
        if recipe.code == Cancelled.code and self._handle is None:
            raise Closed(sentence(Closed.code))  # see _end_recipes
        if recipe.code < 0:
            raise error(recipe.code, recipe.text)

    def _end_recipes(self, handle: int) -> None:
        while self._recipes:
            _c.library.hf_client_cancel(handle)
            threading.Event().wait(CANCEL_S)

    def _after_fork(self) -> None:
        super()._after_fork()
        self._recipes = 0


def open(url: str | None = None, **options: Unpack[ClientOptions]) -> Client:  # pylint: disable=redefined-builtin
    """Opens a client for the store that `url` names; None: the embedded store, a file that belongs to the user."""
    return Client(url, options)
