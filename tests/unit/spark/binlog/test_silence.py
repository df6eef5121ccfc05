"""What a heartbeat is worth: nothing before a proof that was made after it came."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cdcsync_core.errors import CdcError, PermanentError, Reason, TransientError, fail
from cdcsync_core.positions.position import FilePosition, LogOffset, Position
from cdcsync_spark.binlog.dump.silence import Silence

HERE, BEYOND = LogOffset("binlog.000001", 500), LogOffset("binlog.000001", 600)


class _Noted:
    """The clock moves on with each proof."""

    def __init__(self, prove_end: Callable[[Position], LogOffset]) -> None:
        self.now, self.notes = 10.0, list[tuple[float, float | None]]()
        self._prove_end = prove_end
        self.silence = Silence(self._proved, lambda: self.now, self._note)

    def _proved(self, position: Position) -> LogOffset:
        self.now += 1
        return self._prove_end(position)

    def _note(self, last: float, end: float | None = None) -> None:
        self.notes.append((last, end))

    def beat(self, at: LogOffset = HERE) -> None:
        self.silence.prove(FilePosition(at))


def _raising(error: CdcError) -> Callable[[Position], LogOffset]:
    def prove_end(_: Position) -> LogOffset:
        raise error

    return prove_end


def test_a_proved_heartbeat_counts_from_when_it_came() -> None:
    noted = _Noted(lambda _: HERE)
    noted.beat()
    assert noted.notes == [(10.0, 10.0)]


def test_a_heartbeat_behind_which_something_is_on_its_way_is_a_sign_of_life_only() -> None:
    noted = _Noted(lambda _: BEYOND)
    noted.beat()
    assert noted.notes == [(10.0, None)]


def test_a_heartbeat_that_could_not_be_proved_is_none() -> None:
    noted = _Noted(_raising(fail(Reason.SOURCE_UNREACHABLE, "too many connections")))
    for _ in range(9):
        noted.beat()
    assert noted.notes == []


def test_another_binlog_ends_the_dump() -> None:
    with pytest.raises(PermanentError):
        _Noted(_raising(fail(Reason.POSITION_LOST, "reset"))).beat()


def test_a_dump_that_stays_behind_the_binlogs_end_is_opened_again() -> None:
    noted = _Noted(lambda _: BEYOND)
    for _ in range(3):
        noted.beat()
    with pytest.raises(TransientError, match="600"):
        noted.beat()


def test_a_dump_that_moves_follows() -> None:
    noted = _Noted(lambda at: LogOffset(HERE.file, at.at.offset + 100 if at.at else 0))
    for step in range(9):
        noted.beat(LogOffset(HERE.file, 500 + step))
    assert [end for _, end in noted.notes] == [None] * 9
