"""A round of writes and kills, and the plans of kills."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

from support.compare import TargetDifference, compare, diagnose_walk, source_rows
from support.crash_points import (
    Phase,
    Plan,
)
from support.evidence import history
from support.kills import PARTS, Aftermath, Injector, Interruption
from support.servers import Server
from support.sync_process import Sync, Until
from support.workload import Pace, Workload
from support.workload_tables import KEYS, WALK

SECONDS = float(os.environ.get("CDCSYNC_STRESS_SECONDS", "20"))
SEED = int(os.environ.get("CDCSYNC_STRESS_SEED", "1"))
PACE = Pace(int(os.environ.get("CDCSYNC_STRESS_ROWS", "100000")), writers=16, per_second=160)
#: a dozen waves: enough commits to be hit
SPEC = {"snapshot": {"chunkSize": 2500, "parallelism": 2}}
AGAIN = "by_name"


def plans(variant: str, own: Plan, points: Mapping[str, Sequence[Phase]]) -> Iterator[Plan]:
    """The variant's own plan, then random ones of `points`."""
    if SEED == 1:
        yield own
    random = Random(f"{variant}/{SEED}")
    while True:
        yield {p: tuple(_random_fault(random, p, points) for _ in range(random.randrange(3))) for p in _PHASES}


_PHASES: tuple[Phase, ...] = ("snapshot", "stream", "again", "end")


def _random_fault(random: Random, phase: Phase, points: Mapping[str, Sequence[Phase]]) -> Interruption:
    then: Aftermath = random.choice(("power-cut", "controller", "recovers"))
    forget = random.random() < 0.2
    gates = [name for name, phases in points.items() if phase in phases]
    if phase != "end" and random.random() < 0.4:
        return Interruption(part=random.choice(PARTS), then=then, forget=forget)
    several = phase in ("snapshot", "stream")
    return Interruption(random.choice(gates), random.randrange(1, 4) if several else 1, then=then, forget=forget)


class StressRound:
    """One round in `database` of `server`, whose files are in `folder`, for at least `seconds`."""

    name, spec = "stress", SPEC

    def __init__(
        self,
        server: Server,
        database: str,
        plan: Plan,
        seed: int,
        folder: Path,
        pace: Pace = PACE,
        seconds: float = SECONDS,
    ) -> None:
        self.server, self.database, self.plan, self.folder = server, database, plan, folder
        self.random, self.seconds = Random(seed), seconds
        self.workload = Workload(server, database, seed, pace)
        self.sync = Sync(server, [rf"{database}\..*"], folder, name=self.name, spec=self.spec)
        self.injector = Injector(self.sync, self.random)
        print(f"\n{server.variant}, seed {seed}: {database} in {folder}")

    def run(self) -> None:
        self.workload.prepare()
        began = time.monotonic()
        with self.sync:
            with self.workload:
                self._inject_all("snapshot")
                self._begin_stream()
                self._inject_all("stream")
                self._resnapshot()
                self.workload.wait(self.seconds - (time.monotonic() - began))
            self._inject_all("end", until="caught-up")
            self.sync.run_to_completion()
            fired = ", ".join(f"{fault} {n}" for fault, n in self.injector.kills.items())
            print(f"  {time.monotonic() - began:.0f} s; kills: {fired}; {dict(self.workload.counts())}")
            self._check()

    def _begin_stream(self) -> None:
        """What the faults of the stream need."""

    # -- faults

    def _inject_all(self, phase: Phase, until: Until = "forever") -> None:
        for fault in self.plan.get(phase, ()):
            self._inject(fault, phase, until)

    def _resnapshot(self) -> None:
        """A table is resnapshotted while the stream goes on, and handed over (R5), with a new nonce
        for each fault."""
        for nonce, fault in enumerate(self.plan.get("again", ()), start=1):
            self.sync.write_manifest(resnapshot=[{"table": f"{self.database}.{AGAIN}", "nonce": nonce}])
            self._inject(fault, "again", "forever")

    def _inject(self, fault: Interruption, phase: Phase, until: Until) -> None:
        self.injector.inject(fault, until, at_work="worker" if phase == "snapshot" else "reader")

    # -- the verdict

    def _check(self) -> None:
        wrong = [difference for table in self.workload.tables if (difference := self._compare(table))]
        target = self.sync.target(f"{self.database}.{WALK}")
        walks = self._walks(dict(zip(target["id"].to_pylist(), target["counter"].to_pylist(), strict=True)))
        assert not wrong, "\n".join(["the copy differs", *map(str, wrong), *walks[:20], *self._evidence(wrong)])
        assert not walks, "\n".join(["source and target agree, but not with what was committed", *walks[:20]])

    def _walks(self, counters: dict[int, int]) -> list[str]:
        return diagnose_walk(self.workload.walked(), counters)

    def _compare(self, table: str) -> TargetDifference:
        target = self.sync.target(f"{self.database}.{table}")
        return compare(table, source_rows(self.server, self.database, table, target.schema), target, KEYS[table])

    def _evidence(self, wrong: list[TargetDifference]) -> Iterator[str]:
        for difference in wrong:
            keys = [*difference.missing[:1], *difference.extra[:1], *difference.repeated[:1]]
            keys += [key for key, _, _, _ in difference.changed[:1]]
            for key in keys:
                yield f"{difference.table} {key}:"
                named = dict(zip(KEYS[difference.table], key, strict=True))
                yield from (f"  {line}" for line in history(self.sync, f"{self.database}.{difference.table}", named))
