"""What include/holdfast/holdfast.h declares, for ctypes: the structs, the calls and the numbers, as far as the package
uses them. tests/python compares the structs and the numbers with what a C compiler makes of the header.

Calls through `library` let other Python threads run until they return. The few through `quick` keep the interpreter's
lock: they return at once, run no Python code, and need no more time than releasing that lock would.
"""
from __future__ import annotations

import ctypes
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_uint, c_uint32, c_uint64,
                    c_void_p, py_object)
from typing import Any

SONAME = "libholdfast.so.0"

PENDING = -26
FOREVER = -1

EXCLUSIVE, SHARED, PERMITS = 1, 2, 3
BARGE, REENTRANT, NO_RENEW, KEEP = 1, 2, 4, 8

LostFunction = CFUNCTYPE(None, c_void_p, py_object)


class ClientOptions(Structure):
    _fields_ = [("size", c_size_t), ("max_lease_ms", c_int64), ("wait_lease_ms", c_int64), ("drift_ppm", c_uint32),
                ("token_floor", c_uint64), ("command", c_char_p), ("guard_pid", c_int64), ("on_event", c_void_p),
                ("on_event_arg", c_void_p), ("store_wait_ms", c_int64)]


class AcquireOptions(Structure):
    _fields_ = [("size", c_size_t), ("kind", c_int), ("permits", c_uint32), ("capacity", c_uint32),
                ("wait_ms", c_int64), ("lease_ms", c_int64), ("min_left_ms", c_int64), ("flags", c_uint),
                ("owner_key", c_uint64), ("label", c_char_p), ("on_lost", LostFunction), ("on_lost_arg", py_object)]


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
        ("hf_acquire_start", c_int, c_void_p, c_char_p, POINTER(AcquireOptions), _out),
        ("hf_renew_start", c_int, c_void_p, c_int64, _out),
        ("hf_release_start", c_int, c_void_p, _out),
        ("hf_call_wait", c_int, c_void_p, c_int64),
        ("hf_call_free", c_void_p, c_void_p),
        ("hf_hold_free", c_void_p, c_void_p),
    ],
    quick: [
        ("hf_error_string", c_char_p, c_int),
        ("hf_last_error", c_char_p),
        ("hf_version", c_char_p),
        ("hf_call_error", c_char_p, c_void_p),
        ("hf_call_take_hold", c_void_p, c_void_p),
        ("hf_check", c_int, c_void_p, c_int64),
        ("hf_hold_left_ms", c_int64, c_void_p),
        ("hf_hold_token", c_uint64, c_void_p),
        ("hf_hold_is_exclusive", c_int, c_void_p),
    ],
}
for _library, _list in _calls.items():
    for _name, _result, *_arguments in _list:
        _function = getattr(_library, _name)
        _function.restype, _function.argtypes = _result, _arguments
