"""What a screen has seen of a sync lately: its lag, and how fast it reads. Pure: time comes in as
an argument.

A status is written every few seconds, and is asked for more often: so a rate is that of a window,
not of two neighbours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cdcsync_core.runs.status import Phase, Status

#: samples of a line
SAMPLES = 40
_WINDOW = 15.0
#: not the full block, so that lines below each other stay apart
_BLOCKS, _PLAIN = " ▁▂▃▄▅▆▇", " .:-=+*#"
_READING = (Phase.PLANNING, Phase.SNAPSHOTTING)


@dataclass(frozen=True)
class _Seen:
    at: float
    rows: int
    file: str
    offset: int


@dataclass
class SyncHistory:
    """`lags` are seconds, None where unknown; `rates` are rows a second of a snapshot, else bytes
    of the binlog a second, as `unit` says."""

    lags: deque[float | None] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    rates: deque[float | None] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    unit: str = ""
    _seen: deque[_Seen] = field(default_factory=deque)

    def note(self, status: Status, now: float) -> None:
        place = status.position
        seen = _Seen(now, status.snapshot.rows, place.file if place else "", place.offset if place else 0)
        self._seen.append(seen)
        while now - self._seen[0].at > _WINDOW and len(self._seen) > 2:
            self._seen.popleft()
        self._keep_unit("rows/s" if status.phase in _READING else "B/s")
        self.lags.append(status.lag_seconds)
        self.rates.append(self._rate(seen))

    def _keep_unit(self, unit: str) -> None:
        """Rates of another unit are no neighbours of this one's."""
        if unit != self.unit:
            self.unit = unit
            self.rates.clear()

    def _rate(self, seen: _Seen) -> float | None:
        """None until there are two sightings, and while another file of the binlog was read."""
        first = self._seen[0]
        seconds = seen.at - first.at
        if seconds <= 0:
            return None
        if self.unit == "rows/s":
            return max(0.0, (seen.rows - first.rows) / seconds)
        return max(0.0, (seen.offset - first.offset) / seconds) if seen.file and seen.file == first.file else None


@dataclass
class Histories:
    """The history of each sync, by the sync's full name."""

    _of: dict[str, SyncHistory] = field(default_factory=dict)

    def of(self, name: str) -> SyncHistory:
        return self._of.setdefault(name, SyncHistory())

    def keep(self, names: Iterable[str]) -> None:
        """Forgets syncs that are gone."""
        left = set(names)
        self._of = {name: history for name, history in self._of.items() if name in left}


def sparkline(values: Sequence[float | None], *, plain: bool = False) -> str:
    """A character a value, from 0 to the largest of them; a blank where none is known. `plain` is
    for terminals without block characters."""
    blocks = _PLAIN if plain else _BLOCKS
    most = max((v for v in values if v is not None), default=0.0)
    return "".join(" " if v is None else blocks[1 + round((len(blocks) - 2) * v / most) if most else 1] for v in values)
