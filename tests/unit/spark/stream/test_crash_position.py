"""The position behind a file that a crash of the source ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import Anchor, GtidPosition, Place
from cdcsync_core.positions.witness import Witness
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.search.crash_tail import TailReader
from cdcsync_spark.stream.apply import crash_repair

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
BINLOG = f"mysql:{UUID}"


def test_it_keeps_the_transactions_that_prove_it_on_another_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failover often follows a crash."""
    monkeypatch.setattr(crash_repair, "file_created_at", lambda *_: 1700)
    source, lineage = Source("db", 3306, "cdc", "for tests"), Lineage.of(BINLOG)
    repair = crash_repair.SourceRepair(source, lineage, TailReader(source, lineage, tmp_path), 60)
    crashed, place = Place("binlog.000001", 500, BINLOG), Place("binlog.000002", 4, BINLOG)
    witnesses = (Witness(Gtid(UUID, 9), 9_000_000, 0),)
    before = GtidPosition(GtidSet.parse(f"{UUID}:1-9"), crashed, Anchor(crashed, 1600), witnesses)

    passed = repair.passed(before, place)
    assert passed == GtidPosition(before.gtids, place, Anchor(place, 1700))
    assert isinstance(passed, GtidPosition)
    assert passed.witnesses == witnesses
