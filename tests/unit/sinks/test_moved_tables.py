"""A commit may move a table to another server, and nothing else of a commit may."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.lineage import Lineage
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Change, Commit, Empty
from cdcsync_spark.sinks.contract.checks import check_successor, refuse_other_identity
from support.states import EMPTY

MOVED = EMPTY.identity.lineage.moved_to("mysql:b")


def _commit(lineage: Lineage, change: Change) -> Commit:
    identity = replace(EMPTY.identity, lineage=lineage)
    return Commit(replace(EMPTY, identity=identity, commit_number=1), change)


def test_a_commit_of_the_position_alone_moves() -> None:
    check_successor(EMPTY, _commit(MOVED, AdvancePosition()), 1)
    refuse_other_identity(_commit(MOVED, AdvancePosition()).state, _commit(Lineage.of("mysql:b"), Empty()).state)


@pytest.mark.parametrize(
    ("lineage", "change"),
    [(MOVED, Empty()), (Lineage.of("mysql:b"), AdvancePosition()), (MOVED.moved_to("mysql:c"), AdvancePosition())],
)
def test_no_other_commit_does(lineage: Lineage, change: Change) -> None:
    with pytest.raises(CdcError, match="identity"):
        check_successor(EMPTY, _commit(lineage, change), 1)
