"""When a stream asks which binlog files the source still has, and what follows from the answer."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.positions.position import FilePosition, LogOffset
from cdcsync_core.runs.run import RunKind
from cdcsync_mysql.readiness.retention import KeptBinlog
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.stream.binlog_watch import BinlogWatch
from cdcsync_spark.stream.run import StreamRun
from support.stream_tables import at, resource, stream_table

_KEPT = KeptBinlog(oldest=3, newest=6, seconds=40.0)


def test_it_is_asked_once_a_minute_and_an_answer_is_news_once() -> None:
    now, asked = [0.0], list[float]()

    def ask() -> KeptBinlog:
        asked.append(now[0])
        if len(asked) == 2:
            raise fail(Reason.SOURCE_UNREACHABLE, "no route")
        return _KEPT

    watch = BinlogWatch(ask, lambda: now[0], lambda work: work())
    news = []
    for second in range(200):
        now[0] = float(second)
        watch.begin()
        news.append(watch.news())
    assert asked == [60.0, 120.0, 180.0]
    assert [(second, binlog) for second, binlog in enumerate(news) if binlog] == [(60, _KEPT), (180, _KEPT)]


@pytest.mark.parametrize(("oldest", "newest", "safe_from"), [(7, 7, 7), (7, 8, 8), (3, 6, 5), (1, 101, 51)])
def test_the_newer_half_of_the_files_is_safe(oldest: int, newest: int, safe_from: int) -> None:
    assert KeptBinlog(oldest, newest, 0.0).safe_from == safe_from


class StreamBesideBinlog:
    """A stream of idle `tables` at `END`, whose source has `binlog`; `now` is its clock."""

    END = FilePosition(LogOffset("binlog.000006", 200))

    def __init__(self, *names: str, binlog: KeptBinlog = _KEPT) -> None:
        self.now, self.tables = 0.0, [stream_table(name) for name in names]
        context: Any = SimpleNamespace(
            resource=resource("shop"),
            reporter=SimpleNamespace(report=lambda **_: None),
            config=SimpleNamespace(kind=RunKind.STREAM),
        )
        engine: Any = None
        clock = partial(getattr, self, "now")
        self.run = StreamRun(context, self.tables, 1, engine, 3600.0, clock, lambda: 0.0, ask_kept=lambda: binlog)
        self.run.apply(BinlogBatch(at(100), self.END, None, "", ()))

    @property
    def advanced(self) -> int:
        """How many tables were committed at the stream's position."""
        return sum(table.state.position == self.END for table in self.tables)

    def turn(self, advanced: int) -> None:
        """Turns, until so many tables have advanced."""
        deadline = time.monotonic() + 60
        while self.advanced < advanced:
            assert time.monotonic() < deadline
            self.run._settle()
            time.sleep(0.01)


def test_a_stream_takes_idle_tables_out_of_old_files_and_notes_another_retention() -> None:
    """No batch comes: nothing but the answer is new."""
    stream = StreamBesideBinlog("orders")
    stream.now = 700.0
    stream.turn(advanced=1)
    assert stream.run.idle_commit_seconds == 10.0


def test_commits_that_take_long_leave_the_rest_to_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = StreamBesideBinlog("a", "b", "c", binlog=replace(_KEPT, seconds=40_000.0))
    commits = stream.run.applier._idle.commits
    commit = commits.commit

    def slow(*args: Any) -> None:
        commit(*args)
        stream.now += 300.0

    monkeypatch.setattr(commits, "commit", slow)
    stream.now = 700.0
    for advanced in (1, 2, 3):
        stream.turn(advanced)
        assert stream.advanced == advanced
