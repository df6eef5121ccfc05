"""Positions in a status: typed for programs, and the same text as ever for people."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import Anchor, FilePosition, GtidPosition, LogOffset, Position, Watermark
from cdcsync_core.positions.watermark import watermark_to_dict
from cdcsync_core.runs.status import Status
from cdcsync_core.runs.status_part import StatusPosition, StatusWatermark
from cdcsync_core.runs.table_status import TableStatus

GTIDS = GtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7")
AT = LogOffset("binlog.000012", 400)
POSITIONS = [
    FilePosition(AT),
    FilePosition(AT, MariaDbGtidPos.parse("0-1-7,1-1-3"), 1_700_000_000),
    GtidPosition(GTIDS),
    GtidPosition(GTIDS, AT, Anchor(LogOffset("binlog.000003", 4), 1_600_000_000)),
]


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("time", [{}, {"timestamp": ""}, {"timestamp": "2026-01-01T00:00:00.250+00:00"}])
def test_what_was_written_goes_out_to_the_last_character(position: Position, time: dict[str, str]) -> None:
    data = position.to_dict() | time
    status = Status.model_validate({"position": data, "tableStatus": [{"name": "t", "low": data, "position": data}]})
    written = json.loads(json.dumps(status.to_dict()))
    table = written["tableStatus"][0]
    for found in (written["position"], table["low"], table["position"]):
        assert json.dumps(found) == json.dumps(data)
    assert Status.model_validate(written) == status
    assert status.position is not None
    assert status.position.parsed() == position
    assert status.position.place == ("binlog.000012:400" if position != POSITIONS[2] else "")
    assert (status.position.seconds is None) is not bool(time.get("timestamp"))


@pytest.mark.parametrize("high", [AT, GTIDS, MariaDbGtidPos.parse("0-1-7,1-1-3")])
def test_a_high_watermark_comes_back(high: Watermark) -> None:
    data = watermark_to_dict(high)
    table = TableStatus.model_validate({"name": "t", "high": data})
    assert json.dumps(table.model_dump(by_alias=True, mode="json")["high"]) == json.dumps(data)
    assert table.high is not None
    assert table.high.parsed("") == high


@pytest.mark.parametrize("kind", [StatusPosition, StatusWatermark])
def test_fields_of_a_newer_version_are_left_aside(kind: Any) -> None:
    found = kind.model_validate({"file": "b.000001", "offset": 4, "gtidSet": "", "shard": 7})
    assert found.model_dump(by_alias=True) == {"file": "b.000001", "offset": 4, "gtidSet": ""}
