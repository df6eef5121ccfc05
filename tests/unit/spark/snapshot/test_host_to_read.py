"""Which of several hosts a snapshot reads on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdcsync_core.errors import Reason, TransientError, fail
from cdcsync_core.positions.chunk import Intervals, Split
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.runs.run import TableAssignment
from cdcsync_core.state import Identity, TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_mysql.readiness.left_out import LeftOut
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.run.context import RunContext
from cdcsync_spark.snapshot import host_to_read
from cdcsync_spark.snapshot.host_to_read import choose_host_to_read
from support.memory_target import MemorySink

TABLE = Capture(SourceTable(TableId("shop", "t"), (Column("id", SourceType.parse("int"), False),)), ("id",))
BEGUN, WHOLE = Intervals((Split(None, (10,)),)), Intervals((Split(None, None),))
SKIPPED, NOTHING = LeftOut(("slave_skip_errors=1062",), ()), LeftOut((), ())
LOGS = {"one": "mariadb:1", "two": "mariadb:2", "three": "mariadb:3"}


@dataclass
class _Hosts:
    """Three hosts, of which the first was reached; some are away, some were demoted, some skip
    errors."""

    away: set[str] = field(default_factory=set)
    demoted: set[str] = field(default_factory=set)
    skipping: set[str] = field(default_factory=set)
    primaries: set[str] = field(default_factory=set)
    sink: MemorySink = field(default_factory=MemorySink)
    asked: int = 0
    followed: str = ""

    @contextmanager
    def open(self, source: Source) -> Iterator[Any]:
        if source.host in self.away:
            raise fail(Reason.SOURCE_UNREACHABLE, "refused")
        facts = SimpleNamespace(log=LOGS[source.host])
        yield SimpleNamespace(source=source, facts=facts, unproved=lambda: source.host)

    def has(self, binlog: str, finished: Intervals, generation: int = 0) -> None:
        identity = Identity("default/shop", Lineage.of(binlog), "shop.t")
        state = TableState(identity, TABLE, TargetSchema.of(TABLE), 1, finished=finished, generation=generation)
        self.sink.target(TABLE.id, generation=generation).state = state

    def taken(self, patience: float = 0.0) -> str:
        source = Source("one", 3306, Path("u"), Path("p"))
        context = SimpleNamespace(
            config=SimpleNamespace(tables=(TableAssignment(TABLE, generation=self.asked),), followed=self.followed),
            sink=self.sink,
            facts=SimpleNamespace(log=LOGS["one"]),
            source=source,
            others=source.of_hosts("two", "three"),
        )
        context.go_to = lambda source, facts: vars(context).update(source=source, facts=facts)
        context.wait = lambda _: self.away.clear()
        choose_host_to_read(cast(RunContext, context), self.open, patience)
        return str(context.source.host)


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> _Hosts:
    hosts = _Hosts()
    monkeypatch.setattr(host_to_read, "is_demoted", lambda host, _: host in hosts.demoted)
    monkeypatch.setattr(host_to_read, "is_stalled", lambda *_: False)
    monkeypatch.setattr(host_to_read, "shown_channels", lambda host, _: [] if host in hosts.primaries else None)
    monkeypatch.setattr(host_to_read, "read_left_out", lambda host, _: SKIPPED if host in hosts.skipping else NOTHING)
    return hosts


def test_a_begun_table_is_read_on_from_its_server(hosts: _Hosts) -> None:
    """The promise: resume, not restart."""
    assert hosts.taken() == "one"
    hosts.has("mariadb:3", BEGUN)
    assert hosts.taken() == "three"


def test_a_copy_that_is_not_published_stays_with_its_server(hosts: _Hosts) -> None:
    hosts.has("mariadb:1", WHOLE)
    hosts.asked = 1
    assert hosts.taken() == "one"
    hosts.has("mariadb:2", BEGUN, generation=1)
    assert hosts.taken() == "two"


def test_a_server_that_cannot_be_used_is_not_taken(hosts: _Hosts) -> None:
    hosts.has("mariadb:3", BEGUN)
    hosts.away = {"three"}
    assert hosts.taken() == "one"
    assert hosts.taken(patience=60.0) == "three", "it answers when it is asked again"
    hosts.away, hosts.demoted = {"two"}, {"three"}
    assert hosts.taken() == "one"


def test_what_is_read_to_the_end_and_published_asks_for_no_server(hosts: _Hosts) -> None:
    hosts.has("mariadb:3", WHOLE)
    assert hosts.taken() == "one"


def test_a_server_that_was_left_is_not_read_on(hosts: _Hosts) -> None:
    """Though a part of the next content was read there; the run is tried again."""
    hosts.has("mariadb:1", WHOLE)
    hosts.asked = 1
    hosts.has("mariadb:1", BEGUN, generation=1)
    hosts.followed = "mariadb:1"
    assert hosts.taken() == "one"
    hosts.followed = "mariadb:2"
    with pytest.raises(TransientError, match=r"mariadb:1, which the sync has left.*needed: mariadb:2"):
        hosts.taken()
    hosts.has("mariadb:3", WHOLE)
    hosts.has("mariadb:3", BEGUN, generation=1)
    assert hosts.taken() == "one", "a server on which the table never was"


def test_a_target_that_cannot_be_read_keeps_no_other_table_from_a_host(
    hosts: _Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own table is refused where it is opened."""

    def refuse(*_: object) -> None:
        raise fail(Reason.SINK_CONFLICT, "another program took the table back", table="shop.t")

    monkeypatch.setattr(hosts.sink.target(TABLE.id), "last_commit", refuse)
    assert hosts.taken() == "one"
    hosts.followed = "mariadb:1"
    assert hosts.taken() == "one"


def test_another_host_is_read_on_where_the_first_may_have_left_out_changes(hosts: _Hosts) -> None:
    hosts.skipping, hosts.demoted = {"one"}, {"two"}
    assert hosts.taken() == "three"
    hosts.has("mariadb:1", BEGUN)
    with pytest.raises(TransientError, match="one: slave_skip_errors=1062"):
        hosts.taken()


def test_a_server_whose_rows_are_the_source_s_has_left_out_nothing(hosts: _Hosts) -> None:
    """The server that the sync follows; before it follows one, any server that is no replica."""
    hosts.skipping = set(LOGS)
    with pytest.raises(TransientError, match="one: slave_skip_errors=1062"):
        hosts.taken()
    hosts.followed = "mariadb:1"
    assert hosts.taken() == "one"
    hosts.followed, hosts.primaries = "", {"one"}
    assert hosts.taken() == "one"
    hosts.followed = "mariadb:2"
    assert hosts.taken() == "two"
    hosts.away = {"two"}
    with pytest.raises(TransientError, match="one: slave_skip_errors=1062"):
        hosts.taken()
