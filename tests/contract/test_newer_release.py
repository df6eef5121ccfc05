"""A target that a newer release has written is refused, whatever is asked of it, and stays as it
is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from cdcsync_spark.sinks.kafka.state.table_record import TableRecord
from contract.conftest import served
from contract.sinkcase import content, whole_snapshot
from support import earlier_release


def _next(state: TableState) -> Commit:
    return Commit(replace(state, commit_number=state.commit_number + 1))


@contextmanager
def newer_release() -> Iterator[None]:
    """While it lasts, this program is a release whose states have one key more."""
    to_dict, from_dict = TableState.to_dict, TableState.from_dict
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableState, "to_dict", lambda state: to_dict(state) | {"rowsOfTomorrow": {"since": 1}})
        patch.setattr(TableState, "from_dict", lambda data: from_dict({k: data[k] for k in data.keys() - NEW}))
        yield


NEW = {"rowsOfTomorrow"}
REFUSED = "has rowsOfTomorrow, which this release does not know"
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
    with pytest.raises(CdcError, match=REFUSED) as caught:
        ASKED[asked](fresh, state, tmp_path / "index")
    assert caught.value.reason is Reason.SINK_CONFLICT
    assert earlier_release.files(tmp_path / "lake") == before


@pytest.mark.parametrize(
    ("sink", "store"),
    [
        pytest.param("delta", "local", id="delta"),
        pytest.param("iceberg", "local", id="iceberg"),
        pytest.param("iceberg-v2", "local", id="iceberg-v2", marks=pytest.mark.long),
        served("postgresql", seldom=False),
        served("mariadb", seldom=True),
        served("mysql", seldom=True),
    ],
    indirect=True,
)
def test_every_sink_leaves_a_newer_releases_target_to_it(target: Target, tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    with newer_release():
        written = whole_snapshot(target, [(1, "a"), (2, "b")])
    for asked in ASKED.values():
        with pytest.raises(CdcError, match=REFUSED) as caught:
            asked(target, written, tmp_path / "index")
        assert caught.value.reason is Reason.SINK_CONFLICT
    with newer_release():
        assert target.last_commit() == written
        assert content(target) == [(1, "a"), (2, "b")]


def test_so_does_a_topic() -> None:
    record = earlier_release.states()["kafka"]
    text = json.dumps(record | {"state": record["state"] | {"rowsOfTomorrow": 1}})
    with pytest.raises(CdcError, match=REFUSED) as caught:
        TableRecord.from_json(text.encode())
    assert caught.value.reason is Reason.SINK_CONFLICT
