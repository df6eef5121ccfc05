"""Schema changes under fire: whatever DDL runs on tables that are written, and whatever is killed
meanwhile, the copy ends equal to the source, in its columns, their types and every value.

A round is one of `stress_round`, on tables of its own: sixteen writers, and after the faults of the
first snapshot a change of a schema every few seconds, drawn by the seed from all classes that are
followed, and on some tables from those that are resnapshotted. A table that was resnapshotted too
often waits for the user, who asks for it at the end. CDCSYNC_STRESS_SEED repeats a round, another
one than 1 has a random plan.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

import pytest

from cdcsync_core.runs.run import TablePhase
from cdcsync_core.tables.source_table import TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_spark.rows.arrow_types import arrow_schema
from support.changing_tables import CHANGING, read_now
from support.changing_workload import ChangingPace, ChangingWorkload
from support.compare import compare, source_rows
from support.crash_points import CRASH_POINTS, SHORT_STEP_PLAN, STEP_PLANS, Phase, Plan
from support.kills import PARTS, Injector, Interruption
from support.row_metadata import least_metadata
from support.servers import Server
from support.sync_process import Sync

SECONDS = float(os.environ.get("CDCSYNC_STRESS_SECONDS", "20"))
SEED = int(os.environ.get("CDCSYNC_STRESS_SEED", "1"))
PACE = ChangingPace(rows=1000, writers=16, per_second=100, ddl_seconds=3.0)
SHORT_PACE = ChangingPace(rows=300, writers=8, per_second=50, ddl_seconds=0.7)
SPEC = {
    "snapshot": {"chunkSize": 300, "parallelism": 2},
    "schemaChange": {"behavior": "evolve", "droppedColumns": "drop"},
}
_PHASES: tuple[Phase, ...] = ("snapshot", "steps", "again")
#: how often the user asks at the end for what waits
_REQUESTS = 4


@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_short_round_on_one_server(mariadb1011: Server, tmp_path: Path) -> None:
    """Changes that are followed and one kill: what every run of the tests can afford."""
    database = mariadb1011.create_database()
    SchemaRound(mariadb1011, database, SHORT_STEP_PLAN, SEED, tmp_path, SHORT_PACE, harsh_changes=0).run(0, changes=8)
    mariadb1011.drop_database(database)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(SECONDS + 1800)
@pytest.mark.parametrize("variant", STEP_PLANS)
def test_the_copy_is_right_after_any_change(variant: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    server: Server = request.getfixturevalue(variant)
    database = server.create_database()
    plan = STEP_PLANS[variant] if SEED == 1 else _random_plan(Random(f"{variant}/{SEED}"))
    SchemaRound(server, database, plan, SEED, tmp_path).run(SECONDS, changes=20)
    server.drop_database(database)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(SECONDS + 1800)
@pytest.mark.parametrize("variant", ["mariadb1011", "mysql97_gtid"])
def test_the_copy_is_right_where_rows_do_not_name_their_columns(
    variant: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(variant)
    database = server.create_database()
    with least_metadata(server):
        SchemaRound(server, database, SHORT_STEP_PLAN, SEED, tmp_path, SHORT_PACE).run(SECONDS, changes=20)
    server.drop_database(database)


def _random_plan(random: Random) -> Plan:
    return {phase: tuple(_random_fault(random, phase) for _ in range(random.randrange(3))) for phase in _PHASES}


def _random_fault(random: Random, phase: Phase) -> Interruption:
    """Failpoints that changes pass, and what any stream passes."""
    then = random.choice(("power-cut", "controller", "recovers"))
    phases = ("steps", "stream") if phase == "steps" else (phase,)
    gates = [name for name, found in CRASH_POINTS.items() if set(phases) & set(found)]
    if phase != "again" and random.random() < 0.3:
        return Interruption(part=random.choice(PARTS), then=then, forget=random.random() < 0.2)
    return Interruption(random.choice(gates), random.randrange(1, 4) if phase != "again" else 1, then=then)


class SchemaRound:
    """One round in `database` of `server`, whose files are in `folder`."""

    def __init__(
        self,
        server: Server,
        database: str,
        plan: Plan,
        seed: int,
        folder: Path,
        pace: ChangingPace = PACE,
        harsh_changes: int = 2,
    ) -> None:
        self.server, self.database, self.plan = server, database, plan
        self.workload = ChangingWorkload(server, database, seed, pace, harsh_changes, self._flows)
        self.sync = Sync(server, [rf"{database}\.c_.*"], folder, name="changes", spec=SPEC)
        self.injector = Injector(self.sync, Random(seed))
        print(f"\n{server.variant}, seed {seed}: {database} in {folder}")

    def _flows(self, table: str) -> bool:
        """Not where the state was just deleted."""
        try:
            entries = self.sync.status().get("tableStatus", [])
        except FileNotFoundError:
            return False
        return any(t["name"] == f"{self.database}.{table}" and t["phase"] == TablePhase.STREAMING for t in entries)

    def run(self, seconds: float, changes: int) -> None:
        """At least so long, and until so many statements were accepted."""
        self.workload.prepare()
        began = time.monotonic()
        with self.sync:
            with self.workload:
                self._inject_all("snapshot")
                self.sync.run_to_completion("snapshot")
                self.workload.begin_changes()
                self._inject_all("steps")
                self._inject_all("again")
                self.workload.wait_accepted(changes)
                self.workload.wait(seconds - (time.monotonic() - began))
            requests = self._finish()
            print(f"  {time.monotonic() - began:.0f} s; kills: {dict(self.injector.kills)}; requests: {requests}")
            print(f"  resnapshots: {self._resnapshots()}")
            print(f"  {dict(sorted(self.workload.counts().items()))}")
            self._check()

    def _inject_all(self, phase: Phase) -> None:
        """What decides a resnapshot needs a change that cannot be followed, and one that is to be
        published, a definition that stays meanwhile."""
        for fault in self.plan.get(phase, ()):
            if phase == "again" or fault.gate == "resnapshot-decided":
                self.workload.need_harsh(then_rest=phase == "again")
            self.injector.inject(fault, "forever", at_work="worker" if phase == "snapshot" else "reader")
            if phase == "again":
                self.workload.begin_changes()

    def _finish(self) -> list[str]:
        """Until all tables are caught up. Tables that wait for the user are asked for."""
        asked: list[str] = []
        for nonce in range(1, _REQUESTS):
            self.sync.start("caught-up")
            code = self.sync.wait()
            waiting = [t for t in self.sync.status()["tableStatus"] if t["phase"] == TablePhase.FAILED]
            if not waiting:
                assert code == 0, f"exit code {code}\n{self.sync.logs()}"
                return asked
            assert {t["reason"] for t in waiting} == {"SchemaChangePending"}, waiting
            asked += [t["name"] for t in waiting]
            self.sync.write_manifest(resnapshot=[{"table": t, "nonce": nonce} for t in sorted(set(asked))])
        raise AssertionError(f"tables still wait for the user: {waiting}")

    def _resnapshots(self) -> list[str]:
        """The last resnapshot of each table, and why."""
        decided = ((t["name"], t["resnapshot"]) for t in self.sync.status()["tableStatus"] if t["resnapshot"])
        return [f"{name} {found['generation']}: {found['message'][:300]}" for name, found in decided]

    # -- the verdict

    def _check(self) -> None:
        wrong = [found for table in CHANGING for found in self._differences(table.name)]
        assert not wrong, "\n".join(["the copy differs", *wrong, *self.workload.accepted])

    def _differences(self, name: str) -> list[str]:
        target = self.sync.target(f"{self.database}.{name}")
        with self.server.connect(db=self.database) as connection, connection.cursor() as cursor:
            now = read_now(cursor, next(t for t in CHANGING if t.name == name))
            definition = read_table(connection, TableId(self.database, name))
        assert now is not None
        wanted = arrow_schema(TargetSchema.of(definition))
        if [(f.name, f.type) for f in target.schema] != [(f.name, f.type) for f in wanted]:
            return [f"{name} has the columns {target.schema}, not {wanted}"]
        found = compare(name, source_rows(self.server, self.database, name, target.schema), target, now.key)
        return [str(found)] if found else []
