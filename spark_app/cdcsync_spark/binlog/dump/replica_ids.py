"""Which replica id a dump uses, and which one after it when a dead driver still holds that.

MariaDB ends the previous dump with the same replica id before a new one begins, and waits until
that one has ended. The dump of a driver that went away without closing its connection ends only
when the system's TCP timeout ends that connection, some sixteen minutes later; until then every
dump with its id waits. (MySQL does not wait.) So a reader has a few ids and uses the next one when
its dump does not begin.

Why it is right: which id a reader has decides nothing about the data. Two readers of one sync are
distinguished by the targets' compare-and-set (rule R8). Two syncs with one id end each other's
dump, which has begun: that never leads to another id.
"""

from __future__ import annotations

from dataclasses import dataclass

#: MariaDB sends the first packet of a dump at once; the last id of a round waits as long as silence
#: is allowed
BEGIN_SECONDS = 10.0


@dataclass(frozen=True)
class ReplicaIds:
    """The ids of one reader in their order; `at` is the current one; after the last comes the
    first."""

    ids: tuple[int, ...]
    at: int = 0

    @property
    def current(self) -> int:
        return self.ids[self.at]

    @property
    def begin_seconds(self) -> float | None:
        """How long a dump with the current id may take to begin; None: no bound of its own, so that
        a slow server is not refused forever."""
        return BEGIN_SECONDS if self.at + 1 < len(self.ids) else None

    def after(self) -> ReplicaIds:
        return ReplicaIds(self.ids, (self.at + 1) % len(self.ids))
