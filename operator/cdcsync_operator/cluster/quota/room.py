"""How much the operator keeps for whom: bytes for all syncs together, and a share of them for each
namespace.

Why it is right: a namespace's own bytes depend on nothing but the total, and beyond them it gets
only what leaves `reserved` bytes to the others. So however many syncs one namespace has, what it
takes is bounded, and the others have room. Nothing waits here: what finds no room is done without
it, or refused with its reason.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

_MIB = 2**20


@dataclass(frozen=True)
class RoomBounds:
    """In bytes: of all, a namespace's own, and what it leaves to others beyond its own."""

    total: int
    own: int
    reserved: int


#: files of Secrets, which are in the memory of the operator's pod (`/tmp`, 64 MiB)
SECRETS = RoomBounds(total=48 * _MIB, own=2 * _MIB, reserved=24 * _MIB)
#: chunk plans, which are in the cluster's etcd (2 GiB by default, for everything in the cluster)
PLANS = RoomBounds(total=64 * _MIB, own=4 * _MIB, reserved=32 * _MIB)
#: reports of runs, which are in the cluster's etcd, too: a run of 50,000 tables has some 32 MiB,
#: and a sync may have three runs
REPORTS = RoomBounds(total=256 * _MIB, own=16 * _MIB, reserved=128 * _MIB)
#: what is held of reports while they are merged into statuses, in the operator's memory, where it
#: takes up to eight times as much
READ_REPORTS = RoomBounds(total=72 * _MIB, own=4 * _MIB, reserved=8 * _MIB)
#: what is held of sources' answers while they are asked, in the operator's memory
ANSWERS = RoomBounds(total=224 * _MIB, own=24 * _MIB, reserved=80 * _MIB)
#: definitions of tables, which are kept as long as their sync, in the operator's memory
RECORDS = RoomBounds(total=224 * _MIB, own=24 * _MIB, reserved=80 * _MIB)


def has_room(held: Mapping[str, int], namespace: str, more: int, bounds: RoomBounds) -> bool:
    """Whether a namespace gets so many bytes on top of those that each namespace holds now; one
    that has more than it could get takes nothing from the others."""
    most = bounds.total - bounds.reserved
    free = bounds.total - sum(min(size, most) for size in held.values()) - more
    if held.get(namespace, 0) + more <= bounds.own:
        return free >= 0
    return free >= bounds.reserved


def _mib(size: int) -> str:
    return f"{size / _MIB:.1f} MiB"


class Room:
    """Bytes by namespace and holder, which is anything that is there once."""

    def __init__(self, bounds: RoomBounds) -> None:
        self._bounds = bounds
        self._held: dict[str, dict[object, int]] = {}
        self._lock = threading.Lock()

    def put(self, namespace: str, holder: object, size: int) -> bool:
        """What the holder has from now on; False, and it has what it had, where there is no room
        for more."""
        with self._lock:
            of_namespace = self._held.setdefault(namespace, {})
            more = size - of_namespace.get(holder, 0)
            held = {name: sum(sizes.values()) for name, sizes in self._held.items()}
            fits = more <= 0 or has_room(held, namespace, more, self._bounds)
            if fits:
                of_namespace[holder] = size
            self._tidy(namespace)
        return fits

    def refuse(self, namespace: str, holder: object, size: int) -> str:
        """As `put`; empty where there is room, else how much there is."""
        return "" if self.put(namespace, holder, size) else self.bound(namespace)

    def bound(self, namespace: str) -> str:
        """How much there is, in words."""
        bounds, held = self._bounds, self.held(namespace)
        return (
            f"at most {_mib(bounds.total - bounds.reserved)} for a namespace, of which this one has {_mib(held)},"
            f" and {_mib(bounds.total)} for all of them"
        )

    def size(self, namespace: str, holder: object) -> int:
        """What the holder has."""
        with self._lock:
            return self._held.get(namespace, {}).get(holder, 0)

    def hold(self, namespace: str, holder: object, size: int) -> None:
        """What the holder has already, whether there is room for it or not."""
        with self._lock:
            self._held.setdefault(namespace, {})[holder] = size

    def free(self, namespace: str, holder: object) -> None:
        with self._lock:
            self._held.get(namespace, {}).pop(holder, None)
            self._tidy(namespace)

    def held(self, namespace: str) -> int:
        with self._lock:
            return sum(self._held.get(namespace, {}).values())

    def _tidy(self, namespace: str) -> None:
        if not self._held.get(namespace, True):
            del self._held[namespace]


@dataclass(frozen=True)
class Rooms:
    """The rooms of one operator."""

    secrets: Room = field(default_factory=lambda: Room(SECRETS))
    plans: Room = field(default_factory=lambda: Room(PLANS))
    reports: Room = field(default_factory=lambda: Room(REPORTS))
    read_reports: Room = field(default_factory=lambda: Room(READ_REPORTS))
    records: Room = field(default_factory=lambda: Room(RECORDS))
