"""When a stream asks which binlog files the source still has, and what follows from the answer."""

from __future__ import annotations

import time
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
    assert [(second, kept) for second, kept in enumerate(news) if kept] == [(60, _KEPT), (180, _KEPT)]


@pytest.mark.parametrize(("oldest", "newest", "safe_from"), [(7, 7, 7), (7, 8, 8), (3, 6, 5), (1, 101, 51)])
def test_the_newer_half_of_the_files_is_safe(oldest: int, newest: int, safe_from: int) -> None:
    assert KeptBinlog(oldest, newest, 0.0).safe_from == safe_from


def test_a_stream_takes_idle_tables_out_of_old_files_and_notes_another_retention() -> None:
    """No batch comes: nothing but the answer is new."""
    now, table = [0.0], stream_table("orders")
    context: Any = SimpleNamespace(
        resource=resource("shop"),
        reporter=SimpleNamespace(report=lambda **_: None),
        config=SimpleNamespace(kind=RunKind.STREAM),
    )
    engine: Any = None
    run = StreamRun(context, [table], 1, engine, 3600.0, lambda: now[0], lambda: 0.0, ask_kept=lambda: _KEPT)
    end = FilePosition(LogOffset("binlog.000006", 200))
    run.apply(BinlogBatch(at(100), end, None, "", ()))
    now[0] = 700.0
    deadline = time.monotonic() + 60
    while table.state.position != end:
        assert time.monotonic() < deadline
        run._settle()
        time.sleep(0.01)
    assert run.idle_commit_seconds == 10.0
