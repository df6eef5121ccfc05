"""Correctness under fire: whatever is written meanwhile and whatever is killed, the copy ends equal
to the source (promises 1 and 3).

A round: sixteen writers write to ten tables of eight kinds of keys; a sync copies them; fault after
fault a process of it is killed, at a named crash point or at a random moment, and the same command
is run again. Then the writers stop, the command runs to its end, and every table must equal its
source row for row and value for value. What the writers themselves recorded of the counter walk is
compared as well.

Each variant has a plan of faults of its own, so that all crash points are hit in one short run over
all variants (`make test-all`) (`test_every_crash_point_is_in_a_plan`). CDCSYNC_STRESS_SECONDS=600
goes on with random plans until the time is over; a round prints its seed, and CDCSYNC_STRESS_SEED
repeats it.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from support.crash_points import (
    CRASH_POINTS,
    PASSED_ELSEWHERE,
    PLANS,
    STEP_PLANS,
    TOPIC_PLANS,
    TOPIC_POINTS,
    Plan,
)
from support.servers import VARIANTS, Server
from support.stress_round import SECONDS, SEED, StressRound, plans

#: the server that every run of the tests takes; `make test-all` takes all
OFTEN = ("mariadb1011",)


def test_every_crash_point_is_in_a_plan() -> None:
    program = Path(__file__).parents[2]
    named = {
        name
        for folder in ("core", "operator", "spark_app")
        for file in (program / folder).rglob("*.py")
        if "cluster" not in file.relative_to(program).parts  # those: tests/kube/test_crashes.py
        for name in re.findall(r'\bgate\("([a-z-]+)"\)', file.read_text(encoding="utf-8"))
    }
    assert named - PASSED_ELSEWHERE == {*CRASH_POINTS, *TOPIC_POINTS}
    assert _planned(*PLANS.values(), *STEP_PLANS.values()) == set(CRASH_POINTS)
    assert _planned(*TOPIC_PLANS.values()) == set(TOPIC_POINTS)


def _planned(*plans: Plan) -> set[str]:
    return {fault.gate for plan in plans for faults in plan.values() for fault in faults if fault.gate}


@pytest.mark.spark
@pytest.mark.timeout(SECONDS + 1800)
@pytest.mark.parametrize("variant", [pytest.param(v, marks=[] if v in OFTEN else pytest.mark.long) for v in PLANS])
def test_the_copy_is_right_after_any_crash(variant: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """`Round.run` compares source and target at its end."""
    server: Server = request.getfixturevalue(variant)
    deadline = time.monotonic() + SECONDS
    for number, plan in enumerate(plans(variant, PLANS[variant], CRASH_POINTS)):
        began = time.monotonic()
        database = server.create_database()
        StressRound(server, database, plan, SEED + number, tmp_path / str(number)).run()
        server.drop_database(database)
        shutil.rmtree(tmp_path / str(number))
        if time.monotonic() + (time.monotonic() - began) > deadline:
            return


def test_the_variants_are_servers() -> None:
    assert set(PLANS) <= set(VARIANTS)
