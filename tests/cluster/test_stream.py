"""A stream on the node while its pods, the operator and the API server go, and while its spec
changes: each change has its effect and no other, and the copy stays equal."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from cdcsync_core.runs.status import Status
from cdcsync_core.timestamps import utc
from cdcsync_kube.client import ApiError, Object
from support.node import CHART, OPERATOR, SECRET_KEY, SYSTEM, Node, ready, wait_until
from support.node_sync import DRIVER, PASSWORD, NodeSync
from support.workload_tables import JOURNAL, WALK

pytestmark = pytest.mark.timeout(600)


@pytest.mark.long
def test_drivers_are_evicted_and_killed_while_it_flows(node: Node, shop: NodeSync) -> None:
    with shop.workload.__class__(shop.server, shop.database, seed=8, pace=shop.workload.pace) as writers:
        kept = shop.driver()
        node.kill_operator()
        writers.wait(5)
        assert shop.driver() == kept, "the driver does not care for the operator"
        node.evict(shop.name, kept)
        shop.until(lambda s: s.runs.stream and s.runs.stream.pod != kept, 120, "a new driver after an eviction")
        shop.flows()
        evicted = shop.driver()
        node.kill(shop.name, evicted)
        shop.until(lambda s: s.runs.stream and s.runs.stream.pod != evicted, 120, "a new driver after a kill")
        shop.flows()
        last = shop.driver()
        node.kill(shop.name, last)
        node.kill_operator()
        shop.until(lambda s: s.runs.stream and s.runs.stream.pod != last, 120, "a new driver after all were killed")
        shop.flows()
    shop.arrives()
    assert shop.pods(DRIVER) == [shop.driver()]


def _too_large() -> Object:
    """A container by which a podTemplate has more than 64 KiB, which the API server cannot add
    up."""
    strict = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    variables = [{"name": "TZ", "value": "x" * 1024}] * 64
    return {"name": "large", "image": "localhost/none", "env": variables, "securityContext": strict}


def test_nothing_that_does_not_concern_the_stream_touches_it(node: Node, shop: NodeSync) -> None:
    """An upgrade of the chart, changes of other runs' settings, refused specs."""
    before = shop.driver()
    node.helm("upgrade", "cdcsync", str(CHART), "-n", SYSTEM, "--reuse-values", "--set", "podAnnotations.upgraded=yes")
    wait_until(
        lambda: [p for p in node.pods(SYSTEM, OPERATOR) if ready(p) and p["metadata"].get("annotations")],
        120,
        "the upgraded operator is ready",
    )
    shop.change(
        executors={"instances": 7}, snapshot={"maxSplitSeconds": 50}, autoRestart={"backoff": {"initial": "2s"}}
    )
    shop.observed()
    with pytest.raises(ApiError, match="path"):
        shop.change(sink={"delta": {"path": "s3://lake/elsewhere"}})
    with pytest.raises(ApiError, match=r"podTemplate.spec.nodeName is refused"):
        shop.change(driver={"podTemplate": {"spec": {"nodeName": "elsewhere"}}})
    shop.change(driver={"podTemplate": {"spec": {"initContainers": [_too_large()]}}})
    shop.until(lambda s: s.condition("Stalled").status == "True", 180, "what the policy refuses is reported")
    shop.change(driver={"podTemplate": {"spec": {"initContainers": None}}})
    shop.observed()
    shop.server.run(f"UPDATE {WALK} SET counter = counter + 100", db=shop.database)
    shop.flows()
    shop.arrives()
    assert shop.driver() == before


def test_a_driver_that_runs_learns_of_a_node_that_joins(node: Node, shop: NodeSync) -> None:
    """The kubelet shows it an annotation of its pod as a file."""
    shop.until(lambda s: s.runs.stream and s.runs.stream.pod in shop.pods(DRIVER), 480, "its stream's driver runs")
    before, path = shop.driver(), "/api/v1/nodes/joined"

    def shown() -> str:
        return node.kubectl(
            "-n", shop.name, "exec", before, "-c", "driver", "--", "cat", "/etc/cdcsync/networks/refused"
        )

    wait_until(shown, 120, "it knows the ranges of pods and Services", shop.describe)
    body: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "joined"}}
    node.api.create("/api/v1/nodes", body | {"spec": {"podCIDRs": ["198.51.100.0/24"]}})
    try:
        wait_until(lambda: "198.51.100.0/24" in shown(), 300, "it knows that of the new node", shop.describe)
    finally:
        node.api.delete(path)
    assert shop.driver() == before


def test_the_api_server_is_killed_and_comes_back(own_node: Node, shop: NodeSync) -> None:
    before = shop.driver()
    shop.server.run(f"UPDATE {WALK} SET counter = counter + 100", db=shop.database)
    own_node.restart_api_server()
    shop.flows()
    shop.arrives()
    assert shop.driver() == before


def test_metrics_of_operator_and_driver_are_served(node: Node, shop: NodeSync) -> None:
    """After the chapter before the operator may have lost its lease, and start again."""
    mine = f'name="{shop.name}",namespace="{shop.name}"'
    wanted = (
        (SYSTEM, OPERATOR, 8080, f"cdcsync_ready{{{mine}}} 1.0\n"),
        (shop.name, DRIVER, 8090, f'tables{{kind="stream",{mine},phase="Streaming"}} {len(shop.workload.tables)}.0\n'),
    )

    def page(namespace: str, selector: str, port: int) -> str:
        try:
            return "".join(node.page(pod, port) for pod in node.pods(namespace, selector) if ready(pod))
        except OSError as error:
            return str(error)

    for namespace, selector, port, line in wanted:
        wait_until(
            lambda at=(namespace, selector, port), line=line: line in page(*at),
            120,
            f"{line!r} is served",
            lambda at=(namespace, selector, port): page(*at),
        )


@pytest.mark.long
def test_a_table_is_added_and_removed_and_another_one_read_again(shop: NodeSync) -> None:
    """R5: the others keep flowing."""
    shop.server.run(
        "CREATE TABLE added (id INT PRIMARY KEY, word TEXT)", "INSERT INTO added VALUES (1, 'a')", db=shop.database
    )
    shop.change(resnapshot=[{"table": f"{shop.database}.{WALK}", "nonce": 1}])
    names = {f"{shop.database}.added": 0, f"{shop.database}.{WALK}": 1}

    def taken_in(status: Status) -> bool:
        entries = [t for n in names if (t := status.table(n))]
        return len(entries) == 2 and all(t.phase == "Streaming" and t.nonce >= names[t.name] for t in entries)

    shop.until(taken_in, 400, "the added and the resnapshotted table flow")
    shop.server.run("INSERT INTO added VALUES (2, 'b')", db=shop.database)
    wait_until(lambda: shop.target("added").num_rows == 2, 60, "the added table flows", shop.describe)
    shop.arrives()
    added = f"{shop.database}.added"
    shop.change(tables={"exclude": [added.replace(".", r"\.")]})
    shop.until(lambda s: not (t := s.table(added)) or t.phase == "Unassigned", 120, "the removed table has left")
    shop.flows()
    shop.server.run("INSERT INTO added VALUES (3, 'c')", f"DELETE FROM {WALK} WHERE id % 7 = 0", db=shop.database)
    shop.arrives()
    assert shop.target("added").num_rows == 2, "it stays as it was"


@pytest.mark.long
def test_a_nonce_starts_it_again_and_a_pause_keeps_it_from_it(shop: NodeSync) -> None:
    before = shop.driver()
    shop.change(restartNonce=1, stream={"interval": "500ms"})
    shop.until(lambda s: s.runs.stream and s.runs.stream.pod != before, 120, "a new driver after a nonce")
    shop.flows()
    shop.change(state="paused")
    status = shop.until(lambda s: s.phase == "Paused", 120, "it is paused")
    assert status.restarts.consecutive == 0
    wait_until(lambda: not shop.pods(DRIVER), 60, "the driver is gone", shop.describe)
    shop.server.run(f"DELETE FROM {WALK} WHERE id % 2 = 0", db=shop.database)
    shop.change(state="running")
    shop.flows()
    shop.arrives()


@pytest.mark.long
def test_the_drivers_node_falls_silent_and_answers_again(own_node: Node, shop: NodeSync) -> None:
    """R8: the driver is given up while it goes on, unseen; its node ends it when it answers again,
    and the successor takes over."""
    soon = {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 5,
    }
    before = shop.driver()
    shop.change(driver={"podTemplate": {"spec": {"tolerations": [soon]}}})
    shop.until(lambda s: s.runs.stream and s.runs.stream.pod != before, 120, "a new driver after its template")
    shop.flows()
    lost = shop.driver()
    with shop.workload.__class__(shop.server, shop.database, seed=9, pace=shop.workload.pace):
        with own_node.silent():
            status = shop.until(lambda s: s.restarts.reason == "DriverLost", 300, "the driver is given up")
            assert "its node does not answer" in status.condition("Ready").message
        shop.until(lambda s: s.runs.stream and s.runs.stream.pod != lost, 120, "a new driver")
        shop.flows()
    shop.arrives()
    assert shop.pods(DRIVER) == [shop.driver()]


@pytest.mark.long
@pytest.mark.usefixtures("topic_sync")
def test_a_schedule_holds_no_pod_between_its_times(shop: NodeSync) -> None:
    """It ends the stream once that has caught up; what is written then is copied at its time, by a
    pod that ends; without it the stream flows again. A sync to topics starts meanwhile, because
    this one mostly waits."""
    shop.change(stream={"schedule": {"cron": "0 0 29 2 *"}})
    shop.until(lambda s: s.phase == "Waiting" and not shop.left(kept=False), 240, "nothing of a run is left")
    shop.arrives()
    shop.server.run(f"INSERT INTO {JOURNAL} (writer) VALUES (1)", db=shop.database)
    at = datetime.fromtimestamp((time.time() // 60 + 2) * 60, UTC)
    shop.change(stream={"schedule": {"cron": f"{at.minute} {at.hour} {at.day} {at.month} *"}})
    status = shop.until(lambda s: s.schedule and s.schedule.next_time == utc(at.timestamp()), 90, "the time is known")
    assert (status.phase, status.condition("Ready").status, shop.left(kept=False)) == ("Waiting", "True", [])
    assert next(shop.differences(), None), "nothing is copied before the time"
    shop.until(lambda s: s.phase != "Waiting" and shop.pods(DRIVER), 240, "a pod at the time")
    shop.until(lambda s: s.phase == "Waiting" and not shop.left(kept=False), 240, "nothing of a run is left")
    assert not next(shop.differences(), None), "the copy is equal"
    shop.change(stream={"schedule": None})
    shop.flows()


def test_no_secret_in_logs_or_objects(shop: NodeSync) -> None:
    kinds = "all,configmaps,cdcsyncs,events"
    for text in (shop.describe(), shop.node.kubectl("-n", shop.name, "get", kinds, "-o", "yaml")):
        assert PASSWORD not in text
        assert SECRET_KEY not in text
