"""What include/holdfast/holdfast.h declares, for ctypes: the structs, the calls and the numbers, as far as the package
uses them. tests/python compares the structs and the numbers with what a C compiler makes of the header.

Calls through `library` release the interpreter's lock until they return. Those through `quick` keep it, since they return
at once and to get it back takes longer than most of them do, above all if there are many threads. What may wait for the
store, a disk or a callback must not be quick: a callback needs that lock.
"""
from __future__ import annotations

import ctypes
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_int, c_int64, c_size_t, c_uint, c_uint32,
                    c_uint64, c_void_p)
from typing import Any

SONAME = "libholdfast.so.0"

PENDING = -26
FOREVER = -1

EXCLUSIVE, SHARED, PERMITS = 1, 2, 3
BARGE, REENTRANT, NO_RENEW, KEEP = 1, 2, 4, 8
COUNT_GET, COUNT_ADD, COUNT_SWAP, COUNT_CAS, COUNT_REMOVE = 1, 2, 3, 4, 5
POSTGRES, MYSQL, SQLITE = 1, 2, 3
FENCE_SQL_SIZE = 768

LostFunction = CFUNCTYPE(None, c_void_p, c_void_p)


class ClientOptions(Structure):
    _fields_ = [("size", c_size_t), ("max_lease_ms", c_int64), ("wait_lease_ms", c_int64), ("drift_ppm", c_uint32),
                ("token_floor", c_uint64), ("command", c_char_p), ("guard_pid", c_int64), ("on_event", c_void_p),
                ("on_event_arg", c_void_p), ("store_wait_ms", c_int64)]


class AcquireOptions(Structure):
    _fields_ = [("size", c_size_t), ("kind", c_int), ("permits", c_uint32), ("capacity", c_uint32),
                ("wait_ms", c_int64), ("lease_ms", c_int64), ("min_left_ms", c_int64), ("flags", c_uint),
                ("owner_key", c_uint64), ("label", c_char_p), ("on_lost", LostFunction), ("on_lost_arg", c_void_p)]


class Want(Structure):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("kind", c_int), ("permits", c_uint32), ("capacity", c_uint32)]


class LimitOptions(Structure):
    _fields_ = [("size", c_size_t), ("rate", c_uint32), ("window_ms", c_int64), ("wait_ms", c_int64),
                ("label", c_char_p), ("fixed", c_int)]


class CountOptions(Structure):
    _fields_ = [("size", c_size_t), ("op", c_int), ("number", c_int64), ("expected", c_int64), ("expect_none", c_int),
                ("expiry_ms", c_int64), ("wait_ms", c_int64)]


class Counter(Structure):
    _fields_ = [("size", c_size_t), ("exists", c_int), ("value", c_int64), ("left_ms", c_int64)]


class LatchOptions(Structure):
    _fields_ = [("size", c_size_t), ("count", c_int64), ("expiry_ms", c_int64), ("wait_ms", c_int64)]


class BarrierOptions(Structure):
    _fields_ = [("size", c_size_t), ("parties", c_uint32), ("lease_ms", c_int64), ("wait_ms", c_int64)]


class Leader(Structure):
    _fields_ = [("size", c_size_t), ("token", c_uint64), ("since_ms", c_int64), ("left_ms", c_int64), ("pid", c_int64),
                ("host", c_char * 256), ("value", c_char * 256)]


class Party(Structure):
    _fields_ = [("size", c_size_t), ("owner", c_char_p), ("host", c_char_p), ("command", c_char_p),
                ("label", c_char_p), ("pid", c_int64), ("token", c_uint64), ("weight", c_uint32),
                ("since_ms", c_int64), ("left_ms", c_int64), ("votes", c_uint32)]


class LockInfo(Structure):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("kind", c_int), ("capacity", c_uint32), ("token", c_uint64),
                ("holder_count", c_size_t), ("holders", POINTER(POINTER(Party))), ("waiter_count", c_size_t),
                ("waiters", POINTER(POINTER(Party))), ("broken_ms", c_int64), ("broken_token", c_uint64),
                ("broken_by", c_char_p), ("broken_reason", c_char_p), ("quorum", c_uint32), ("node_count", c_size_t),
                ("nodes", c_void_p)]


# ---- The library ----


def _find() -> str:
    """HOLDFAST_LIBRARY names the file, as in a clone; otherwise the loader finds it."""
    return os.environ.get("HOLDFAST_LIBRARY") or SONAME


try:
    library = ctypes.CDLL(_find())
except OSError as error:
    raise ImportError(f"holdfast's library cannot be loaded: {error}. Install it (make install), or let "
                      f"HOLDFAST_LIBRARY name the file ({SONAME})") from error
quick = ctypes.PyDLL(_find())
_out = POINTER(c_void_p)
_calls: dict[ctypes.CDLL, list[tuple[Any, ...]]] = {
    library: [
        ("hf_client_open", c_int, c_char_p, POINTER(ClientOptions), _out),
        ("hf_client_close", c_void_p, c_void_p),
        ("hf_client_cancel", c_int, c_void_p),
        ("hf_limit", c_int, c_void_p, c_char_p, POINTER(LimitOptions), POINTER(c_int64)),
        ("hf_observe", c_int, c_void_p, c_char_p, c_uint64, c_int64, POINTER(Leader)),
        ("hf_latch_count_down", c_int, c_void_p, c_char_p, POINTER(LatchOptions), POINTER(c_int64)),
        ("hf_latch_await", c_int, c_void_p, c_char_p, POINTER(LatchOptions)),
        ("hf_barrier_wait", c_int, c_void_p, c_char_p, POINTER(BarrierOptions)),
        ("hf_barrier_enter", c_int, c_void_p, c_char_p, POINTER(BarrierOptions), _out),
        ("hf_barrier_leave", c_int, c_void_p, c_int64),
        ("hf_barrier_free", c_void_p, c_void_p),
        ("hf_fence_open", c_int, c_void_p, c_char_p),
        ("hf_fence_write", c_int, c_void_p, c_char_p, c_char_p, c_size_t),
        ("hf_call_wait", c_int, c_void_p, c_int64),
        ("hf_call_free", c_void_p, c_void_p),
        ("hf_hold_free", c_void_p, c_void_p),
        ("hf_fd", c_int, c_void_p),
        ("hf_process", c_int, c_void_p),
    ],
    quick: [
        ("hf_error_string", c_char_p, c_int),
        ("hf_last_error", c_char_p),
        ("hf_version", c_char_p),
        ("hf_acquire_start", c_int, c_void_p, c_char_p, POINTER(AcquireOptions), _out),
        ("hf_acquire_all_start", c_int, c_void_p, POINTER(POINTER(Want)), c_size_t, POINTER(AcquireOptions), _out),
        ("hf_renew_start", c_int, c_void_p, c_int64, _out),
        ("hf_release_start", c_int, c_void_p, _out),
        ("hf_inspect_start", c_int, c_void_p, c_char_p, _out),
        ("hf_list_start", c_int, c_void_p, c_char_p, c_char_p, c_size_t, _out),
        ("hf_break_start", c_int, c_void_p, c_char_p, c_uint64, c_char_p, _out),
        ("hf_count_start", c_int, c_void_p, c_char_p, POINTER(CountOptions), _out),
        ("hf_call_status", c_int, c_void_p),
        ("hf_call_error", c_char_p, c_void_p),
        ("hf_call_queue", c_int, c_void_p, c_void_p),
        ("hf_call_next", c_void_p, c_void_p),
        ("hf_call_data", c_void_p, c_void_p),
        ("hf_call_take_hold", c_void_p, c_void_p),
        ("hf_call_take_locks", c_void_p, c_void_p),
        ("hf_call_counter", c_int, c_void_p, POINTER(Counter)),
        ("hf_call_free", c_void_p, c_void_p),
        ("hf_hold_free", c_void_p, c_void_p),
        ("hf_locks_count", c_size_t, c_void_p),
        ("hf_locks_at", POINTER(LockInfo), c_void_p, c_size_t),
        ("hf_locks_free", c_void_p, c_void_p),
        ("hf_check", c_int, c_void_p, c_int64),
        ("hf_hold_left_ms", c_int64, c_void_p),
        ("hf_hold_token_at", c_uint64, c_void_p, c_size_t),
        ("hf_hold_is_exclusive", c_int, c_void_p),
        ("hf_hold_name", c_char_p, c_void_p),
        ("hf_fence_token", c_int, c_void_p, POINTER(c_uint64)),
        ("hf_fence_sql", c_int, c_void_p, c_int, c_char_p, c_size_t),
        ("hf_barrier_hold", c_void_p, c_void_p),
    ],
}
for _library, _list in _calls.items():
    for _name, _result, *_arguments in _list:
        try:
            _function = getattr(_library, _name)
        except AttributeError:
            raise ImportError(f"{_library._name} lacks {_name}: it is older than this package") from None
        _function.restype, _function.argtypes = _result, _arguments
