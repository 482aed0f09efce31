"""Locks shared by threads, processes and machines, kept in the store you already run.

    with holdfast.open("redis://localhost") as client, client.lock("orders", wait=5) as hold:
        work(hold.token)

The header of the library, holdfast/holdfast.h, is the manual: each call here does what the one of the same name does
there. What differs: times are in seconds, None stands for no limit, and an error is an exception.
"""
from ._client import Client, Hold, Lock, open
from ._errors import *
from ._c import quick as _quick

__version__ = _quick.hf_version().decode()
