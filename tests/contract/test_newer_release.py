"""A target that a newer release has written is refused, whatever is asked of it, and stays as it
is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.resource.sink_spec import SinkSpec
from cdcsync_core.state import TableState
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks import sink_from_spec
from cdcsync_spark.sinks.contract.changes import Commit
from cdcsync_spark.sinks.contract.driver import Role
from cdcsync_spark.sinks.contract.sink import Target
from support import earlier_release


def _next(state: TableState) -> Commit:
    return Commit(replace(state, commit_number=state.commit_number + 1))


ASKED: dict[str, Callable[[Target, TableState, Path], object]] = {
    "state": lambda target, state, folder: target.last_commit(),
    "prepare": lambda target, state, folder: target.prepare(replace(state, epoch=state.epoch + 1)),
    "commit": lambda target, state, folder: target.commit(state.epoch + 1, _next),
    "writer": lambda target, state, folder: target.writer(folder).commit(state.epoch + 1, _next),
}


@pytest.mark.parametrize("asked", ASKED)
def test_nothing_is_written_to_it(tmp_path: Path, asked: str) -> None:
    earlier_release.extract("shop/lake", tmp_path / "lake")
    spec = SinkSpec.model_validate({"delta": {"path": str(tmp_path / "lake")}})
    target = sink_from_spec(spec, tmp_path, "default/shop", Role("stream")).target(TableId("shop", "orders"))
    state = target.last_commit()
    assert state is not None, "this release reads what the earlier one wrote"
    earlier_release.as_a_newer_one_writes(tmp_path / "lake" / "shop" / "orders")
    before = earlier_release.files(tmp_path / "lake")
    fresh = sink_from_spec(spec, tmp_path, "default/shop", Role("stream")).target(TableId("shop", "orders"))
    (tmp_path / "index").mkdir()
    with pytest.raises(CdcError, match="has rowsOfTomorrow, which this release does not know") as caught:
        ASKED[asked](fresh, state, tmp_path / "index")
    assert caught.value.reason is Reason.SINK_CONFLICT
    assert earlier_release.files(tmp_path / "lake") == before
