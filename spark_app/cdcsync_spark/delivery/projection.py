"""The fold of a changelog in the columns of the target, which are those of the source until a
column is dropped and kept, or has another name in one of the two."""

from __future__ import annotations

from cdcsync_core.state import TableState
from cdcsync_spark.delivery.changelog import Changelog
from cdcsync_spark.delivery.upsert import Upserts, fold
from cdcsync_spark.rows.arrow_types import projected


def folded(changes: Changelog, state: TableState) -> Upserts:
    """`changes` have the captured columns of `state`. A target column that none of them fills is
    NULL."""
    key, schema = state.capture.key, state.schema
    folded = fold(changes, key, declared=state.capture if state.capture.declared else None)
    filled = {c.source: c.name for c in schema.columns if c.source is not None}
    deletes = folded.deletes.rename_columns([filled[name] for name in key])
    return Upserts(projected(folded.upserts, schema), deletes, folded.new)
