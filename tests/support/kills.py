"""Interruptions of a sync that runs: at a named crash point, or at a random moment."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Literal

from support.sync_process import Gate, Part, Sync, Until

Aftermath = Literal["power-cut", "controller", "recovers"]
PARTS: tuple[Part, ...] = ("controller", "driver", "jvm", "worker", "reader")
#: how often a run is brought to its end until its last gate fires
_ENDS = 5


@dataclass(frozen=True)
class Interruption:
    """One interruption: at the `count`-th passing of a gate, or (`part`) a kill at a random moment.

    What follows: everything is killed (`power-cut`), the controller only, whose driver then drains
    or lingers (`controller`), or the controller starts a new driver and is killed a while later
    (`recovers`). `forget` deletes the state folder.
    """

    gate: str = ""
    count: int = 1
    part: Part | None = None
    then: Aftermath = "power-cut"
    forget: bool = False

    def __str__(self) -> str:
        return f"{self.gate or f'random {self.part}'}{' and the state is lost' if self.forget else ''}"


@dataclass
class Injector:
    """Injects faults into `sync`; `random` chooses the moments, `kills` counts the faults."""

    sync: Sync
    random: Random

    def __post_init__(self) -> None:
        self.kills: Counter[str] = Counter()

    def inject(self, fault: Interruption, until: Until, *, at_work: Part = "reader") -> None:
        """A random moment counts from when there is a process `at_work`."""
        self.sync.start(until, Gate(fault.gate, fault.count) if fault.gate else None)
        if fault.part:
            self._kill_some_time(fault.part, at_work)
        else:
            self._await_fired(until, Gate(fault.gate, fault.count))
        self.kills[str(fault)] += 1
        self._follow_up(fault)
        if fault.forget:
            self.sync.kill_all()
            shutil.rmtree(self.sync.state_dir)

    def _await_fired(self, until: Until, gate: Gate) -> None:
        """A driver that takes too long to drain is killed before its last gate; then the end comes
        once more."""
        for _ in range(_ENDS):
            self.sync.wait_until(lambda: self.sync.fired or not self.sync.running, "the gate fires")
            if self.sync.fired or self.sync.wait() != 0:
                break
            self.sync.start(until, gate)
        self.sync.wait_fired()

    def _kill_some_time(self, part: Part, at_work: Part) -> None:
        """The first moment counts when the phase's work is under way."""
        self.sync.wait_part(at_work)
        time.sleep(self.random.uniform(0, 3))
        self.sync.wait_until(lambda: self.sync.kill(part), f"a {part} to kill")

    def _follow_up(self, fault: Interruption) -> None:
        if fault.then == "recovers" and self.sync.running:
            self.sync.wait_part("jvm")
            time.sleep(self.random.uniform(0, 4))
        if fault.then == "power-cut":
            self.sync.kill_all()
        else:
            self.sync.kill("controller")
