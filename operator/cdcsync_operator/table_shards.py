"""The tables of a large sync beside its status: the worst ones in the status itself, all of them in shards.

Why it exists: ten thousand entries in one document take seconds to write and nobody reads them (rule R7).
Why it is right: shards are written before the document that counts on them, each whole; if they do not have as many tables as the
document says, they are not its shards, and the status counts as lost, which the targets make good (rule R4).
"""

from __future__ import annotations

import json
from pathlib import Path

from cdcsync_core.run import TablePhase
from cdcsync_core.status import Status, TableStatus
from cdcsync_operator.state_folder import write_atomically

#: tables that a status shows in full
SHOWN = 200
SIZE = 500
#: what a reader wants to see first
_WORST = (
    TablePhase.FAILED,
    TablePhase.SNAPSHOTTING,
    TablePhase.CATCHING_UP,
    TablePhase.PENDING,
    TablePhase.UNASSIGNED,
    TablePhase.STREAMING,
    TablePhase.COMPLETED,
)


class TableShards:
    """Shards in `folder`; unchanged ones are not written again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[Path, str] = {}

    def write(self, status: Status) -> Status:
        """The status to be written: as it is, or with the worst tables only, all of them being in shards."""
        tables = status.table_status
        shards = [tables[i : i + SIZE] for i in range(0, len(tables), SIZE)] if len(tables) > SHOWN else []
        for number, shard in enumerate(shards):
            self._write(self._path(number), shard)
        for path in self._found()[len(shards) :]:
            self._written.pop(path, None)
            path.unlink()
        return status.with_(table_status=worst(tables)) if shards else status

    def read(self, status: Status) -> Status:
        """A written status with all its tables; with none where the shards are not its own."""
        counts = status.tables
        if counts.total + counts.unassigned == len(status.table_status):
            return status
        tables = [TableStatus.model_validate(entry) for path in self._found() for entry in _entries(path)]
        complete = counts.total + counts.unassigned == len(tables)
        return status.with_(table_status=tuple(tables) if complete else ())

    def _write(self, path: Path, shard: tuple[TableStatus, ...]) -> None:
        text = json.dumps([t.model_dump(by_alias=True, mode="json") for t in shard], ensure_ascii=False)
        if self._written.get(path) != text:
            self._folder.mkdir(exist_ok=True)
            write_atomically(path, text)
            self._written[path] = text

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:05d}.json"

    def _found(self) -> list[Path]:
        return sorted(self._folder.glob("*.json")) if self._folder.exists() else []


def worst(tables: tuple[TableStatus, ...]) -> tuple[TableStatus, ...]:
    """The first `SHOWN` tables by need of attention, in order of names."""
    chosen = sorted(tables, key=lambda t: (_WORST.index(t.phase), t.name))[:SHOWN]
    return tuple(sorted(chosen, key=lambda t: t.name))


def _entries(path: Path) -> list[dict[str, object]]:
    try:
        return list(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return []
