"""The source of a MERGE, and the counts after it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.sinks.contract.changes import Upsert
from cdcsync_spark.sinks.delta.fallback.merge import check_counts, merge_source
from cdcsync_spark.sinks.delta.table.schema import unused_name
from contract.sinkcase import ORDERS, first_state, keys_of, rows_of


def source(upserts: pa.Table, deletes: pa.Table) -> list[tuple[object, ...]]:
    made = merge_source(Upsert(upserts, deletes), TargetSchema.of(ORDERS), "gone")
    assert made.schema.names == ["id", "note", "gone"]
    return [tuple(row.values()) for row in made.to_pylist()]


def test_upserts_and_deletes_are_one_source() -> None:
    assert source(rows_of(ORDERS, [(1, "a"), (2, None)]), keys_of(ORDERS, [(3,)])) == [
        (1, "a", False),
        (2, None, False),
        (3, None, True),
    ]


def test_columns_are_taken_by_name() -> None:
    assert source(rows_of(ORDERS, [(1, "a")]).select(["note", "id"]), keys_of(ORDERS, [])) == [(1, "a", False)]


@pytest.mark.parametrize(
    ("upserts", "deletes"),
    [
        (rows_of(ORDERS, [(None, "a")]), keys_of(ORDERS, [])),
        (rows_of(ORDERS, []), keys_of(ORDERS, [(None,)])),
        (rows_of(ORDERS, []).drop_columns("note"), keys_of(ORDERS, [])),
        (pa.table({"id": pa.array([1], pa.int32()), "note": ["a"]}), keys_of(ORDERS, [])),
        (rows_of(ORDERS, []), rows_of(ORDERS, [])),
    ],
)
def test_a_null_key_or_other_columns_are_refused(upserts: pa.Table, deletes: pa.Table) -> None:
    """A NULL key would match nothing and be inserted again at every replay."""
    with pytest.raises(CdcError) as refused:
        source(upserts, deletes)
    assert refused.value.reason is Reason.INTERNAL_ERROR


def metrics(inserted: int, updated: int, deleted: int) -> dict[str, int]:
    return {
        "num_target_rows_inserted": inserted,
        "num_target_rows_updated": updated,
        "num_target_rows_deleted": deleted,
    }


def test_counts_must_add_up() -> None:
    change = Upsert(rows_of(ORDERS, [(1, "a"), (2, "b")]), keys_of(ORDERS, [(3,)]))
    for fine in ((2, 0, 0), (1, 1, 1), (0, 2, 1)):
        check_counts(first_state(), change, metrics(*fine))
    for doubled in ((0, 3, 0), (1, 0, 1), (2, 0, 2)):
        with pytest.raises(CdcError) as stopped:
            check_counts(first_state(), change, metrics(*doubled))
        assert stopped.value.reason is Reason.SINK_CONFLICT


def test_the_marker_is_no_column_in_any_case() -> None:
    assert unused_name(["id"]) == "cdcsync_deleted"
    assert unused_name(["CdcSync_Deleted", "cdcsync_deleted_"]) == "cdcsync_deleted__"
