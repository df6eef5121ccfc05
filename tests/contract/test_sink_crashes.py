"""Crash points of a sink: SIGKILL at each gate, and again at the next, and the table ends right and
holds nothing twice.

The program that is killed is `crashing.py`; every run has a higher epoch than the one before, as
the controller gives it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from multiprocessing import forkserver
from multiprocessing.context import BaseContext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

from cdcsync_spark.sinks.contract.sink import Sink
from cdcsync_spark.sinks.lake.storage.store import Store
from cdcsync_spark.sinks.sql.target import SqlSink
from contract import crashing, stepping
from contract.conftest import DATABASES
from contract.crash_sinks import FORMAT_VERSIONS, Place, sink_of
from contract.sinkcase import ORDERS, content, in_order
from contract.stores import STORES

ROOT = Path(__file__).parents[2]
#: store, gate -> at which of its passings a run is killed. Killed before its commit a run makes no
#: progress by itself: it passes once or more. An undisturbed run passes table-created 2, staged 5,
#: before-commit and committed 13, data-written and vectors-written 6 times.
CHAINS = {
    ("local", "table-created"): 1,
    ("local", "staged"): 2,
    ("local", "before-commit"): 5,
    ("local", "data-written"): 3,
    ("local", "vectors-written"): 3,
    ("local", "entry-written"): 4,
    ("local", "committed"): 5,
    ("s3", "before-commit"): 5,
}
#: the same of the program whose schema changes; an undisturbed run passes step-staged 6 times
STEP_CHAINS = {("local", "step-staged"): 2, ("local", "committed"): 5, ("s3", "step-staged"): 2}


#: the same of a database, where tables are renamed in a transaction and where they are not
SQL_CHAINS = {
    "staged": 2,
    "sql-table-filled": 2,
    "sql-rows-written": 5,
    "sql-pending": 1,
    "sql-swapped": 1,
    "sql-committed": 3,
}
#: of these, what is passed where tables are not renamed in a transaction
OUTSIDE = ("sql-pending", "sql-swapped")


def of_databases() -> list[ParameterSet]:
    """Each program on each server, at each gate that it passes there."""
    return [
        pytest.param(
            name,
            "local",
            program,
            gate,
            id=f"{program.__name__.split('.')[-1]}-{gate}-{name}",
            marks=pytest.mark.server,
        )
        for name in DATABASES
        for program in (crashing, stepping)
        for gate in SQL_CHAINS
        if not (name == "postgresql" and gate in OUTSIDE)
    ]


def of_iceberg(chains: Mapping[tuple[str, str], int], usual: str) -> list[ParameterSet]:
    """The same of Iceberg tables on a local disk, of both format versions; but for the one at
    `usual` they are left to `make test-all`."""
    return [
        pytest.param(kind, gate, passing, marks=[] if (kind, gate) == ("iceberg", usual) else [pytest.mark.long])
        for kind in FORMAT_VERSIONS
        for (store, gate), passing in chains.items()
        if store == "local"
    ]


@pytest.fixture(scope="session")
def processes() -> BaseContext:
    """Makes processes by forks of one that has imported the program, which takes longer than the
    program itself."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([crashing.__name__, stepping.__name__])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "tests"), *sys.path]))
        forkserver.ensure_running()
    return context


def run(processes: BaseContext, program: ModuleType, place: Place, epoch: int, gate: str, kind: str) -> int | None:
    """The program's exit code; negative is the signal that ended it."""
    process = processes.Process(target=program.run_armed, args=(place, epoch, gate, kind))
    process.start()
    process.join(120)
    return process.exitcode


@pytest.mark.parametrize(
    ("store", "gate", "passing"), [(*c, n) for c, n in CHAINS.items() if c[0] in STORES], indirect=["store"]
)
def test_killed_at_a_gate_again_and_again(
    processes: BaseContext, gate: str, passing: int, store: Store, sink: Sink, tmp_path: Path
) -> None:
    killed_until_it_ends(processes, crashing, store, f"{gate}:{passing}", tmp_path)
    assert content(sink.target(ORDERS.id)) == in_order(crashing.EXPECTED)


@pytest.mark.parametrize("store", ["local"], indirect=True)
@pytest.mark.parametrize(("kind", "gate", "passing"), of_iceberg(CHAINS, "entry-written"))
def test_an_iceberg_sync_killed_at_a_gate_again_and_again(
    processes: BaseContext, kind: str, gate: str, passing: int, store: Store, tmp_path: Path
) -> None:
    killed_until_it_ends(processes, crashing, store, f"{gate}:{passing}", tmp_path, kind)
    assert content(sink_of(kind, store).target(ORDERS.id)) == in_order(crashing.EXPECTED)


@pytest.mark.parametrize("store", ["local"], indirect=True)
@pytest.mark.parametrize(("kind", "gate", "passing"), of_iceberg(STEP_CHAINS, ""))
def test_an_iceberg_sync_killed_in_a_step_again_and_again(
    processes: BaseContext, kind: str, gate: str, passing: int, store: Store, tmp_path: Path
) -> None:
    killed_until_it_ends(processes, stepping, store, f"{gate}:{passing}", tmp_path, kind)
    sink = sink_of(kind, store)
    assert content(sink.target(ORDERS.id)) == in_order(stepping.EXPECTED)
    assert content(sink.target(stepping.OTHER.id)) == []


@pytest.mark.parametrize(
    ("store", "gate", "passing"), [(*c, n) for c, n in STEP_CHAINS.items() if c[0] in STORES], indirect=["store"]
)
def test_killed_in_a_step_again_and_again(
    processes: BaseContext, gate: str, passing: int, store: Store, sink: Sink, tmp_path: Path
) -> None:
    """A step is made whole or not at all, and once."""
    killed_until_it_ends(processes, stepping, store, f"{gate}:{passing}", tmp_path)
    assert content(sink.target(ORDERS.id)) == in_order(stepping.EXPECTED)
    assert content(sink.target(stepping.OTHER.id)) == []


@pytest.mark.long
@pytest.mark.parametrize(("sink", "store", "program", "gate"), of_databases(), indirect=["sink", "store"])
def test_a_sync_into_a_database_killed_at_a_gate_again_and_again(
    processes: BaseContext, program: ModuleType, gate: str, sink: SqlSink, store: object, tmp_path: Path
) -> None:
    place: Any = sink.dialect
    killed_until_it_ends(processes, program, place, f"{gate}:{SQL_CHAINS[gate]}", tmp_path, least=1)
    assert content(sink.target(ORDERS.id)) == in_order(program.EXPECTED)


def killed_until_it_ends(
    processes: BaseContext,
    program: ModuleType,
    place: Place,
    gate: str,
    folder: Path,
    kind: str = "delta",
    least: int = 2,
) -> None:
    """Run after run is killed a little further than the one before, `least` times or more, until
    one ends by itself."""
    codes: list[int | None] = []
    while len(codes) < 20 and 0 not in codes:
        once = folder / f"once-{len(codes)}"
        codes.append(run(processes, program, place, len(codes) + 1, f"{gate}:kill:{once}", kind))
    assert codes[-1] == 0
    assert codes[:-1] == [-signal.SIGKILL] * (len(codes) - 1)
    assert len(codes) > least


@pytest.mark.parametrize("program", [crashing, stepping], ids=["rows", "steps"])
def test_an_undisturbed_run_and_one_more(sink: Sink, program: ModuleType) -> None:
    for epoch in (1, 2):
        program.run(sink, epoch)
        assert content(sink.target(ORDERS.id)) == in_order(program.EXPECTED)
