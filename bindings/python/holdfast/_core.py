"""What programs that block and programs with asyncio share: options, calls, holds, the client's handle.

Design notes. Whatever waits is started first (hf_…_start) and then waited for, for three reasons. An exception ends a
wait: its Call is dropped, so the library gives up the place in the queue and releases what was granted. The main
thread, where Python runs signal handlers, wakes up now and then to run them. And the client's mutex is held only while a
call starts, so that none begins once the client is being closed.

The handle of a hold is freed by __del__, and by nothing else: while one thread is in a method, no other can free it.
"""
from __future__ import annotations

import atexit
import collections.abc
import functools
import math
import os
import sys
import threading
import warnings
import weakref
from ctypes import POINTER, Structure, byref, c_uint64, c_void_p, create_string_buffer, pointer, sizeof
from typing import Any, Callable, NamedTuple, Sequence, TypedDict, TypeVar, Union

from . import _c
from ._errors import (BadArgument, BadName, Closed, Error, Lost, Mismatch, Unknown, Unreachable, check, error,
                      sentence)
from ._look import decoded

PAGE = 1000  # of a list of locks
DIALECTS = {"postgres": _c.POSTGRES, "mysql": _c.MYSQL, "sqlite": _c.SQLITE}


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


class Want(NamedTuple):
    """One of several names, if it is not wanted exclusively."""
    name: str
    shared: bool = False
    permits: int | None = None
    capacity: int | None = None


Struct = TypeVar("Struct", bound=Structure)
Names = Union[str, Sequence[Union[str, Want]]]


def refuse(kind: type[Error], what: str) -> Error:
    """As the library words it."""
    return kind(f"{sentence(kind.code)}: {what}")


def milliseconds(seconds: float | None) -> int:
    """None and infinity: no limit. Rounded up: a short wait is not the same as none."""
    if seconds is None or seconds == math.inf:
        return _c.FOREVER
    if not seconds >= 0:  # NaN is not, either
        raise refuse(BadArgument, f"{seconds} seconds")
    return math.ceil(seconds * 1000)


def encoded(text: str | None, kind: type[Error] = BadArgument) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is not a string")
    if "\0" in text:
        raise refuse(kind, repr(text))
    return text.encode(errors="surrogateescape")


def encoded_name(name: str) -> bytes | None:
    return encoded(name, BadName)


def struct(kind: type[Struct], *values: Any) -> Struct:
    """One that begins with its size. ctypes would cut a number to fit its field."""
    made = kind(sizeof(kind), *values)
    for (name, *_), value in zip(kind._fields_[1:], values):
        if isinstance(value, int) and getattr(made, name) != value:
            raise refuse(BadArgument, f"{name} is {value}")
    return made


def script_name() -> str | None:
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    return None if name in ("", "-c") else name


def client_options(max_lease: float = 60, wait_lease: float = 3, drift_ppm: int = 10000, token_floor: int = 0,
                   command: str | None = None, guard_pid: int = 0, store_wait: float | None = 10) -> _c.ClientOptions:
    return struct(_c.ClientOptions, milliseconds(max_lease), milliseconds(wait_lease), drift_ppm, token_floor,
                  encoded(command or script_name()), guard_pid, None, None, milliseconds(store_wait))


def kind_of(shared: bool, permits: int | None, capacity: int | None) -> tuple[int, int, int]:
    if (permits is None) != (capacity is None) or shared and permits is not None:
        raise refuse(BadArgument, "give permits and capacity, or shared, or none of them")
    return _c.SHARED if shared else _c.EXCLUSIVE if permits is None else _c.PERMITS, permits or 0, capacity or 0


@functools.lru_cache(maxsize=256)
def acquire_options(wait: float | None = None, ttl: float = 30, shared: bool = False,
                    permits: int | None = None, capacity: int | None = None, min_left: float = 0, barge: bool = False,
                    reentrant: bool = False, owner_key: int = 0, renew: bool = True, keep: bool = False,
                    label: str | None = None) -> _c.AcquireOptions:
    flags = barge * _c.BARGE | reentrant * _c.REENTRANT | (not renew) * _c.NO_RENEW | keep * _c.KEEP
    return struct(_c.AcquireOptions, *kind_of(shared, permits, capacity), milliseconds(wait), milliseconds(ttl),
                  milliseconds(min_left), flags, owner_key, encoded(label), on_loss, None)


def ignored(ignore_loss: bool) -> tuple[type[Error], ...]:
    """What does not matter when a block is left."""
    return (Unknown, Unreachable, Lost) if ignore_loss else (Unknown, Unreachable)


def want_struct(want: str | Want) -> _c.Want:
    name, shared, permits, capacity = want if isinstance(want, Want) else Want(want)
    return struct(_c.Want, encoded_name(name), *kind_of(shared, permits, capacity))


# ---- Calls ----


class Call:
    """A call that was started. It belongs to one thread or task. Freeing it may wait for a callback only if it has a hold
    that was not taken."""
    __slots__ = ("handle", "free")

    def __init__(self, free: Callable[[c_void_p], Any] = _c.quick.hf_call_free) -> None:
        self.handle = c_void_p()
        self.free = free

    def __del__(self) -> None:
        self.free(self.handle)

    def drop(self) -> None:
        """Cancels it, and gives back what was granted. For a wait that an exception ends: a traceback may keep the
        object for long."""
        self.free(self.handle)
        self.handle.value = None

    def take_hold(self) -> int:
        hold: int = _c.quick.hf_call_take_hold(self.handle)
        self.free = _c.quick.hf_call_free
        return hold

    def check(self, code: int) -> None:
        if code < 0:
            raise error(code, _c.quick.hf_call_error(self.handle))


def counter_of(call: Call, code: int) -> _c.Counter:
    """What a call of hf_count_start answered with this code."""
    counter = struct(_c.Counter)
    try:
        call.check(code)
    except Mismatch as mismatch:
        _c.quick.hf_call_counter(call.handle, byref(counter))
        mismatch.value = value_of(counter)
        raise
    check(_c.quick.hf_call_counter(call.handle, byref(counter)))
    return counter


def value_of(counter: _c.Counter) -> int | None:
    return counter.value if counter.exists else None


def left_of(counter: _c.Counter) -> float | None:
    return counter.left_ms / 1000 if counter.exists and counter.left_ms >= 0 else None


# ---- The hold ----


class Watch:
    """Those who want to know that a hold is lost. Each is called once, whoever notices the loss first."""
    __slots__ = ("functions", "__weakref__")

    def __init__(self) -> None:
        self.functions: collections.deque[Callable[[Lost], object]] = collections.deque()

    def report(self, lost: Lost) -> None:
        try:
            function = self.functions.popleft()
        except IndexError:
            return
        try:
            function(lost)
        finally:
            self.report(lost)


watches: weakref.WeakValueDictionary[int, Watch] = weakref.WeakValueDictionary()  # by the handle of the hold


this_thread = threading.local()  # in_callback: whether it runs a function of on_lost for the library


def report_loss(handle: int, _: object) -> None:
    watch = watches.get(handle)
    if watch is None:
        return
    this_thread.in_callback = True
    try:
        watch.report(Lost(decoded(_c.quick.hf_last_error())))
    finally:
        this_thread.in_callback = False


on_loss = _c.LostFunction(report_loss)


class HoldView:
    """What can be asked of a hold without waiting."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.name!r}, token {self.token}, {self.left} s left>"

    @property
    def token(self) -> int:
        """The fencing token of this grant. With several names, that of the first."""
        return int(_c.quick.hf_hold_token_at(self._handle, 0))

    @property
    def name(self) -> str:
        """The name of the lock. With several names: the one that was lost, or else the first."""
        return decoded(_c.quick.hf_hold_name(self._handle))

    @property
    def tokens(self) -> list[int]:
        """With several names, the token of each, in the order given."""
        tokens: list[int] = []
        while token := _c.quick.hf_hold_token_at(self._handle, len(tokens)):
            tokens.append(token)
        return tokens

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

    def fence_token(self) -> int:
        """The token to hand to the resource: raises if the lock is not held, or is not exclusive (WrongKind)."""
        token = c_uint64()
        check(_c.quick.hf_fence_token(self._handle, byref(token)))
        return token.value

    def fence_sql(self, dialect: str) -> str:
        """The first statement of a transaction that the token guards, for "postgres", "mysql" or "sqlite"."""
        statement = create_string_buffer(_c.FENCE_SQL_SIZE * len(self.tokens))
        if dialect not in DIALECTS:
            raise refuse(BadArgument, f"{dialect!r} is not one of {', '.join(DIALECTS)}")
        check(_c.quick.hf_fence_sql(self._handle, DIALECTS[dialect], statement, len(statement)))
        return statement.value.decode()


class OwnedHold(HoldView):
    """A lock that was granted. It is renewed until it is released or lost. If nobody refers to it any more, it is
    released, unless it was acquired with keep=True."""

    _watch: Watch | None = None
    _free = _c.library.hf_hold_free  # quick once it was released: then no callback can be running

    def __init__(self, client: BaseClient, call: Call, may_be_dropped: bool) -> None:
        super().__init__(call.take_hold())
        self._client = client  # which would be closed if nobody referred to it
        self._may_be_dropped = may_be_dropped

    def __del__(self, warn: Any = warnings.warn) -> None:
        if not self._may_be_dropped and self.left > 0:
            warn(f"{self!r} was not released", ResourceWarning, source=self)
        if self._watch is not None:
            watches.pop(self._handle, None)  # before another hold gets this handle
        self._free(self._handle)

    def _on_lost(self, function: Callable[[Lost], object]) -> None:
        if self._watch is None:
            self._watch = watches.setdefault(self._handle, Watch())
        self._watch.functions.append(function)
        if _c.quick.hf_check(self._handle, 0) == Lost.code:  # nobody else may report it any more
            self._watch.report(Lost(decoded(_c.quick.hf_last_error())))

    def _start(self, function: Callable[..., int], *arguments: Any) -> Call:
        call = Call()
        check(function(self._handle, *arguments, byref(call.handle)))
        return call

    def _start_renew(self, ttl: float) -> Call:
        return self._start(_c.quick.hf_renew_start, milliseconds(ttl))

    def _start_release(self) -> Call:
        self._may_be_dropped = True
        return self._start(_c.quick.hf_release_start)

    def _released(self) -> None:
        self._free = _c.quick.hf_hold_free


# ---- The client ----


class BaseClient:
    """An open client and the mutex under which its calls start."""

    def __init__(self, url: str | None, options: Any) -> None:
        self._handle: int | None = None
        self._mutex = threading.RLock()  # a signal handler may use the client while a call starts
        handle = c_void_p()
        check(_c.library.hf_client_open(encoded(url), byref(client_options(**options)), byref(handle)))
        self._handle = handle.value
        clients.add(self)

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        """Closing waits for callbacks: one of them has it done by another thread."""
        with self._mutex:
            handle, self._handle = self._handle, None
        if handle is None:
            return
        self._end_recipes(handle)
        if getattr(this_thread, "in_callback", False):
            threading.Thread(target=_c.library.hf_client_close, args=(handle,), name="holdfast").start()
        else:
            _c.library.hf_client_close(handle)

    def _end_recipes(self, handle: int) -> None:
        """One that is about to begin would find the client freed."""

    def _after_fork(self) -> None:
        """In the child a thread that does not exist may have the mutex."""
        self._mutex = threading.RLock()

    def _open_handle(self) -> int:
        """With the mutex locked."""
        if self._handle is None:
            raise Closed(sentence(Closed.code))
        return self._handle

    def _start(self, function: Callable[..., int], *arguments: Any, call: Call | None = None) -> Call:
        call = call or Call()
        with self._mutex:
            check(function(self._open_handle(), *arguments, byref(call.handle)))
        return call

    def _start_acquire(self, names: Names, options: Any) -> Call:
        given = byref(acquire_options(**options))
        call = Call(_c.library.hf_call_free)
        if isinstance(names, (str, bytes)) or not isinstance(names, collections.abc.Iterable):
            return self._start(_c.quick.hf_acquire_start, encoded_name(names), given, call=call)
        if not options.keys().isdisjoint(("shared", "permits", "capacity")):
            raise refuse(BadArgument, "with several names, say of each what it is wanted as (Want)")
        wants = [pointer(want_struct(name)) for name in names]
        array = (POINTER(_c.Want) * len(wants))(*wants)
        return self._start(_c.quick.hf_acquire_all_start, array, len(wants), given, call=call)

    def _start_count(self, name: str, op: int, number: int = 0, expected: int | None = 0, expiry: float = 0,
                     wait: float = 10) -> Call:
        options = struct(_c.CountOptions, op, number, expected or 0, expected is None, milliseconds(expiry),
                         milliseconds(wait))
        return self._start(_c.quick.hf_count_start, encoded_name(name), byref(options))

    def _start_inspect(self, name: str) -> Call:
        return self._start(_c.quick.hf_inspect_start, encoded_name(name))

    def _start_list(self, prefix: str, after: str | None) -> Call:
        return self._start(_c.quick.hf_list_start, encoded_name(prefix), after and encoded_name(after), PAGE)

    def _start_break(self, name: str, token: int, reason: str | None) -> Call:
        return self._start(_c.quick.hf_break_start, encoded_name(name), token, encoded(reason))


# ---- The process ----

clients: weakref.WeakSet[BaseClient] = weakref.WeakSet()


def close_all() -> None:
    """The library's threads call Python: they must have ended before the interpreter does."""
    for client in list(clients):
        client._close()


def after_fork() -> None:
    for client in list(clients):
        client._after_fork()


atexit.register(close_all)
os.register_at_fork(after_in_child=after_fork)
