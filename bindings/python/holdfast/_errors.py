"""An exception for each error of the library, named after it: HF_NOT_YOURS is NotYours. str() is the library's text."""
from __future__ import annotations

from . import _c

__all__ = ["BadArgument", "BadLease", "BadName", "BadStore", "BadUrl", "BadWeight", "Busy", "Cancelled", "Clock", "Closed",
           "Denied", "Error", "Forked", "Lost", "Mismatch", "NoMemory", "NoStore", "NotYours", "Range", "Released", "Short",
           "StoreFull", "System", "Timeout", "Unknown", "Unreachable", "Unsupported", "WrongKind"]


class Error(Exception):
    """The base of all of them."""
    code: int = 0


class Busy(Error):
    code = -1
    retry_after: float | None = None  # from limit(): seconds until it would be the caller's turn


class Timeout(Error):
    code = -2
    retry_after: float | None = None  # the same


class Cancelled(Error):
    code = -3


class Short(Error):
    code = -4


class Lost(Error):
    code = -5


class Released(Error):
    code = -6


class Unknown(Error):
    code = -7


class NotYours(Error):
    code = -8


class WrongKind(Error):
    code = -9


class BadName(Error):
    code = -10


class BadWeight(Error):
    code = -11


class BadLease(Error):
    code = -12


class BadUrl(Error):
    code = -13


class BadArgument(Error):
    code = -14


class NoStore(Error):
    code = -15


class Unsupported(Error):
    code = -16


class Unreachable(Error):
    code = -17


class Denied(Error):
    code = -18


class BadStore(Error):
    code = -19


class StoreFull(Error):
    code = -20


class Clock(Error):
    code = -21


class NoMemory(Error):
    code = -22


class System(Error):
    code = -23


class Closed(Error):
    code = -24


class Forked(Error):
    code = -25


class Mismatch(Error):
    code = -27
    value: int | None = None  # what the counter is; None: there is none


class Range(Error):
    code = -28


_classes = {each.code: each for each in Error.__subclasses__()}


def sentence(code: int) -> str:
    return str(_c.quick.hf_error_string(code), errors="replace")


def error(code: int, text: bytes | None = None) -> Error:
    """The exception for a code; without a text, with that of the thread's last failure."""
    text = _c.quick.hf_last_error() if text is None else text
    return _classes.get(code, Error)(text.decode(errors="replace") or sentence(code))


def check(code: int) -> None:
    if code < 0:
        raise error(code)
