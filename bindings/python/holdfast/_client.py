"""The client, its locks and its holds, for programs that may block.

Design notes. Whatever waits is started first (hf_…_start) and then waited for, for three reasons. A wait ends when its
Call is dropped, whoever raised: then the library gives up the place in the queue, and releases what was granted but not
taken. The main thread, where Python runs signal handlers, wakes up now and then to run them. And the client's mutex is
held only while a call starts, so that none begins once the client is being closed.

A handle is freed by its object's __del__, and by nothing else: while one thread is in a method, no other can free it.
"""
from __future__ import annotations

import atexit
import functools
import math
import os
import sys
import threading
import warnings
import weakref
from ctypes import byref, c_void_p, sizeof
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, TypedDict

from . import _c
from ._errors import BadArgument, BadName, Closed, Error, Lost, Unknown, Unreachable, check, error, sentence

SIGNALS_MS = 50  # how often the main thread looks for signals while it waits

if TYPE_CHECKING:
    from typing_extensions import Unpack


# ---- Options ----


class ClientOptions(TypedDict, total=False):
    """hf_client_options. `command` is by default the script's name instead of Python's."""
    max_lease: float
    wait_lease: float
    drift_ppm: int
    token_floor: int
    command: str
    guard_pid: int
    store_wait: float | None  # None: no limit


class AcquireOptions(TypedDict, total=False):
    """hf_acquire_options. `permits` and `capacity` belong together; without them and `shared`, the lock is exclusive."""
    wait: float | None  # 0: try once; None, the default: no limit
    ttl: float  # the lease; 30 if it is not given
    shared: bool
    permits: int
    capacity: int
    min_left: float
    barge: bool
    reentrant: bool
    owner_key: int
    renew: bool  # True if it is not given
    keep: bool
    label: str


class LockOptions(AcquireOptions, total=False):
    ignore_loss: bool  # leaving the block after a loss does not raise


def milliseconds(seconds: float | None) -> int:
    """None: no limit. Rounded up: a short wait is not the same as none."""
    if seconds is None:
        return _c.FOREVER
    if seconds < 0:
        raise BadArgument(f"{sentence(BadArgument.code)}: {seconds} seconds")
    return math.ceil(seconds * 1000)


def encoded(text: str | None, refusal: type[Error] = BadArgument) -> bytes | None:
    if text is None:
        return None
    if "\0" in text:
        raise refusal(f"{sentence(refusal.code)}: {text!r}")
    return text.encode(errors="surrogateescape")


def script_name() -> str | None:
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    return None if name in ("", "-c") else name


def client_options(max_lease: float = 60, wait_lease: float = 3, drift_ppm: int = 10000, token_floor: int = 0,
                   command: str | None = None, guard_pid: int = 0, store_wait: float | None = 10) -> _c.ClientOptions:
    return _c.ClientOptions(sizeof(_c.ClientOptions), milliseconds(max_lease), milliseconds(wait_lease), drift_ppm,
                            token_floor, encoded(command or script_name()), guard_pid,
                            None, None, milliseconds(store_wait))


def acquire_options(loss: Loss, wait: float | None = None, ttl: float = 30, shared: bool = False,
                    permits: int | None = None, capacity: int | None = None, min_left: float = 0, barge: bool = False,
                    reentrant: bool = False, owner_key: int = 0, renew: bool = True, keep: bool = False,
                    label: str | None = None) -> _c.AcquireOptions:
    if (permits is None) != (capacity is None) or shared and permits is not None:
        raise BadArgument(f"{sentence(BadArgument.code)}: give permits and capacity, or shared, or none of them")
    kind = _c.SHARED if shared else _c.EXCLUSIVE if permits is None else _c.PERMITS
    flags = barge * _c.BARGE | reentrant * _c.REENTRANT | (not renew) * _c.NO_RENEW | keep * _c.KEEP
    return _c.AcquireOptions(sizeof(_c.AcquireOptions), kind, permits or 0, capacity or 0, milliseconds(wait),
                             milliseconds(ttl), milliseconds(min_left), flags, owner_key, encoded(label), on_loss, loss)


# ---- Calls ----


class Call:
    """A call that was started. Whoever drops it, cancels it."""
    __slots__ = ("handle", "keeps", "__weakref__")

    def __init__(self, keeps: object = None) -> None:
        self.handle = c_void_p()
        self.keeps = keeps  # what the library may still use

    def __del__(self, free: Callable[[c_void_p], Any] = _c.library.hf_call_free) -> None:
        free(self.handle)

    def result(self, code: int) -> None:
        if code < 0:
            raise error(code, _c.quick.hf_call_error(self.handle))

    def wait(self) -> None:
        slice_ms = SIGNALS_MS if threading.current_thread() is threading.main_thread() else _c.FOREVER
        while (code := _c.library.hf_call_wait(self.handle, slice_ms)) == _c.PENDING:
            pass
        self.result(code)


# ---- The hold ----


class Loss:
    """Whether a hold was lost, and who wants to know. The library has its address until the hold is freed."""
    __slots__ = ("mutex", "error", "functions", "__weakref__")

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.error: Lost | None = None
        self.functions: list[Callable[[Lost], object]] = []

    def report(self, lost: Lost) -> None:
        with self.mutex:
            self.error = lost
            functions, self.functions = self.functions, []
        for function in functions:
            function(lost)

    def add(self, function: Callable[[Lost], object]) -> None:
        with self.mutex:
            if self.error is None:
                self.functions.append(function)
                return
        function(self.error)


def report_loss(_hold: int, loss: Loss) -> None:
    loss.report(Lost(_c.quick.hf_last_error().decode(errors="replace")))


on_loss = _c.LostFunction(report_loss)


class BaseHold:
    """What a hold has whether the program blocks or uses asyncio."""

    def __init__(self, client: Any, loss: Loss, call: Call) -> None:
        self._client = client
        self._loss = loss
        self._handle: int = _c.quick.hf_call_take_hold(call.handle)
        self._ended = False
        self.token: int = _c.quick.hf_hold_token(self._handle)

    def __del__(self, free: Callable[[int], Any] = _c.library.hf_hold_free, warn: Any = warnings.warn) -> None:
        handle = getattr(self, "_handle", None)
        if handle is None:
            return
        if not self._ended and self.left > 0:
            warn(f"{self!r} was not released", ResourceWarning, source=self)
        free(handle)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} token={self.token} left={self.left:.3f}>"

    @property
    def left(self) -> float:
        """Seconds until the deadline; 0 if the lock is not held."""
        return float(_c.quick.hf_hold_left_ms(self._handle) / 1000)

    @property
    def exclusive(self) -> bool:
        """Whether nobody else can hold the lock at the same time, so that the token fences."""
        return bool(_c.quick.hf_hold_is_exclusive(self._handle))

    def check(self, need: float = 0) -> None:
        """Returns if the lock is held with at least `need` seconds left. Otherwise raises Short, Lost or Released."""
        check(_c.quick.hf_check(self._handle, milliseconds(need)))

    def on_lost(self, function: Callable[[Lost], object]) -> None:
        """Has `function` called if the lock is lost, with the Lost that says why: once, and at once if it is lost
        already. It runs on a thread of the library, with asyncio in the event loop."""
        self._loss.add(function)


class Hold(BaseHold):
    """A lock that was granted. It is renewed until it is released or lost. Without any reference to it, it is
    released, unless it was acquired with keep=True."""

    def renew(self, ttl: float = 0) -> None:
        """Renews now, for `ttl` seconds from now on (0: as before)."""
        call = Call(self)
        check(_c.library.hf_renew_start(self._handle, milliseconds(ttl), byref(call.handle)))
        call.wait()

    def release(self) -> None:
        """Raises Lost if the lock was lost before, Unknown or Unreachable if the store did not confirm the release.
        The lock is no longer held, whatever it raises."""
        self._ended = True
        call = Call(self)
        check(_c.library.hf_release_start(self._handle, byref(call.handle)))
        call.wait()


# ---- Locks ----


class Lock:
    """For `with`: acquires when the block is entered, releases when it is left.

    If the lock was lost meanwhile, leaving the block raises Lost, unless an exception is already on its way or
    ignore_loss is true. That the store did not confirm the release is no reason to raise: the work was done under the
    lock, and the library repeats the release."""

    def __init__(self, acquire: Callable[..., Hold], what: object, options: Any) -> None:
        self._ignored = (Unknown, Unreachable, Lost) if options.pop("ignore_loss", False) else (Unknown, Unreachable)
        self._acquire = functools.partial(acquire, what, **options)
        self._holds: list[Hold] = []  # more than one if the lock is entered again, as with reentrant=True

    def __enter__(self) -> Hold:
        hold = self._acquire()
        self._holds.append(hold)
        return hold

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:
        try:
            self._holds.pop().release()
        except Error as failure:
            if value is None and not isinstance(failure, self._ignored):
                raise


# ---- The client ----


class BaseClient:
    """An open client and the mutex under which calls of it start."""

    def __init__(self, url: str | None, options: Any) -> None:
        handle = c_void_p()
        self._handle: int | None = None
        self._mutex = threading.RLock()  # a signal handler may call the client in the middle of a call
        check(_c.library.hf_client_open(encoded(url), byref(client_options(**options)), byref(handle)))
        self._handle = handle.value
        clients.add(self)

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        with self._mutex:
            handle, self._handle = self._handle, None
        if handle is not None:
            _c.library.hf_client_close(handle)

    def _start(self, function: Callable[..., int], *arguments: Any, keeps: object = None) -> Call:
        call = Call(keeps)
        with self._mutex:
            if self._handle is None:
                raise Closed(sentence(Closed.code))
            check(function(self._handle, *arguments, byref(call.handle)))
        return call

    def _start_acquire(self, name: str, loss: Loss, options: Any) -> Call:
        return self._start(_c.library.hf_acquire_start, encoded(name, BadName),
                           byref(acquire_options(loss, **options)), keeps=loss)


class Client(BaseClient):
    """A connection to one store, for all threads of the program. Close it, or use it as a context manager."""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends what other threads wait for (Closed), and releases the locks that are still held."""
        self._close()

    def acquire(self, name: str, **options: Unpack[AcquireOptions]) -> Hold:
        loss = Loss()
        call = self._start_acquire(name, loss, options)
        call.wait()
        return Hold(self, loss, call)

    def lock(self, name: str, **options: Unpack[LockOptions]) -> Lock:
        return Lock(self.acquire, name, options)


def open(url: str | None = None, **options: Unpack[ClientOptions]) -> Client:  # pylint: disable=redefined-builtin
    """Opens a client for the store that `url` names; None: the embedded store, a file that belongs to the user."""
    return Client(url, options)


# ---- The process ----

clients: weakref.WeakSet[BaseClient] = weakref.WeakSet()


def close_all() -> None:
    """The library's threads call Python: they must have ended before the interpreter does."""
    for client in list(clients):
        client._close()


def forget_mutexes() -> None:
    """In a child after fork(), a thread that does not exist here may have them."""
    for client in list(clients):
        client._mutex = threading.RLock()


atexit.register(close_all)
os.register_at_fork(after_in_child=forget_mutexes)
