"""What the records of a state topic mean, read in their order. Pure.

A record has the state of its table. Or it repeats one: runs write the newest record of each table
once more from time to time, under keys of their own, and later records have in `since` how far the
topic had been read then. Whoever begins to read there knows all tables: a state before that place
is repeated behind it, and a state behind it is read itself. So a start costs as much after a month
as after an hour, whatever the brokers have removed.

Why it is right: a repeat has the offset of the record that it repeats, and counts as that one,
wherever it is itself. So it never undoes what another run writes meanwhile, and
nothing has to keep runs from repeating at the same time. Compaction keeps the newest record and the
newest repeat of a table beside each other, because their keys differ. `since` is written only after
all repeats are acknowledged, so that a record which has it, even one of a transaction that was
aborted, says the truth.

Of many records of a table the newest alone is parsed, and of most of the others no more than the
epoch is compared.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

#: before the table's name in the key of a repeat; no name has it
_REPEATED = b"\0"
_HEADER = re.compile(rb'\{"v": 1, "writer": "([^"\\]*)"(?:, "since": (\d{1,18}))?(?:, "repeats": (\d{1,18}))?, ')
_EPOCH = re.compile(rb'"epoch": (\d{1,18}), "number": ')
#: records behind the last repeats after which they are due, and the same for each table
REPEAT_AFTER, REPEAT_AFTER_PER_TABLE = 10_000, 20


class RecordHeader(NamedTuple):
    """Who wrote a record; where a reader may begin; what it repeats."""

    writer: str = ""
    since: int | None = None
    repeats: int | None = None


def header_of(value: bytes) -> RecordHeader:
    """Empty for what is no record."""
    match = _HEADER.match(value)
    if match is None:
        return RecordHeader()
    writer, since, repeats = match.groups()
    return RecordHeader(writer.decode(errors="replace"), *(None if n is None else int(n) for n in (since, repeats)))


class Read(Protocol):
    """A record of the state topic, as a consumer has it."""

    def offset(self) -> int | None: ...
    def key(self) -> str | bytes | None: ...
    def value(self) -> str | bytes | None: ...


class _Newest(NamedTuple):
    """A table's record: its epoch, the offset where its state was written, the bytes; the bytes
    that say the epoch, and their place, so that another record with the same ones is known by one
    comparison."""

    epoch: int
    at: int
    value: bytes
    says_epoch: bytes
    place: int


#: bytes of an entry of a fold beside its key and value
ENTRY_BYTES = 512


@dataclass
class StateFold:
    """The newest record of each table, of those that were taken."""

    _newest: dict[bytes, _Newest] = field(default_factory=dict)
    _changed: set[bytes] = field(default_factory=set)
    #: bytes of keys and values of `_newest`, with what an entry takes beside them
    size: int = 0
    #: by table, the last record with the epoch of its newest one
    _last: dict[bytes, Read] = field(default_factory=dict)

    def take(self, at: int, key: bytes, value: bytes) -> None:
        """The record at offset `at`. Of a table's records that with the highest epoch counts,
        because an older run may write after a newer one where no broker fences it; of these the
        last. What has none is no record, which is found when it is parsed."""
        table, place = key, at
        if key.startswith(_REPEATED):
            repeats = header_of(value).repeats
            table, place = key[len(_REPEATED) :], at if repeats is None else repeats
        epoch = _EPOCH.search(value)
        if epoch is None:
            record = _Newest(sys.maxsize, place, value, b"", 0)
        else:
            record = _Newest(int(epoch[1]), place, value, epoch[0], epoch.start())
        newest = self._newest.get(table)
        if newest is None or record[:2] > newest[:2]:
            self._newest[table] = record
            self.size += len(value) - len(newest.value) if newest else len(value) + len(table) + ENTRY_BYTES
            self._changed.add(table)

    def take_all(self, records: Iterable[Read]) -> None:
        """The same of records in their order. Almost all have the epoch that is known of their
        table, so the last of these is its newest one, and the others are not taken at all."""
        for record in records:
            key, value = record.key(), record.value()
            if not isinstance(key, bytes) or not isinstance(value, bytes):
                continue
            newest = self._newest.get(key)
            if newest is not None and newest.says_epoch and value.startswith(newest.says_epoch, newest.place):
                self._last[key] = record
            else:
                self.take(record.offset() or 0, key, value)

    def settle(self) -> None:
        """Folds what was taken last, which is in memory as the client has it."""
        last, self._last = self._last, {}
        for key, record in last.items():
            value = record.value()
            assert isinstance(value, bytes)
            self.take(record.offset() or 0, key, value)

    def changed(self) -> Iterator[tuple[str, bytes]]:
        """Table and record of those that are new since the last time."""
        self.settle()
        changed, self._changed = self._changed, set()
        for table in changed:
            yield table.decode(errors="replace"), self._newest[table].value

    def repeats(self) -> list[tuple[bytes, bytes]] | None:
        """Key and value of the records that repeat the newest ones; None where one of these is no
        record. Without the writer, none is longer than what it repeats."""
        self.settle()
        if not all(_HEADER.match(newest.value) for newest in self._newest.values()):
            return None
        return [(_REPEATED + table, _repeating(newest)) for table, newest in self._newest.items()]


def stating(value: bytes, since: int) -> bytes:
    """A repeat from which a reader knows where to begin."""
    header = header_of(value)
    assert header.repeats is not None
    return _HEADER.sub(b'{"v": 1, "writer": "", "since": %d, "repeats": %d, ' % (since, header.repeats), value, count=1)


def _repeating(newest: _Newest) -> bytes:
    return _HEADER.sub(b'{"v": 1, "writer": "", "repeats": %d, ' % newest.at, newest.value, count=1)


def repeats_due(records: int, tables: int) -> bool:
    """Whether so many records behind the last repeats are too many for a start."""
    return records > max(REPEAT_AFTER, REPEAT_AFTER_PER_TABLE * tables)
