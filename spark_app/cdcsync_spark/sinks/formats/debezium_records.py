"""A changelog as the records of Debezium's own engine: `debezium-json` with `compatible: exact`.

The records, their order, the order of their members, their headers and each value are Debezium's
with the settings that `debezium_text` names. What cannot be equal is the version and the time at
which a record was made. CdcSync keeps neither place and second of an event within its transaction
nor the thread that made it: `pos` is where the transaction ends, `row` counts the table's changes
in it, `ts_ms` is the commit's time, and `thread` is null. Debezium has the commit's time only where
MySQL has GTIDs, else the second of the event. As with Debezium, no two changes of a table have the
same `file`, `pos` and `row`, and they ascend.

A test compares the records of topics with those of the engine, byte by byte.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.positions.position import LogOffset
from cdcsync_spark.rows.changes import TRANSACTION, ChangeKind
from cdcsync_spark.rows.events import Events
from cdcsync_spark.sinks.formats.debezium_text import debezium_name, debezium_texts
from cdcsync_spark.sinks.formats.json_records import Header, Origin, Records
from cdcsync_spark.sinks.formats.json_text import member_parts, single
from cdcsync_spark.sinks.formats.record_steps import (
    CREATE,
    DELETE,
    Indices,
    Steps,
    columns_of,
    kinds_of,
    microseconds,
    record_steps,
)
from cdcsync_spark.sinks.formats.text_join import Part, Pick, join

#: of the two records that an update of a key is: the key that follows, the key that was before
NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"


def debezium_exact_json(changes: Events, origin: Origin) -> Records:
    """The records as Debezium's JSON converter writes them."""
    images, texts = changes.images, debezium_texts(origin.columns, snapshot=origin.snapshot)
    keys = join(images.num_rows, *member_parts(images.select(list(origin.key)), texts, debezium_name))
    rows = member_parts(columns_of(images), texts, debezium_name)
    kinds = kinds_of(images)
    steps = record_steps(keys, kinds, tombstones=True)
    values = join(
        len(steps.op),
        *('{"before":', Pick(rows, steps.before), ',"after":', Pick(rows, steps.after), ',"source":'),
        *_source(changes, origin, steps),
        *(',"transaction":null,"op":"', Pick([pa.array(["r" if origin.snapshot else "c", "u", "d"])], steps.op)),
        f'","ts_ms":{origin.sent},"ts_us":{origin.sent * 1000},"ts_ns":{origin.sent * 1_000_000}}}',
    )
    values = pc.if_else(steps.tombstone, None, values).cast(pa.binary())
    keys = keys.cast(pa.binary())
    return Records(keys.take(steps.image), values, _headers(keys, kinds, steps))


def _source(changes: Events, origin: Origin, steps: Steps) -> list[Part]:
    """The source block of each record; a snapshot has one for all rows, without a transaction."""
    if origin.snapshot:
        head, place = _begin(origin, origin.sent * 1000, "true", 0), _place(None, origin.place)
        return [f"{head}{place}0{_END}"]
    begins = [
        f"{_begin(origin, microseconds(at), 'false', origin.server_id)}{_place(t.gtid_text, t.end)}"
        for t, at in zip(changes.transactions, changes.committed_at, strict=True)
    ]
    rows = pa.array(changes.change_numbers()).take(steps.image).dictionary_encode()
    return [
        Pick([pa.array(begins, pa.string())], single(changes.images[TRANSACTION]).take(steps.image)),
        Pick([rows.dictionary.cast(pa.string())], rows.indices),
        _END,
    ]


_END = ',"thread":null,"query":null}'


def _begin(origin: Origin, committed: int, snapshot: str, server_id: int) -> str:
    database, table, prefix = map(debezium_name, (origin.table.database, origin.table.name, origin.prefix))
    return (
        f'{{"version":"{_version()}","connector":"{origin.flavour}","name":{prefix},"ts_ms":{committed // 1000},'
        f'"snapshot":"{snapshot}","db":{database},"sequence":null,"ts_us":{committed},"ts_ns":{committed * 1000},'
        f'"table":{table},"server_id":{server_id},'
    )


def _place(gtid: str | None, place: LogOffset | None) -> str:
    """Up to the number of the row. A place that is not known has the types of one."""
    text, (file, offset) = debezium_name(gtid) if gtid else "null", (place.file, place.offset) if place else ("", 0)
    return f'"gtid":{text},"file":{debezium_name(file)},"pos":{offset},"row":'


@cache
def _version() -> str:
    return version("cdcsync")


def _headers(keys: pa.Array, kinds: Indices, steps: Steps) -> dict[int, Header]:
    """The headers of records that have one, by the number of the record."""
    image, op = steps.image.to_numpy(), steps.op.to_numpy()
    ends = (op == DELETE) & (kinds[image] == ChangeKind.UPDATE_BEFORE)
    begins = (op == CREATE) & (kinds[image] == ChangeKind.UPDATE_AFTER)
    new = {int(n): (NEW_KEY, keys[int(image[n]) + 1].as_py()) for n in ends.nonzero()[0]}
    return new | {int(n): (OLD_KEY, keys[int(image[n]) - 1].as_py()) for n in begins.nonzero()[0]}
