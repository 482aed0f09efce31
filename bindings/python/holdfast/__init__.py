"""Locks shared by threads, processes and machines, kept in the store you already run.

    with holdfast.open("redis://localhost") as client, client.lock("orders", wait=5) as hold:
        work(hold.token)

The header of the library, holdfast/holdfast.h, is the manual: each call here does what the one of the same name does
there. What differs: times are in seconds, None stands for no limit, and an error is an exception.
"""
from . import _errors
from ._c import quick as _quick
from ._client import Barrier, Client, Counter, Hold, Latch, Place, open
from ._core import Want
from ._errors import *
from ._look import Leader, LockInfo, Party

__all__ = ["Barrier", "Client", "Counter", "Hold", "Latch", "Leader", "LockInfo", "Party", "Place", "Want", "open"]
__all__ += _errors.__all__

__version__: str = _quick.hf_version().decode()
