"""What an earlier release recorded means the same now: states of each kind of target, a status, the
configuration and the reports of a run."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.position import FilePosition, Place
from cdcsync_core.runs.run import RunConfig
from cdcsync_core.runs.status import Status
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.iceberg.table.metadata import TableMetadata
from cdcsync_spark.sinks.iceberg.table.state import found_state
from cdcsync_spark.sinks.kafka.state.table_record import TableRecord
from support import earlier_release


def of_iceberg(recorded: dict[str, Any]) -> TableState | None:
    return found_state(TableMetadata(recorded["iceberg"]), "main")


def of_kafka(recorded: dict[str, Any]) -> TableState | None:
    return TableRecord.from_json(json.dumps(recorded["kafka"]).encode()).state


STATES = {"iceberg": of_iceberg, "kafka": of_kafka, "sql": lambda recorded: TableState.from_dict(recorded["sql"])}


@pytest.mark.parametrize("sink", STATES)
def test_a_state_in_each_kind_of_target(sink: str) -> None:
    state = STATES[sink](earlier_release.states())
    assert state is not None
    assert state.identity.table == "shop.idle"
    assert [c.name for c in state.capture.captured] == ["id", "doc", "code"]
    assert (state.rows, state.generation, state.written) == (1, 0, None)
    assert isinstance(state.position, FilePosition)
    assert state.snapshot_complete
    assert state.consistent


def test_a_table_whose_definition_changed() -> None:
    state = TableState.from_dict(earlier_release.delta_state("shop", "shop.orders"))
    assert [c.name for c in state.capture.captured] == ["id", "word", "at", "amount", "note"]
    assert state.change is not None
    assert state.change.statement.startswith("ALTER TABLE shop.orders ADD COLUMN note")
    assert state.consistent


def test_a_table_whose_snapshot_was_killed() -> None:
    state = TableState.from_dict(earlier_release.delta_state("half", "half.numbers"))
    assert state.position is None
    assert isinstance(state.low, FilePosition)
    (done,) = state.finished.parts
    end = Place(state.low.at.file, state.low.at.offset + 1, state.identity.lineage.newest)
    complete = state.after_wave([Split(done.end, None)], FilePosition(end), end, rows=1, nulled_dates=0)
    assert complete.position == state.low
    assert not complete.consistent


def test_the_status_of_a_cluster_is_written_as_it_was_read() -> None:
    recorded = earlier_release.cluster()["cdcsync"]["status"]
    assert _holds(Status.model_validate(recorded).to_dict(), recorded)


def _holds(written: object, recorded: object) -> bool:
    """Whether all of `recorded` is there; an API server leaves out what is null."""
    if isinstance(written, dict) and isinstance(recorded, dict):
        return all(name in written and _holds(written[name], value) for name, value in recorded.items())
    if isinstance(written, list | tuple) and isinstance(recorded, list):
        return len(written) == len(recorded) and all(map(_holds, written, recorded))
    return written == recorded


def test_the_configuration_of_a_run_that_goes_on() -> None:
    """An operator that was replaced reads what its predecessor gave to a driver."""
    packed = [m["binaryData"] for m in earlier_release.cluster()["configMaps"] if "binaryData" in m]
    (config,) = [data["run.json.gz.00000"] for data in packed if "run.json.gz.00000" in data]
    run = RunConfig.from_json(gzip.decompress(base64.b64decode(config)).decode())
    assert [str(a.table.id) for a in run.tables] == ["shop.a", "shop.b"]
