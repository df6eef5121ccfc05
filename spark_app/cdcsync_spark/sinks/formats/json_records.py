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

The text of each image is made once (`json_text`); a form is an envelope around it, joined column by
column. The records are Arrow arrays, in the order of the binlog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.position import TransactionId
from cdcsync_core.source_table import TableId
from cdcsync_spark.sinks.events import Events
from cdcsync_spark.sinks.formats.json_text import Style, join, json_rows, quoted, single
from cdcsync_spark.sinks.formats.record_steps import (
    UPDATE,
    columns_of,
    kinds_of,
    microseconds,
    moved_before,
    record_steps,
)
from cdcsync_spark.wire.columns.change import KIND, TRANSACTION, ChangeKind

_EXACT = Style()
_FLINK = Style(decimals_as_text=False, separator=" ")
_KINDS = pa.array(["+I", "-U", "+U", "-D"])
_AFTER = ChangeKind.UPDATE_AFTER


class Records(NamedTuple):
    """`keys` and `values` are binary arrays of one length; a NULL value is a tombstone."""

    keys: pa.Array
    values: pa.Array


@dataclass(frozen=True)
class Origin:
    """What a form says of all records of a table: the table, the names of its key columns, the
    source's flavour (`mysql` or `mariadb`) and server id, the topics' prefix. `sent` is the time of
    sending in ms since 1970; `snapshot` marks rows that no transaction wrote."""

    table: TableId
    key: tuple[str, ...]
    flavour: str
    server_id: int
    prefix: str
    sent: int
    snapshot: bool = False


#: a changelog with both images of each update; see `Origin`
Form = Callable[[Events, Origin], Records]


def slices(changes: Events, max_bytes: int) -> Iterator[Events]:
    """The changelog in pieces of about so many bytes of images (at least one change each), an
    update's two images together."""
    images = changes.images
    rows = max(1, images.num_rows * max_bytes // max(1, images.nbytes))
    begin = 0
    while begin < images.num_rows:
        end = min(begin + rows, images.num_rows)
        if end < images.num_rows and images[KIND][end].as_py() == _AFTER:
            end += 1
        yield replace(changes, images=images.slice(begin, end - begin), first=changes.first + begin)
        begin = end


def changelog_json(changes: Events, origin: Origin) -> Records:
    """As `flink-format-changelog-json` reads it, decimals as plain numbers."""
    images = changes.images
    ops = _KINDS.take(single(images[KIND]))
    rows = json_rows(columns_of(images), _FLINK)
    values = join(images.num_rows, '{"data":', rows, ',"op":"', ops, '"}')
    return _records(_keys(images, origin), values)


def upsert_json(changes: Events, origin: Origin) -> Records:
    """The row itself; a before image is a tombstone where its key ends, else no record."""
    images = changes.images
    keys, kinds = _keys(images, origin), kinds_of(images)
    ends = (kinds == ChangeKind.DELETE) | moved_before(keys, kinds)
    stays = (kinds == ChangeKind.INSERT) | (kinds == _AFTER)
    rows = pc.if_else(pa.array(stays), json_rows(columns_of(images), _EXACT), None)
    kept = pa.array(ends | stays)
    return _records(keys.filter(kept), rows.filter(kept))


def debezium_json(changes: Events, origin: Origin) -> Records:
    """Debezium's envelope without schema, with its string modes of decimals and times.

    After a delete comes a tombstone, as by its default; a changed key is a delete with a tombstone
    and a create.
    """
    images = changes.images
    keys, rows = _keys(images, origin), json_rows(columns_of(images), _EXACT)
    steps = record_steps(keys, kinds_of(images), tombstones=True)
    transaction = single(images[TRANSACTION]).take(steps.image)
    sources = pa.array(_debezium_sources(changes, origin), pa.string())
    names = pa.array(["r" if origin.snapshot else "c", "u", "d"]).take(steps.op)
    values = join(
        len(steps.op),
        *('{"before":', _or_null(rows.take(steps.before)), ',"after":', _or_null(rows.take(steps.after))),
        *(',"source":', sources.take(transaction), ',"op":"', names, f'","ts_ms":{origin.sent},"transaction":null}}'),
    )
    return _records(keys.take(steps.image), pc.if_else(steps.tombstone, None, values))


def canal_json(changes: Events, origin: Origin) -> Records:
    """Canal's members, of which two are NULL; `old` is the whole row before the change."""
    images = changes.images
    keys, rows = _keys(images, origin), json_rows(columns_of(images), _EXACT)
    steps = record_steps(keys, kinds_of(images), tombstones=False)
    commits = pa.array([str(microseconds(t) // 1000) for t in changes.committed_at] or [str(origin.sent)])
    old = _or_null(join(len(steps.op), "[", _where(steps.op, UPDATE, rows.take(steps.before)), "]"))
    key = f"[{','.join(map(quoted, origin.key))}]"
    table = f'"database":{quoted(origin.table.database)},"table":{quoted(origin.table.name)},"pkNames":{key}'
    values = join(
        len(steps.op),
        *('{"id":0,"data":[', rows.take(pc.coalesce(steps.after, steps.before)), '],"old":', old),
        *(
            f',{table},"isDdl":false,"sql":"","sqlType":null,"mysqlType":null,"type":"',
            pa.array(["INSERT", "UPDATE", "DELETE"]).take(steps.op),
        ),
        *('","es":', commits.take(single(images[TRANSACTION]).take(steps.image)), f',"ts":{origin.sent}}}'),
    )
    return _records(keys.take(steps.image), values)


FORMS: dict[str, Form] = {
    "debezium-json": debezium_json,
    "changelog-json": changelog_json,
    "canal-json": canal_json,
    "upsert-json": upsert_json,
}


def _where(op: pa.Array, wanted: int, texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(op, wanted), texts, None)


def _or_null(texts: pa.Array) -> pa.Array:
    return pc.fill_null(texts, "null")


def _keys(images: pa.Table, origin: Origin) -> pa.Array:
    """The key columns as an object: Debezium's key without its schema."""
    return json_rows(images.select(list(origin.key)), _EXACT)


def _records(keys: pa.Array, values: pa.Array) -> Records:
    return Records(keys.cast(pa.binary()), values.cast(pa.binary()))


def _debezium_sources(changes: Events, origin: Origin) -> Sequence[str]:
    """The `source` of each transaction; a snapshot has one for all rows."""
    ids, times = changes.transactions, changes.committed_at
    if origin.snapshot:
        return [_debezium_source(origin, None, origin.sent * 1000)]
    return [_debezium_source(origin, t, microseconds(at)) for t, at in zip(ids, times, strict=True)]


def _debezium_source(origin: Origin, transaction: TransactionId | None, committed: int) -> str:
    """`pos` is where the transaction ends, not where the row's event begins; `committed` is in
    microseconds."""
    gtid = transaction.gtid_text if transaction else None
    place = (
        f'"gtid":{quoted(gtid) if gtid else "null"},'
        f'"file":{quoted(transaction.end.file)},"pos":{transaction.end.offset}'
        if transaction
        else '"gtid":null,"file":null,"pos":null'
    )
    return (
        f'{{"connector":{quoted(origin.flavour)},"name":{quoted(origin.prefix)},'
        f'"ts_ms":{committed // 1000},"ts_us":{committed},"ts_ns":{committed * 1000},'
        f'"snapshot":"{"true" if origin.snapshot else "false"}","db":{quoted(origin.table.database)},'
        f'"table":{quoted(origin.table.name)},"server_id":{origin.server_id},{place}}}'
    )
