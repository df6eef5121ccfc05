"""What a state says after another program's commit, after rows were taken back, and after a
verification (R4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition, Place
from cdcsync_core.state import SinkWrite, TableState
from support.states import EMPTY

WRITE = SinkWrite(7, "DuckDB", "UNKNOWN", 1700000000.5)


def at(offset: int) -> FilePosition:
    return FilePosition(Place("binlog.000001", offset, EMPTY.identity.lineage.newest))


def state(offset: int = 200, written: SinkWrite | None = WRITE, generation: int = 0) -> TableState:
    return replace(EMPTY, commit_number=4, position=at(offset), written=written, generation=generation)


def test_a_state_keeps_the_write_of_another_program() -> None:
    assert TableState.from_dict(state().to_dict()) == state()
    assert "written" not in state(written=None).to_dict()
    assert state().after_batch(at(300)).written == WRITE


def test_what_counts_up_goes_on_where_rows_were_taken_back() -> None:
    older = replace(EMPTY, epoch=2, commit_number=3, position=at(100), resnapshot_nonce=1, generation=1, rows=5)
    newest = replace(EMPTY, epoch=6, commit_number=9, position=at(900), resnapshot_nonce=2, generation=3, rows=7)
    restored = older.restored(newest)
    counted = replace(older, epoch=6, commit_number=9, resnapshot_nonce=2, generation=3)
    assert restored == replace(counted, replaying=at(900))
    assert TableState.from_dict(restored.to_dict()) == restored
    assert newest.restored(newest) == newest


def test_rows_that_were_taken_back_are_replayed_once_they_have_their_position_again() -> None:
    restored = state(100).restored(state(300))
    assert restored.after_batch(at(200)).replaying == at(300)
    assert restored.after_batch(at(300)).replaying is None
    again = state(150).restored(restored.after_batch(at(200)))
    assert again.replaying == at(300)
    other = replace(EMPTY.identity, lineage=Lineage.of("another"))
    there = FilePosition(Place("binlog.000001", 100, "another"))
    assert replace(state(), identity=other, position=there).restored(state(300)).replaying is None


@pytest.mark.parametrize("offset", [200, 500])
def test_a_verification_ends_the_note(offset: int) -> None:
    assert state(offset).after_verification(state()) == replace(state(offset), commit_number=5, written=None)


@pytest.mark.parametrize(
    "found",
    [
        state(written=None),
        state(written=replace(WRITE, version=9)),
        state(100),
        state(generation=1),
        replace(state(), position=None),
    ],
    ids=["nothing noted", "another write", "taken back", "resnapshotted", "not read"],
)
def test_a_verification_says_nothing_of_other_rows(found: TableState) -> None:
    assert found.after_verification(state()) is None
