"""A folded batch into a Delta table, as one MERGE of delta-rs.

The source is the upserts and the deleted keys in one table, told apart by a marker column that no
column of the table can be called. Keys match by equality of every key column, byte for byte, never
NULL: a NULL would match nothing and be inserted again at every replay. A key that is not there and
ends deleted is not inserted. `streamed_exec=False` lets delta-rs skip files whose key bounds lie
outside the batch's; bounds are never narrow (see `statistics`).

A table that holds a key of the batch twice, which only a foreign writer can have done, is stopped
before: afterwards the state would claim that the batch is in. The counts must add up as well: each
upsert updated or inserted exactly one row, each delete removed at most one.

Cost: every file that may hold a key is read, and rewritten if it does (copy on write), in the
driver's memory: the batch, plus about a row group per touched file and core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.remedies import STOP_OTHER_WRITER
from cdcsync_core.state import TableState
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.rows.arrow_types import arrow_schema
from cdcsync_spark.sinks.contract.changes import Upsert
from cdcsync_spark.sinks.delta.table.schema import unused_name
from cdcsync_spark.sinks.lake.files.file_changes import checked
from cdcsync_spark.sinks.lake.files.snapshot import LakeSnapshot

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties


def merge(
    handle: DeltaTable, state: TableState, change: Upsert, properties: CommitProperties, hooks: PostCommitHookProperties
) -> None:
    """Commits `change` on `handle`, rows and `properties` together."""
    from deltalake import WriterProperties

    marker = unused_name(state.schema.names)
    source = merge_source(change, state.schema, marker)
    columns = {_quoted(name): f"s.{_quoted(name)}" for name in state.schema.names}
    deleted = f"s.{_quoted(marker)}"
    metrics = (
        handle.merge(
            source,
            " AND ".join(f"t.{_quoted(k)} = s.{_quoted(k)}" for k in state.schema.key),
            source_alias="s",
            target_alias="t",
            streamed_exec=False,
            writer_properties=WriterProperties(compression="ZSTD", compression_level=1),
            commit_properties=properties,
            post_commithook_properties=hooks,
        )
        .when_matched_delete(deleted)
        .when_matched_update(columns)
        .when_not_matched_insert(columns, f"NOT {deleted}")
        .execute()
    )
    check_counts(state, change, metrics)


def merge_source(change: Upsert, target: TargetSchema, marker: str) -> pa.Table:
    """Upserts and deletes under one schema; `marker` tells deletes."""
    upserts, keys = checked(target, change)
    schema = arrow_schema(target)
    deletes = pa.table(
        [keys[f.name] if f.name in target.key else pa.nulls(keys.num_rows, f.type) for f in schema], schema=schema
    )
    return pa.concat_tables([_marked(upserts, marker, False), _marked(deletes, marker, True)])


def _marked(rows: pa.Table, marker: str, value: bool) -> pa.Table:
    return rows.append_column(pa.field(marker, pa.bool_()), pa.repeat(pa.scalar(value), rows.num_rows))


def rows_met(target: LakeSnapshot, change: Upsert) -> int:
    """How many rows of the target have a key of the batch; raises `SinkConflict` where one has it
    more than once. Reads the keys between the batch's least and greatest."""
    schema = target.state.schema
    names, (upserts, deletes) = list(schema.key), checked(schema, change)
    keys = pa.concat_tables([upserts.select(names), deletes.select(names)])
    bounds, first = pc.min_max(keys[names[0]]), pc.field(names[0])
    within = (first >= bounds["min"]) & (first <= bounds["max"])
    met = [_met(pa.Table.from_batches([batch]), keys) for batch in target.scan(names, within)]
    if not met:
        return 0
    counts = pa.concat_tables(met).group_by(names).aggregate([([], "count_all")])["count_all"]
    doubled = pc.sum(pc.greater(counts, 1)).as_py() or 0
    if doubled:
        raise _not_once(f"{doubled} of {keys.num_rows} changed keys are there more than once", target.state)
    return len(counts)


def _met(rows: pa.Table, keys: pa.Table) -> pa.Table:
    return rows.join(keys, rows.schema.names, join_type="left semi")


def check_counts(state: TableState, change: Upsert, metrics: dict[str, Any]) -> None:
    """Raises `SinkConflict` where the table held a key of the batch more than once."""
    written = metrics["num_target_rows_inserted"] + metrics["num_target_rows_updated"]
    removed = metrics["num_target_rows_deleted"]
    if written == change.upserts.num_rows and removed <= change.deletes.num_rows:
        return
    upserts, deletes = change.upserts.num_rows, change.deletes.num_rows
    raise _not_once(f"{upserts} changed keys met {written} rows and {deletes} deleted keys met {removed}", state)


def _not_once(found: str, state: TableState) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        found,
        needed="each key once in the target: no other program writes rows there",
        remedy=STOP_OTHER_WRITER,
        table=state.identity.table,
    )


def _quoted(name: str) -> str:
    """A column for the SQL of delta-rs: with double quotes it is taken letter by letter, dots and
    case included."""
    return '"' + name.replace('"', '""') + '"'
