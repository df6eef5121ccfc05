"""Where Spark makes the commits (R4, R8): deaths between its steps, a zombie, publication, rules of
the table."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_spark.sinks.base import Commit, Replace, Upsert
from cdcsync_spark.sinks.delta.policy import Limits
from cdcsync_spark.sinks.delta.sink import DeltaSink, DeltaTarget
from contract.by_spark import SparkSink, sink_by_spark
from contract.lives import read_by_duckdb
from contract.sinkcase import ORDERS, SYNC, Model, batch, content, keys_of, make_table, rows_of, whole_snapshot
from support.deaths import Died, at_gate, dying_at

pytestmark = pytest.mark.spark


@pytest.fixture
def sink(delta_spark: SparkSession, tmp_path: Path) -> SparkSink:
    return sink_by_spark(delta_spark, tmp_path)


def leftovers(target: DeltaTarget) -> list[str]:
    return [p.name for p in Path(target.uri).glob(".*")]


@pytest.mark.long
def test_a_life_with_deaths_and_its_reason(sink: SparkSink, tmp_path: Path) -> None:
    """Every type of column; a commit that dies before its entry is in the next time, one that dies
    after it is not done twice."""
    columns = {
        "k": "varchar(20)",
        "n": "bigint(20) unsigned",
        "at": "datetime(6)",
        "v": "vector(2)",
        "b": "varbinary(9)",
    }
    table = make_table(columns, ["k", "n"])
    target, model = sink.target(table.id), Model(table)
    at = dt.datetime(1582, 10, 1, 1, 2, 3, 4)
    first = [(k, Decimal(2**64 - 1), at, [0.5, -0.0], b"\xff") for k in ("a", "A", "a ")]
    model.rows = {model.key(r): r for r in first}
    whole_snapshot(target, first, table)
    changes = model.apply(
        [("a", Decimal(2**64 - 1), None, None, None), ("b", Decimal(0), at, None, b"")], [("A", Decimal(2**64 - 1))]
    )
    for gate in ("spark-written", "entry-written"):
        with dying_at(gate), pytest.raises(Died):
            target.writer(tmp_path).commit(1, batch(1, changes))
    writer = target.writer(tmp_path)
    state = writer.commit(1, batch(1, changes))
    assert (state.commit_number, state) == (2, target.last_commit())
    writer.commit(1, batch(2, model.apply([("A", Decimal(1), at, [1.0, 2.0], None)], [])))
    assert "inCommitTimestamp" in writer.status.fallback
    assert content(target) == read_by_duckdb(target.uri) == model.content
    assert leftovers(target) == []


def test_a_zombie_whose_spark_worked_meanwhile_loses(sink: SparkSink) -> None:
    """R8: the successor commits between Spark's work and the entry; what Spark wrote is removed."""
    target = sink.target(ORDERS.id)
    before = whole_snapshot(target, [(1, "a"), (2, "b")])
    merge = Upsert(rows_of(ORDERS, [(2, "zombie")]), keys_of(ORDERS, [(1,)]))

    def successor() -> None:
        target.commit(2, lambda found: Commit(replace(found, commit_number=found.commit_number + 1, epoch=2), merge))

    with at_gate("spark-written", successor), pytest.raises(PermanentError, match="superseded by epoch 2"):
        target.commit(1, batch(1, Upsert(rows_of(ORDERS, [(3, "late")]), keys_of(ORDERS, []))))
    after = target.last_commit()
    assert after is not None
    assert (after.epoch, after.commit_number) == (2, before.commit_number + 1)
    assert content(target) == [(2, "zombie")]


@pytest.mark.long
def test_a_table_is_replaced_in_one_commit(sink: SparkSink) -> None:
    main, side = sink.target(ORDERS.id), sink.target(ORDERS.id, generation=1)
    whole_snapshot(main, [(1, "old"), (2, "old")])
    fresh = whole_snapshot(side, [(2, "new"), (3, "new")])
    files = side.staged()
    main.commit(
        1,
        lambda found: Commit(
            replace(fresh, commit_number=found.commit_number + 1, resnapshot_nonce=1, generation=1), Replace(files)
        ),
    )
    sink.discard(ORDERS.id, 1)
    assert content(main) == [(2, "new"), (3, "new")]


@pytest.mark.long
def test_a_rule_of_the_table_that_a_change_breaks_stops_it_unseen(
    sink: SparkSink, delta_spark: SparkSession, tmp_path: Path
) -> None:
    """A large table with a CHECK constraint, which delta-rs could write, is Spark's, too."""
    target = DeltaSink(sink.store, SYNC, limits=Limits(spark_merge_bytes=0)).target(ORDERS.id)
    whole_snapshot(target, [(1, "a")])
    delta_spark.sql(f"ALTER TABLE delta.`{target.uri}` ADD CONSTRAINT positive CHECK (id > 0)")
    writer = target.writer(tmp_path)
    writer.commit(1, batch(1, Upsert(rows_of(ORDERS, [(1, "b"), (2, "c")]), keys_of(ORDERS, []))))
    assert "CHECK" in writer.status.fallback
    assert "Apache-Spark" in (target.path.log().entry(3) or "")
    with pytest.raises(PermanentError, match=r"(?i)check constraint positive") as stopped:
        writer.commit(1, batch(2, Upsert(rows_of(ORDERS, [(-1, "d")]), keys_of(ORDERS, []))))
    assert stopped.value.reason is Reason.SINK_CONFLICT
    assert content(target) == [(1, "b"), (2, "c")]
    assert leftovers(target) == []
