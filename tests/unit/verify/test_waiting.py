"""A verification waits for a sync that brings its targets on, and for no other."""

from __future__ import annotations

import fcntl
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
import yaml

from cdcsync_core.positions.position import Place
from cdcsync_core.runs.verification import ReaderName
from cdcsync_spark.verify.confirm import DifferenceConfirmation, Suspect
from cdcsync_spark.verify.sync_status import StatusFile
from contract.sinkcase import ORDERS, whole_snapshot
from support.memory_target import MemorySink

END = Place("binlog.000001", 10**6, "mysql:uuid")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("phase", ["Waiting", "Paused"])
def test_a_sync_at_rest_is_not_waited_for(tmp_path: Path, phase: str) -> None:
    """Its controller runs, and its targets are behind."""
    target = MemorySink(sync="shop/orders").target(ORDERS.id)
    whole_snapshot(target, [(1, "a")])
    (tmp_path / "status").write_text(yaml.safe_dump({"status": {"phase": phase}}))
    status = StatusFile(tmp_path / "status", tmp_path / "lock")
    suspect = Suspect(ORDERS, target, 0, Mock(), pa.table({"id": [1]}), np.empty(0, "S16"))
    waiting_tables: list[str] = []
    confirmation = DifferenceConfirmation(
        Mock(), Mock(), status, 1, tmp_path, 1, 600.0, ReaderName.CDCSYNC, lambda table, _: waiting_tables.append(table)
    )
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert status.running
        confirmation._wait([suspect], END)
    assert waiting_tables == ["shop.orders"]
