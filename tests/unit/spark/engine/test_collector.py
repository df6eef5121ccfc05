"""The collector is off while a binlog is read, and collects between batches once a minute."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from weakref import ref

import pytest

from cdcsync_spark.engine.collector import EVERY, QuietCollector


class _Node:
    """Something in a cycle."""

    def __init__(self) -> None:
        self.self = self


@pytest.fixture(autouse=True)
def _own_collector_again() -> Iterator[None]:
    yield
    gc.enable()
    gc.unfreeze()


def test_a_cycle_is_collected_between_batches_when_it_is_due() -> None:
    now = [0.0]
    collector = QuietCollector(clock=lambda: now[0])
    assert not gc.isenabled()
    left = ref(_Node())
    collector.between_batches()
    assert left() is not None
    now[0] = EVERY
    collector.between_batches()
    assert left() is None
    later = ref(_Node())
    collector.between_batches()
    assert later() is not None, "the next collection is a minute later"
