"""What the version with state 1 recorded means the same now: states of a lake, a status, the
configuration and the reports of a run."""

from __future__ import annotations

import base64
import gzip

from cdcsync_core.chunk import Split
from cdcsync_core.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.position import FilePosition, LogOffset
from cdcsync_core.run import RunConfig
from cdcsync_core.state import TableState
from cdcsync_core.status import Status
from support import state_v1

BEGUN = 1_795_382_034


def at(offset: int) -> LogOffset:
    return LogOffset("binlog.000001", offset)


def test_a_table_that_streamed() -> None:
    state = TableState.from_dict(state_v1.recorded_state("shop", "shop.items"))
    assert (state.identity.sync, state.identity.table) == ("default/shop", "shop.items")
    assert [c.name for c in state.capture.captured] == ["word", "number", "kind"]
    assert (state.epoch, state.commit_number, state.resnapshot_nonce, state.splits, state.rows, state.nulled_dates) == (
        3,
        2,
        0,
        1,
        50,
        0,
    )
    assert state.low == FilePosition(at(15265), MariaDbGtidPos.parse("0-71-10"), BEGUN)
    assert state.position == FilePosition(at(18514), MariaDbGtidPos.parse("0-71-14"), BEGUN)
    assert state.snapshot_complete
    assert state.consistent


def test_a_table_whose_snapshot_was_killed() -> None:
    state = TableState.from_dict(state_v1.recorded_state("half", "half.numbers"))
    assert state.position is None
    assert state.finished.frontier == (121,)
    assert state.low == FilePosition(at(18514), MariaDbGtidPos.parse("0-71-14"), BEGUN)
    done = state.after_wave([Split((121,), None)], FilePosition(at(19000)), at(19500), rows=1, nulled_dates=0)
    assert done.position == state.low
    assert not done.consistent
    assert done.after_batch(FilePosition(at(19500))).consistent


def test_the_status_of_a_cluster_is_written_as_it_was_read() -> None:
    recorded = state_v1.cluster()["cdcsync"]["status"]
    assert _holds(Status.model_validate(recorded).to_dict(), recorded)


def _holds(written: object, recorded: object) -> bool:
    """Whether all of `recorded` is there; an API server leaves out what is null."""
    if isinstance(written, dict) and isinstance(recorded, dict):
        return all(name in written and _holds(written[name], value) for name, value in recorded.items())
    if isinstance(written, list | tuple) and isinstance(recorded, list):
        return len(written) == len(recorded) and all(map(_holds, written, recorded))
    return written == recorded


def test_the_configuration_of_a_run_that_goes_on() -> None:
    """An operator that was replaced finds what its predecessor gave to a driver."""
    (config,) = [m for m in state_v1.cluster()["configMaps"] if "binaryData" in m]
    packed = base64.b64decode(config["binaryData"]["run.json.gz.00000"])
    found = RunConfig.from_json(gzip.decompress(packed).decode())
    assert [str(a.table.id) for a in found.tables] == ["shop.a", "shop.b"]
    assert [c.name for c in found.tables[0].table.columns] == ["id"]
