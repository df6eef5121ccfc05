"""The rows of plain transactions as columns: which table each event is of, and its images, cut.

Why it is right: a rows event counts only if a TABLE_MAP of its number lies before it in its own
transaction, and its head (extra data, number of columns, bitmaps) is byte for byte one that the
parser of single events found usable. All TABLE_MAPs of a number must be equal in the stretch. Where
anything is otherwise, the stretch ends before that transaction (`count`), which is then read event
by event. Nothing of the parser's state changes before `MappedTables.learn` is called for what was
`learned`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.wire.binlog.columnar.event_arrays import EventArrays
from cdcsync_spark.wire.binlog.columnar.plain import CHANGES, MAPS, Plain, Stretch
from cdcsync_spark.wire.binlog.facts import TableMap
from cdcsync_spark.wire.binlog.rows_block import RowsBlock
from cdcsync_spark.wire.binlog.tables import ROWS, MappedTables, UnreadableMap, UsableMap, head
from cdcsync_spark.wire.columns.gather import Cursors, Flags

#: a rows event begins with its table's number (6 bytes) and flags (2)
_NUMBER, _HEAD = 6, 8
_OPERATIONS = np.full(256, -1, np.int8)
for _kind, _form in ROWS.items():
    _OPERATIONS[_kind] = _form.operation


@dataclass(frozen=True)
class PlainRows:
    """The rows events of the first `count` transactions of a stretch that are of wanted tables:
    `transactions` are counted from its first one, `lengths` are those of whole events.
    `tables[classes[i]]` is the TABLE_MAP of event `i`, `maps` are where TABLE_MAPs are among the
    events, in the form `distinct[map_classes[i]]`."""

    count: int
    maps: Cursors
    map_classes: Cursors
    distinct: tuple[bytes, ...]
    tables: tuple[TableMap | None, ...]
    arrays: EventArrays
    transactions: Cursors
    classes: Cursors
    operations: npt.NDArray[np.int8]
    starts: Cursors
    ends: Cursors
    lengths: Cursors

    def learned(self, after: int) -> list[bytes]:
        """The different TABLE_MAPs before the event `after`."""
        used = self.map_classes[: int(np.searchsorted(self.maps, after))]
        return [self.distinct[i] for i in dict.fromkeys(used.tolist())]

    def of_tables(self) -> Iterator[tuple[TableId, Cursors]]:
        """For each table its events, in their order."""
        names = [t.table if t else None for t in self.tables]
        distinct = list(dict.fromkeys(name for name in names if name))
        of_class = np.array([distinct.index(name) if name else -1 for name in names], np.int64)
        tables = of_class[self.classes]
        for number, name in enumerate(distinct):
            events = np.flatnonzero(tables == number) if len(distinct) > 1 else np.arange(len(tables))
            if len(events):
                yield name, events

    def blocks(self, events: Cursors, numbers: npt.NDArray[np.int32]) -> Iterator[RowsBlock]:
        """The rows of one table's events; `numbers` are those of the transactions of the
        stretch."""
        edges = np.flatnonzero(np.diff(self.classes[events])) + 1
        for low, high in pairwise([0, *edges.tolist(), len(events)]):
            part = events[low:high]
            table_map = self.tables[int(self.classes[part[0]])]
            assert table_map is not None
            starts, ends = self.starts[part], self.ends[part]
            images = b"".join(self.arrays.bytes(starts, ends))
            yield RowsBlock(
                table_map, self.operations[part], ends - starts, numbers[self.transactions[part]], (images,)
            )


def plain_rows(arrays: EventArrays, plain: Plain, stretch: Stretch, tables: MappedTables) -> PlainRows | None:
    """None where the first transaction is not one of these.

    An example of three rows events, `shop.b` not captured; the places are those in `arrays`:

        place 0 to 3    GTID  TABLE_MAP 18 of shop.a  WRITE_ROWS 18   XID
        place 4 to 7    GTID  TABLE_MAP 19 of shop.b  UPDATE_ROWS 19  XID
        place 8 to 11   GTID  TABLE_MAP 18 of shop.a  DELETE_ROWS 18  XID

    `stretch.first` is [0, 4, 8] and `after` [4, 8, 12]. `maps` is [1, 5, 9], `distinct` has the
    bodies of 1 and 5, so `map_classes` is [0, 1, 0]. `rows` is [2, 6, 10] and `classes` likewise
    [0, 1, 0]; class 1 is not wanted, which leaves [2, 10] and [0, 0]. The result has `count` 3,
    `transactions` [0, 2], and for each of both events its operation and where its images are. Were
    the TABLE_MAP at 9 another one than that at 1, `bad` would be [9], `count` 2, and the third
    transaction would be read event by event.
    """
    low, high = int(stretch.first[0]), int(stretch.after[-1])
    roles = plain.roles[low:high]
    maps, rows = np.flatnonzero(roles == MAPS) + low, np.flatnonzero(roles == CHANGES) + low
    bodies = arrays.bytes(arrays.bodies[maps], arrays.ends[maps])
    distinct = tuple(dict.fromkeys(bodies))
    numbered = [tables.known(body) for body in distinct]
    usable = [not isinstance(k, UnreadableMap) for _, k in numbered]
    of_body = {body: i for i, body in enumerate(distinct)}
    map_classes = np.fromiter(map(of_body.__getitem__, bodies), np.int64, len(bodies))
    mapped = [k if isinstance(k, UsableMap) else None for _, k in numbered]
    number_of = [number for number, _ in numbered]
    bad = [*maps[~np.array(usable, bool)[map_classes]], *_second_of_a_number(number_of, map_classes, maps)]
    classes = _classes(arrays, stretch, rows, maps, map_classes, number_of)
    bad += [*rows[classes < 0]]
    captured = (classes >= 0) & np.array([m is not None for m in mapped] or [False], bool)[classes]
    rows, classes = rows[captured], classes[captured]
    heads, odd = _heads(arrays, rows, classes, mapped)
    bad += [*rows[odd]]
    count = stretch.count if not bad else int(np.searchsorted(stretch.first, min(bad), "right")) - 1
    if not count:
        return None
    complete = rows < stretch.after[count - 1]
    rows = rows[complete]
    return PlainRows(
        count,
        maps,
        map_classes,
        distinct,
        tuple(m.map if m else None for m in mapped),
        arrays,
        np.searchsorted(stretch.first, rows, "right") - 1,
        classes[complete],
        _OPERATIONS[arrays.kinds[rows]],
        arrays.bodies[rows] + _HEAD + heads[complete],
        arrays.ends[rows],
        arrays.ends[rows] + 4 - arrays.starts[rows],
    )


def _second_of_a_number(numbers: Sequence[int], classes: Cursors, maps: Cursors) -> list[int]:
    """The first TABLE_MAP of each further body of a number."""
    if len(set(numbers)) == len(numbers):
        return []
    seen: set[int] = set()
    seconds = []
    for index, number in enumerate(numbers):
        if number in seen:
            seconds.append(int(maps[np.flatnonzero(classes == index)[0]]))
        seen.add(number)
    return seconds


def _classes(
    arrays: EventArrays, stretch: Stretch, rows: Cursors, maps: Cursors, map_classes: Cursors, numbers: list[int]
) -> Cursors:
    """For each rows event which TABLE_MAP it is of, -1 where none of its number is before it in its
    transaction."""
    if not len(maps):
        return np.full(len(rows), -1, np.int64)
    order = np.argsort(np.array(numbers, np.int64), kind="stable")
    ordered = np.array(numbers, np.int64)[order]
    table_numbers = arrays.numbers(arrays.bodies[rows], "<u8").astype(np.int64) & (1 << 8 * _NUMBER) - 1
    place = np.minimum(np.searchsorted(ordered, table_numbers), len(ordered) - 1)
    classes = np.where(ordered[place] == table_numbers, order[place], -1)
    # the last TABLE_MAP of the class before the event: both are ordered by class, then by place
    span = len(arrays.starts) + 1
    keys = np.sort(map_classes * span + maps)
    before = keys[np.maximum(np.searchsorted(keys, classes * span + rows) - 1, 0)]
    opened = stretch.first[np.searchsorted(stretch.first, rows, "right") - 1]
    right = (before // span == classes) & (before % span > opened) & (before % span < rows)
    return np.where(right, classes, -1)


def _heads(
    arrays: EventArrays, rows: Cursors, classes: Cursors, mapped: Sequence[UsableMap | None]
) -> tuple[Cursors, Flags]:
    """For each event the length of its head behind the flags, and whether that is not the usual
    one."""
    lengths, odd = np.zeros(len(rows), np.int64), np.zeros(len(rows), bool)
    kinds = arrays.kinds[rows]
    both = classes * 256 + kinds
    for value in np.unique(both).tolist():
        same = np.flatnonzero(both == value)
        events = rows[same]
        table_map, kind, first = mapped[value >> 8], value & 0xFF, int(events[0])
        assert table_map is not None
        example = arrays.data[int(arrays.bodies[first]) : int(arrays.ends[first])]
        usual = head(table_map, kind, example)
        if usual is None:
            odd[same] = True
            continue
        lengths[same] = len(usual)
        starts = arrays.bodies[events] + _HEAD
        heads = arrays.bytes(starts, starts + len(usual))
        odd[same] = starts + len(usual) > arrays.ends[events]
        if heads.count(usual) != len(heads):
            odd[same] |= np.fromiter((h != usual for h in heads), bool, len(heads))
    return lengths, odd
