"""What choosing a host of a stream takes from the tables' targets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import TableAssignment
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.run.context import RunContext
from cdcsync_spark.stream.host_choice import choose_host


class _Unreadable:
    """A target that another program has overwritten."""

    def last_commit(self) -> Any:
        raise fail(Reason.SINK_CONFLICT, "no table of this sync", table="shop.t")


def test_a_target_that_cannot_be_read_keeps_no_other_table_from_a_host() -> None:
    """It is refused where it is opened, and the others flow on."""
    table = Capture(SourceTable(TableId("shop", "t"), (Column("id", SourceType.parse("int"), False),)), ("id",))
    here = Source("one", 3306, Path("u"), Path("p"))
    context = SimpleNamespace(
        config=SimpleNamespace(tables=(TableAssignment(table),)),
        sink=SimpleNamespace(target=lambda _: _Unreadable()),
        facts=SimpleNamespace(log="mariadb:1"),
        source=here,
        others=here.of_hosts("two"),
    )
    choose_host(cast(RunContext, context))
    assert context.source is here
