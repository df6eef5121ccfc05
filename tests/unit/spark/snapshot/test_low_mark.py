"""Rule R1: a low watermark waits for the XA transactions that the binlog has as ended and the
server still lists."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cdcsync_core.errors import Reason, TransientError
from cdcsync_spark.snapshot.splits.low_mark import _xid, wait_for_ended


class _XidServer:
    """Lists one set of xids after the other, the last one forever; a clock that moves by
    sleeping."""

    def __init__(self, listed: Sequence[set[str]]) -> None:
        self.listed, self.asked, self.now = list(listed), 0, 0.0

    def list(self) -> set[str]:
        self.asked += 1
        return self.listed.pop(0) if len(self.listed) > 1 else self.listed[0]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, ended: set[str]) -> None:
        wait_for_ended(self.list, lambda xid: xid in ended, lambda: self.now, self.sleep)


@pytest.mark.parametrize("listed", [set(), {"idle"}])
def test_what_is_only_prepared_is_not_waited_for(listed: set[str]) -> None:
    server = _XidServer([listed])
    server.wait(ended=set())
    assert server.asked == 1


def test_what_has_ended_is_waited_for_until_it_is_listed_no_more() -> None:
    server = _XidServer([{"idle", "a", "b"}, {"idle", "b", "new"}, {"idle", "b"}, {"idle", "new"}])
    server.wait(ended={"a", "b"})
    assert server.asked == 4


def test_a_commit_that_never_comes_is_an_error() -> None:
    with pytest.raises(TransientError) as error:
        _XidServer([{"a"}]).wait(ended={"a"})
    assert error.value.reason is Reason.SOURCE_UNREACHABLE


def test_an_xid_is_spelled_as_in_the_binlog() -> None:
    assert _xid(7, 2, 1, b"abc") == "X'6162',X'63',7"
