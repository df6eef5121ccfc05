"""Histories of a simulated cluster: tables are created and dropped, the resource is changed,
drivers die or are refused, reports are late, controllers and even the status are lost."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import ExitCode, RunKind
from unit.controller.simulated_cluster import CATCH_UP, LATER, NAMES, SNAPSHOT, STREAM, SimulatedCluster
from unit.controller.simulated_drivers import SimulatedDriver

RUN = st.sampled_from([STREAM, SNAPSHOT, CATCH_UP])
TABLE = st.sampled_from(["shop.b", *NAMES])
NOTHING = st.just(0)
WORK = st.one_of(st.tuples(st.just("calm"), st.integers(1, 3)), st.tuples(st.just("step"), RUN))
EVENTS = {
    "reconcile": st.sampled_from([1, 5, 40, 100]),
    "slow preflight": st.sampled_from([1, 5, 40]),
    "hold step": RUN,
    "hold reports": RUN,
    "hold end": RUN,
    "let go": RUN,
    "die": RUN,
    "permanent": RUN,
    "evict": RUN,
    "busy": TABLE,
    "make": st.sampled_from([LATER, "shop.b"]),
    "drop": st.sampled_from([LATER, "shop.b"]),
    "ddl": TABLE,
    "raise": TABLE,
    "take back": TABLE,
    "table": TABLE,
    "remove": TABLE,
    "change": st.sampled_from(["restartNonce", "interval", "autoRestart", "state", "schemaChange", "onPositionLost"]),
    "source": st.sampled_from(["fit", "away", "unfit"]),
    "purge": NOTHING,
    "restart": NOTHING,
    "crash": st.integers(0, 2),
    "forget status": NOTHING,
}
#: what a history goes on with when it has begun
FIRST = (
    [],
    [("raise", "shop.b")],
    [("table", "shop.c")],
    [("raise", "shop.b"), ("table", "shop.c")],
    [("make", LATER)],
    [("make", LATER), ("raise", LATER)],
)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Few kinds of events, each often, between pieces of work: so events meet that seldom would."""
    kinds = draw(st.lists(st.sampled_from(sorted(EVENTS)), min_size=2, max_size=8, unique=True))
    happens = st.one_of(WORK, WORK, *(st.tuples(st.just(kind), EVENTS[kind]) for kind in kinds))
    begun = [("calm", draw(st.sampled_from([12, 1]))), *draw(st.sampled_from(FIRST))]
    return begun + draw(st.lists(happens, min_size=5, max_size=40))


SOURCE = {
    "fit": (),
    "away": (fail(Reason.SOURCE_UNREACHABLE, "away"),),
    "unfit": (fail(Reason.BINLOG_FORMAT_NOT_ROW, "MIXED"),),
}
BACKOFF = {"initial": "5s", "max": "40s"}


def initial_spec(*, resnapshots: bool) -> dict[str, Any]:
    return {
        "tables": {"include": [r"shop\..*"], "exclude": [r"shop\.c"]},
        "resnapshot": [],
        "restartNonce": 0,
        "state": "running",
        "stream": {"interval": "1s"},
        "autoRestart": {"backoff": BACKOFF},
        "schemaChange": {"behavior": "evolve" if resnapshots else "fail"},
        "onPositionLost": "resnapshot" if resnapshots else "fail",
    }


def happen(cluster: SimulatedCluster, event: str, what: Any) -> None:
    """One event of a history; where there is nothing that it could happen to, nothing does."""
    if event in ("calm", "reconcile", "slow preflight", "crash", "restart", "forget status"):
        _happen_to_operator(cluster, event, what)
    elif isinstance(what, RunKind):
        for driver in [d for d in cluster.live() if d.action.kind is what]:
            _happen_to_driver(cluster, driver, event)
    elif event == "busy":
        cluster.busy ^= {what}
    elif event == "ddl":
        cluster.lake.log.append((what, "ddl"))
    elif event == "make":
        cluster.make(what)
    elif event == "drop":
        cluster.drop(what)
    elif event == "purge":
        cluster.lake.purged = cluster.lake.end
    elif event == "remove":
        cluster.lake.mains.pop(what, None)
    elif event == "source":
        cluster.errors = SOURCE[what]
    else:
        cluster.change(**_changed(cluster, event, what))


def _happen_to_operator(cluster: SimulatedCluster, event: str, what: Any) -> None:
    if event == "calm":
        for _ in range(what):
            cluster.calm()
    elif event == "reconcile":
        cluster.reconcile(what)
    elif event == "slow preflight":
        cluster.reconcile(what, slow=True)
    elif event == "crash":
        cluster.reconcile(1, crash_after=what)
    elif event == "restart":
        cluster.forget_operator()
    else:
        cluster.forget_status()


def _happen_to_driver(cluster: SimulatedCluster, driver: SimulatedDriver, event: str) -> None:
    if event == "step":
        cluster.step(driver)
    elif event.startswith("hold "):
        driver.held_back.add(event.removeprefix("hold "))
    elif event == "let go":
        driver.held_back.clear()
    elif event == "evict":
        driver.evicted = True
    elif event == "die":
        driver.end(ExitCode.RETRY, Reason.OUT_OF_MEMORY.value)
        cluster.finish(driver)
    elif driver.exit is None:
        driver.end(ExitCode.USER_MUST_ACT, Reason.POSITION_LOST.value)


def _changed(cluster: SimulatedCluster, event: str, what: str) -> dict[str, Any]:
    spec = cluster.spec
    nonces = {e["table"]: e["nonce"] for e in spec["resnapshot"]}
    if event in ("raise", "take back"):
        highest = max([*nonces.values(), *(t.nonce for t in cluster.lake.mains.values()), 0])
        nonces = nonces | {what: highest + 1} if event == "raise" else {k: v for k, v in nonces.items() if k != what}
        return {"resnapshot": [{"table": t, "nonce": n} for t, n in sorted(nonces.items())]}
    if event == "table":
        pattern, excluded = what.replace(".", r"\."), spec["tables"]["exclude"]
        excluded = [p for p in excluded if p != pattern] if pattern in excluded else [*excluded, pattern]
        return {"tables": spec["tables"] | {"exclude": [p for p in excluded if p != r"shop\.a"]}}
    if what == "restartNonce":
        return {"restartNonce": spec["restartNonce"] + 1}
    if what == "interval":
        return {"stream": {"interval": "2s" if spec["stream"]["interval"] == "1s" else "1s"}}
    if what == "schemaChange":
        return {"schemaChange": {"behavior": "fail" if spec["schemaChange"]["behavior"] == "evolve" else "evolve"}}
    if what == "onPositionLost":
        return {"onPositionLost": "fail" if spec["onPositionLost"] == "resnapshot" else "resnapshot"}
    if what == "autoRestart":
        return {"autoRestart": {"backoff": BACKOFF, "enabled": not spec["autoRestart"].get("enabled", True)}}
    return {"state": "paused" if spec["state"] == "running" else "running"}
