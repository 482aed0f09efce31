"""What the store knows of its locks: hf_lock_info, hf_party and hf_leader as tuples, with times in seconds."""
from __future__ import annotations

from typing import Any, NamedTuple

from . import _c

_KINDS = {_c.EXCLUSIVE: "exclusive", _c.SHARED: "shared", _c.PERMITS: "permits"}


class Party(NamedTuple):
    """Somebody who holds a lock or waits for it."""
    owner: str
    host: str
    command: str
    label: str
    pid: int | None
    token: int | None  # None for those who wait
    weight: int
    since: float | None  # since the epoch, as time.time()
    left: float | None
    votes: int


class LockInfo(NamedTuple):
    name: str
    kind: str  # "exclusive", "shared" or "permits"
    capacity: int
    token: int
    holders: tuple[Party, ...]
    waiters: tuple[Party, ...]  # in the order of the queue
    broken: float | None  # when it was last broken, since the epoch
    broken_token: int
    broken_by: str
    broken_reason: str


class Leader(NamedTuple):
    token: int  # 0: nobody leads, and the rest is empty
    since: float | None
    left: float | None
    pid: int | None
    host: str
    value: str  # the label of its lock


def decoded(text: bytes) -> str:
    return text.decode(errors="surrogateescape")


def _time(ms: int) -> float | None:
    return ms / 1000 if ms else None


def _left(ms: int) -> float | None:
    return None if ms < 0 else ms / 1000


def _party(pointer: Any) -> Party:
    party = pointer.contents
    return Party(decoded(party.owner), decoded(party.host), decoded(party.command), decoded(party.label),
                 party.pid or None, party.token or None, party.weight, _time(party.since_ms), _left(party.left_ms),
                 party.votes)


def _info(lock: _c.LockInfo) -> LockInfo:
    return LockInfo(decoded(lock.name), _KINDS[lock.kind], lock.capacity, lock.token,
                    tuple(_party(lock.holders[index]) for index in range(lock.holder_count)),
                    tuple(_party(lock.waiters[index]) for index in range(lock.waiter_count)),
                    _time(lock.broken_ms), lock.broken_token, decoded(lock.broken_by), decoded(lock.broken_reason))


def take_locks(call: Any) -> list[LockInfo]:
    locks = _c.quick.hf_call_take_locks(call.handle)
    try:
        return [_info(_c.quick.hf_locks_at(locks, index).contents) for index in range(_c.quick.hf_locks_count(locks))]
    finally:
        _c.quick.hf_locks_free(locks)


def leader(found: _c.Leader) -> Leader:
    return Leader(found.token, _time(found.since_ms), _left(found.left_ms), found.pid or None, decoded(found.host),
                  decoded(found.value))
