"""Whatever happens to a sync, in whatever order: once it is quiet, every table streams that can,
and the status shows it.

`decide` is driven through histories of a simulated cluster: drivers that report and do what the
real ones do, targets with the state that commits carry, and a binlog. Tables are created and
dropped, the resource is changed, drivers die or are refused, reports are late, controllers and even
the status are lost. Meanwhile no table is called consistent that no run captures, nothing is
started again without a pause, and nothing stalls that goes on by itself; afterwards all is as the
resource asks (rules R4, R5).
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from unit.controller.cluster_histories import BACKOFF, happen, histories, initial_spec
from unit.controller.simulated_cluster import SimulatedCluster


@settings(max_examples=300 if "CDCSYNC_NEW_EXAMPLES" in os.environ else 150)
@given(histories(), st.booleans(), st.booleans())
def test_whatever_happens_all_is_well_when_it_is_quiet(
    history: list[tuple[str, Any]], acts: bool, resnapshots: bool
) -> None:
    """`acts`: a person asks for a restart at last, so that nothing may stay failed that could go
    on. `resnapshots`: what a resnapshot fixes is resnapshotted without being asked for."""
    live(history, acts=acts, resnapshots=resnapshots)


def live(history: list[tuple[str, Any]], *, acts: bool, resnapshots: bool = False) -> None:
    """A history and its end."""
    cluster = SimulatedCluster(spec=initial_spec(resnapshots=resnapshots))
    for event, what in history:
        happen(cluster, event, what)
    cluster.errors = ()
    if acts or cluster.spec["state"] == "paused":
        cluster.change(restartNonce=99, state="running", autoRestart={"backoff": BACKOFF})
    cluster.settle()
