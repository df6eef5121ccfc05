"""How much the operator keeps for whom: bytes for all syncs together, and a share of them for each
namespace.

Why it is right: a number of namespaces have bytes of their own, whatever the others hold: none
gets more than what leaves each of them its own, whether it is there already or comes later
(reservation). What is reserved is for that number of namespaces, the ones that hold the most, so
any number of small ones have room. So as many namespaces as that less one take no room of another
one, however many syncs they have. Those beyond the number share what is left, as memory that is
never given back allows no more. Nothing waits here: what finds no room is done without it, or
refused with its reason.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import nlargest

_MIB = 2**20


@dataclass(frozen=True)
class RoomBounds:
    """In bytes: of all, and a namespace's own; `namespaces` is how many of them have their own."""

    total: int
    own: int
    namespaces: int

    @property
    def most(self) -> int:
        """What one namespace may hold while the others hold no more than their own."""
        return self.total - self.own * (self.namespaces - 1)


#: namespaces of which none takes the room of another one
_NAMESPACES = 16
#: files of Secrets, which are in the memory of the operator's pod (`/tmp`, 64 MiB); four of the
#: largest are a namespace's own
SECRETS = RoomBounds(total=48 * _MIB, own=3 * _MIB // 2, namespaces=_NAMESPACES)
#: chunk plans, which are in the cluster's etcd (2 GiB by default, for everything in the cluster)
PLANS = RoomBounds(total=64 * _MIB, own=2 * _MIB, namespaces=_NAMESPACES)
#: reports of runs, which are in the cluster's etcd, too: a run of 50,000 tables has some 32 MiB,
#: and a sync may have three runs
REPORTS = RoomBounds(total=256 * _MIB, own=8 * _MIB, namespaces=_NAMESPACES)
#: what is held of reports while they are merged into statuses, in the operator's memory, where it
#: takes up to eight times as much; it is held by workers, and for one reconciliation
READ_REPORTS = RoomBounds(total=72 * _MIB, own=4 * _MIB, namespaces=3)
#: what is held of sources' answers while they are asked, in the operator's memory
ANSWERS = RoomBounds(total=224 * _MIB, own=5 * _MIB, namespaces=_NAMESPACES)
#: definitions of tables, which are kept as long as their sync, in the operator's memory: some 400
#: of 20 columns are a namespace's own
RECORDS = RoomBounds(total=224 * _MIB, own=5 * _MIB, namespaces=_NAMESPACES)


def has_room(held: Mapping[str, int], namespace: str, more: int, bounds: RoomBounds) -> bool:
    """Whether a namespace gets so many bytes on top of those that each namespace holds now; one
    that has more than it could get takes nothing from the others."""
    after = {**held, namespace: held.get(namespace, 0) + more}
    sizes = [min(size, bounds.most) for size in after.values()]
    taken = sum(nlargest(bounds.namespaces, (min(size, bounds.own) for size in sizes)))
    reserved = bounds.own * bounds.namespaces - taken
    return after[namespace] <= bounds.most and sum(sizes) + reserved <= bounds.total


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
            f"at most {_mib(bounds.most)} for a namespace, of which this one has {_mib(held)},"
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
