"""The tables of a large sync beside its status: the worst ones in the status itself, all of them in
shards.

Why it exists: ten thousand entries in one document take seconds to write and are not read whole
(rule R7), and an API server takes documents of a megabyte: an entry is a few hundred bytes, or many
thousands where the source's GTID set names many servers. Why it is right: shards are written before
the document that counts on them, each whole; if they do not have the digest that the document says,
they are not its shards, and the tables count as lost, which the targets make good (rule R4).
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.status import Status
from cdcsync_core.runs.table_shards import digest_of, with_shards
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_operator.reconcile.files import write_atomically

#: tables of which a status shows all, and how many it shows of more: few enough to be read
SHOWN, SHOWN_OF_MORE = 200, 20
#: tables of a shard
SIZE = 500
#: bytes of a shard's text, and of the tables that a status shows: half of what a ConfigMap may hold
BYTES = 2**19
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


#: by the name of a table: its entry, and the entry's text
Texts: TypeAlias = "dict[str, tuple[TableStatus, str]]"


class TableShards:
    """Shards in `folder`; unchanged ones are not written again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[Path, str] = {}
        self._texts: Texts = {}

    def write(self, status: Status) -> Status:
        """The status to be written: as it is, or with the worst tables only, all of them being in
        shards."""
        shown, shards = packed(status, self._texts)
        for number, text in enumerate(shards):
            self._write(self._path(number), text)
        for path in self._found()[len(shards) :]:
            self._written.pop(path, None)
            path.unlink()
        return shown

    def text(self, table: TableStatus) -> str:
        """An entry as JSON; one that was written is not made again."""
        return _text(table, self._texts)

    def read(self, status: Status) -> Status:
        """A written status with all its tables; with none where the shards are not its own."""
        if is_whole(status):
            return status
        complete = with_shards(status, (text for path in self._found() if (text := _text_of(path))))
        return status.with_(table_status=complete.table_status if complete else (), table_digest="")

    def _write(self, path: Path, text: str) -> None:
        if self._written.get(path) != text:
            self._folder.mkdir(exist_ok=True)
            write_atomically(path, text)
            self._written[path] = text

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:05d}.json"

    def _found(self) -> list[Path]:
        return sorted(self._folder.glob("*.json")) if self._folder.exists() else []


def is_whole(status: Status) -> bool:
    """Whether it has all its tables itself."""
    return status.tables.total + status.tables.unassigned == len(status.table_status)


def packed(status: Status, texts: Texts) -> tuple[Status, list[str]]:
    """The status to be written, and the texts of its shards: none where it has all its tables
    itself. `texts` is what was made before, and is brought up to date."""
    entries = {t.name: _text(t, texts) for t in status.table_status}
    if len(entries) <= SHOWN and _fits(entries.values()):
        return status.with_(table_digest=""), []
    shards = _cut(list(entries.values()))
    return status.with_(table_digest=digest_of(shards), table_status=_worst(status.table_status, entries)), shards


def _cut(entries: list[str]) -> list[str]:
    """JSON lists. All have one number of entries, halved until each fits: so one entry that grows
    does not move all that follow."""
    size = SIZE
    while size > 1 and not all(_fits(entries[i : i + size]) for i in range(0, len(entries), size)):
        size //= 2
    return [f"[{', '.join(entries[i : i + size])}]" for i in range(0, len(entries), size)]


def _worst(tables: tuple[TableStatus, ...], entries: dict[str, str]) -> tuple[TableStatus, ...]:
    """The first tables by need of attention, or half, a quarter ... of them where that is too
    much, in order of names."""
    chosen = heapq.nsmallest(SHOWN_OF_MORE, tables, key=_need)
    while not _fits(entries[t.name] for t in chosen):
        chosen = chosen[: len(chosen) // 2]
    return tuple(sorted(chosen, key=lambda t: t.name))


def _need(table: TableStatus) -> tuple[int, bool, str]:
    """The least needs most attention."""
    return _WORST.index(table.phase), table.written is None, table.name


def _fits(entries: Iterable[str]) -> bool:
    return sum(len(text.encode()) + 2 for text in entries) <= BYTES


def _text(table: TableStatus, texts: Texts) -> str:
    """An entry that is not changed is the same object."""
    recorded, text = texts.get(table.name, (None, ""))
    if recorded is not table:
        text = json.dumps(table.model_dump(by_alias=True, mode="json"), ensure_ascii=False)
        texts[table.name] = (table, text)
    return text


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
