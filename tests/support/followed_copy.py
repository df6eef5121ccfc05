"""A copy that is altered, written and followed step by step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cdcsync_core.errors import Reason
from cdcsync_core.state import LastChange
from cdcsync_core.tables.evolve import DroppedColumns
from cdcsync_spark.binlog.schema.steps import FollowPolicy
from support.fixtures import FreshDatabase
from support.memory_target import MemorySink
from support.schema_classes import TABLES, WRITES
from support.servers import Server
from support.stepwise import Stepwise

EXACT = FollowPolicy(follow=True, dropped=DroppedColumns.DROP)


@pytest.fixture
def copy(request: pytest.FixtureRequest, variant: str, fresh_database: FreshDatabase, tmp_path: Path) -> Stepwise:
    server: Server = request.getfixturevalue(variant)
    database = fresh_database(server)
    server.run(*TABLES, db=database)
    made = Stepwise(server, database, tmp_path, policy=EXACT)
    made.snapshot("a")
    made.snapshot("b")
    return made


def write(copy: Stepwise, number: int) -> None:
    copy.server.run(*(w.format(number) for w in WRITES), db=copy.database)


def alter(copy: Stepwise, *statements: str) -> None:
    copy.server.run(*statements, db=copy.database)


def last_change(copy: Stepwise) -> LastChange:
    state = copy.targets["a"].last_commit()
    assert state is not None
    assert state.change is not None
    return state.change


def stops(copy: Stepwise, **reasons: Reason) -> None:
    """These tables, with a remedy; the others flow."""
    found = {name: t.error for name, t in copy.follow().items()}
    assert {name: e.reason for name, e in found.items() if e} == reasons
    assert all(e.remedy for e in found.values() if e)


def copied_again(copy: Stepwise, after_split: Callable[[int], None]) -> None:
    """Table a, by a snapshot of its own."""
    copy.sink = MemorySink(sync="test/stepwise")
    copy.snapshot("a", after_split)
