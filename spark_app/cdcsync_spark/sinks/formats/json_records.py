"""A changelog as the keyed records of a message broker, in the JSON forms that readers know.

    debezium-json    {"before":{..},"after":{..},"source":{..},"op":"u","ts_ms":..}  one a change
    changelog-json   {"data":{..},"op":"+U"}                                         one an image
    canal-json       {"data":[{..}],"old":[{..}],"type":"UPDATE",..}                 one a change
    upsert-json      {..}, a delete is a tombstone                                   for compaction

Why it is right: order holds per key only, because a record's key decides its partition. So an
update that changes the key is never one record: it is the end of the old key and then the
beginning of the new one, in every form. Each record's key is that of its own image. Nothing here
depends on the time or on earlier calls but `sent`, so a batch that is made again after a crash is
the same records.

The texts of all values are made once, column by column (`json_text`); a form joins them and its own
members row by row (`text_join`). The records are Arrow arrays, in the order of the binlog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.positions.position import LogOffset, TransactionId
from cdcsync_core.tables.source_table import Column, TableId
from cdcsync_spark.rows.changes import KIND, TRANSACTION, ChangeKind
from cdcsync_spark.rows.events import Events
from cdcsync_spark.sinks.formats.json_text import Style, json_parts, json_rows, quoted, single
from cdcsync_spark.sinks.formats.record_steps import (
    UPDATE,
    Steps,
    columns_of,
    kinds_of,
    microseconds,
    moved_before,
    record_steps,
)
from cdcsync_spark.sinks.formats.text_join import Pick, join

_EXACT = Style()
_FLINK = Style(decimals_as_text=False, separator=" ")
_KINDS = pa.array(["+I", "-U", "+U", "-D"])
#: keys and values that are Python objects at a time
_PAIRS = 256
_AFTER = ChangeKind.UPDATE_AFTER


#: a name and a value
Header: TypeAlias = tuple[str, bytes]


class Records(NamedTuple):
    """`keys` and `values` are binary arrays of one length; a NULL value is a tombstone. Keys are
    NULL where the table has none. `headers`: of the records that have one, by their number."""

    keys: pa.Array
    values: pa.Array
    headers: Mapping[int, Header] = MappingProxyType({})

    def pairs(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Each key and value. A few at a time: the memory of what was sent is that of the next
        ones, which costs an eighth of new memory for all [measured]."""
        for begin in range(0, len(self.keys), _PAIRS):
            keys, values = (column.slice(begin, _PAIRS).to_pylist() for column in (self.keys, self.values))
            yield from zip(keys, values, strict=True)


@dataclass(frozen=True)
class Origin:
    """What a form says of all records of a table: the table, the names of its key columns, the
    source's flavour (`mysql` or `mariadb`) and server id, the topics' prefix. `sent` is the time of
    sending in ms since 1970; `snapshot` marks rows that no transaction wrote. `columns` are the
    source's, for the form whose values depend on their types; `place` is where the binlog was at
    the snapshot, None where that is not known."""

    table: TableId
    key: tuple[str, ...]
    flavour: str
    server_id: int
    prefix: str
    sent: int
    snapshot: bool = False
    columns: tuple[Column, ...] = ()
    place: LogOffset | None = None


#: a changelog with both images of each update; see `Origin`
Form = Callable[[Events, Origin], Records]


def slices(changes: Events, max_bytes: int) -> Iterator[Events]:
    """The changelog in pieces of about so many bytes of images (at least one change each), an
    update's two images together, each with its own transactions alone."""
    images = changes.images
    rows = max(1, images.num_rows * max_bytes // max(1, images.nbytes))
    begin = skipped = 0
    while begin < images.num_rows:
        end = min(begin + rows, images.num_rows)
        if end < images.num_rows and images[KIND][end].as_py() == _AFTER:
            end += 1
        piece = replace(changes.slice(begin, end), skipped=skipped)
        yield piece
        cut = end < images.num_rows and images[TRANSACTION][end] == images[TRANSACTION][end - 1]
        begin, skipped = end, int(piece.change_numbers()[-1]) + 1 if cut else 0


def changelog_json(changes: Events, origin: Origin) -> Records:
    """As `flink-format-changelog-json` reads it, decimals as plain numbers."""
    images = changes.images
    rows, ops = json_parts(columns_of(images), _FLINK), Pick([_KINDS], single(images[KIND]))
    values = join(images.num_rows, '{"data":', *rows, ',"op":"', ops, '"}')
    return _records(_keys(images, origin), values)


def upsert_json(changes: Events, origin: Origin) -> Records:
    """The row itself; a before image is a tombstone where its key ends, else no record."""
    images = changes.images
    keys, kinds = _keys(images, origin), kinds_of(images)
    ends = (kinds == ChangeKind.DELETE) | moved_before(keys, kinds)
    stays = (kinds == ChangeKind.INSERT) | (kinds == _AFTER)
    rows = pc.if_else(pa.array(stays), json_rows(columns_of(images), _EXACT), None)
    written = pa.array(ends | stays)
    return _records(keys.filter(written), rows.filter(written))


def debezium_json(changes: Events, origin: Origin) -> Records:
    """Debezium's envelope without schema, with its string modes of decimals and times.

    After a delete comes a tombstone, as by its default; a changed key is a delete with a tombstone
    and a create. Without a key there is neither.
    """
    images = changes.images
    keys, rows = _keys(images, origin), json_parts(columns_of(images), _EXACT)
    compared = keys if origin.key else pa.repeat("", images.num_rows)
    steps = record_steps(compared, kinds_of(images), tombstones=bool(origin.key))
    source = Pick([pa.array(_debezium_sources(changes, origin), pa.string())], _transactions(images, steps))
    name = Pick([pa.array(["r" if origin.snapshot else "c", "u", "d"])], steps.op)
    values = join(
        len(steps.op),
        *('{"before":', Pick(rows, steps.before), ',"after":', Pick(rows, steps.after)),
        *(',"source":', source, ',"op":"', name, f'","ts_ms":{origin.sent},"transaction":null}}'),
    )
    if pc.any(steps.tombstone).as_py():
        values = pc.if_else(steps.tombstone, None, values)
    return _records(keys.take(steps.image), values)


def canal_json(changes: Events, origin: Origin) -> Records:
    """Canal's members, of which two are NULL; `old` is the whole row before the change."""
    images = changes.images
    keys, rows = _keys(images, origin), json_parts(columns_of(images), _EXACT)
    steps = record_steps(keys, kinds_of(images), tombstones=False)
    commits = pa.array([str(microseconds(t) // 1000) for t in changes.committed_at] or [str(origin.sent)])
    before = pc.if_else(pc.equal(steps.op, UPDATE), steps.before, None)
    key = f"[{','.join(map(quoted, origin.key))}]"
    table = f'"database":{quoted(origin.table.database)},"table":{quoted(origin.table.name)},"pkNames":{key}'
    values = join(
        len(steps.op),
        *('{"id":0,"data":[', Pick(rows, pc.coalesce(steps.after, steps.before)), '],"old":'),
        Pick(["[", *rows, "]"], before),
        *(
            f',{table},"isDdl":false,"sql":"","sqlType":null,"mysqlType":null,"type":"',
            Pick([pa.array(["INSERT", "UPDATE", "DELETE"])], steps.op),
        ),
        *('","es":', Pick([commits], _transactions(images, steps)), f',"ts":{origin.sent}}}'),
    )
    return _records(keys.take(steps.image), values)


FORMS: dict[str, Form] = {
    "debezium-json": debezium_json,
    "changelog-json": changelog_json,
    "canal-json": canal_json,
    "upsert-json": upsert_json,
}


def _transactions(images: pa.Table, steps: Steps) -> pa.Array:
    return single(images[TRANSACTION]).take(steps.image)


def _keys(images: pa.Table, origin: Origin) -> pa.Array:
    """The key columns as an object: Debezium's key without its schema; NULL where there are
    none."""
    if not origin.key:
        return pa.nulls(images.num_rows, pa.string())
    return json_rows(images.select(list(origin.key)), _EXACT)


def _records(keys: pa.Array, values: pa.Array) -> Records:
    return Records(keys.cast(pa.binary()), values.cast(pa.binary()))


def _debezium_sources(changes: Events, origin: Origin) -> Sequence[str]:
    """The `source` of each transaction; a snapshot has one for all rows. Its `pos` is where the
    transaction ends, not where the row's event begins."""
    begin = f'{{"connector":{quoted(origin.flavour)},"name":{quoted(origin.prefix)},'
    middle = (
        f'"snapshot":"{"true" if origin.snapshot else "false"}","db":{quoted(origin.table.database)},'
        f'"table":{quoted(origin.table.name)},"server_id":{origin.server_id},'
    )
    if origin.snapshot:
        return [f'{begin}{_times(origin.sent * 1000)}{middle}"gtid":null,"file":null,"pos":null}}']
    ids, times = changes.transactions, changes.committed_at
    return [f"{begin}{_times(microseconds(at))}{middle}{_place(t)}}}" for t, at in zip(ids, times, strict=True)]


def _times(microseconds: int) -> str:
    return f'"ts_ms":{microseconds // 1000},"ts_us":{microseconds},"ts_ns":{microseconds * 1000},'


def _place(transaction: TransactionId) -> str:
    gtid = transaction.gtid_text
    return (
        f'"gtid":{quoted(gtid) if gtid else "null"},'
        f'"file":{quoted(transaction.end.file)},"pos":{transaction.end.offset}'
    )
