"""The chart's alerts on a real Prometheus that scrapes the real operator, and a page with all
metrics for the dashboards' queries; and the rules' times, by promtool."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from cdcsync_core.runs.report import TableReport
from cdcsync_core.runs.run import RunKind
from cdcsync_core.runs.status import Phase, Status, with_condition
from cdcsync_core.runs.table_status import TableCounts
from cdcsync_kube.client import Api
from cdcsync_kube.pages import serve
from cdcsync_operator.cluster.controller import KubeController
from cdcsync_operator.cluster.metrics import CONDITIONS, OF_SYNC, Metrics
from support.apiserver import kubeconfig
from support.chart import CHART, rendered
from support.in_process_sync import InProcessSync, place
from support.prometheus import PROMTOOL, Prometheus, prometheus
from support.served_metrics import driver_page, status_of_all_metrics
from support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
MANUAL = "https://manual.example"
VALUES = {"clusterWide": True, "metrics": {"alerts": {"enabled": True, "manualUrl": MANUAL}}}
JOB = "cdc/cdcsync"
#: samples of the operator's page: seven syncs have room in it
ROOM = 10 + 7 * (len(OF_SYNC) + len(Phase) + len(CONDITIONS))


def groups(**values: Any) -> list[dict[str, Any]]:
    (rule,) = [d for d in rendered(VALUES | values) if d["kind"] == "PrometheusRule"]
    return list(rule["spec"]["groups"])


@functools.cache
def rules() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in groups() for rule in group["rules"]}


def at_once() -> dict[str, Any]:
    """The rules as they are, but for the time for which a state must last."""
    found = groups()
    for group in found:
        for rule in group["rules"]:
            del rule["for"]
    return {"groups": found}


def streaming(*conditions: tuple[str, bool, str], **parts: Any) -> Status:
    status = Status(phase=Phase.STREAMING, lag_seconds=0.1, tables=TableCounts(total=1, streaming=1)).with_(**parts)
    for name, value, reason in (("Ready", True, "Streaming"), ("Consistent", True, "Consistent"), *conditions):
        status = with_condition(status, name, value, reason, "", 0.0)
    return status


STATES = {
    ("n", "s"): status_of_all_metrics(),
    ("states", "well"): streaming(),
    ("states", "cascades"): streaming(("Consistent", False, "CascadesNotLogged")),
}
REFUSAL = "no status is written here"
#: of the real operator
EXPECTED = {
    ("CdcSyncBehind", "written"),
    ("CdcSyncFailsInARow", "unreachable"),
    ("CdcSyncSinkWritten", "written"),
    ("CdcSyncNotConsistent", "differing"),
    ("CdcSyncSnapshotStands", "standing"),
    ("CdcSyncOperatorFails", ""),
    ("CdcSyncStalled", "refused"),
    ("CdcSyncNotReady", "unreachable"),
    ("CdcSyncPreflightFails", "unreachable"),
    ("CdcSyncMetricsLeftOut", ""),
}


@contextmanager
def page_of_states() -> Iterator[int]:
    """Its port."""
    page = Metrics(tables_of_sync=1).text(STATES, calls=1, leading=True) + driver_page()
    server = serve(0, {"/metrics": lambda: (200, page)})
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def operator(api: Api, namespaces: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(api)))
    settings = {
        "KUBECONFIG": str(folder / "kubeconfig"),
        "CDCSYNC_DRIVER_IMAGE": "cdcsync/spark:test",
        "CDCSYNC_NAMESPACES": ",".join(namespaces),
        "CDCSYNC_LEASE": f"{namespaces[0]}/cdcsync",
        "CDCSYNC_REFUSED_SOURCE_NETWORKS": "",  # the source is on this machine
        "CDCSYNC_ALLOW_POD_TEMPLATE": "false",
        "CDCSYNC_SAMPLE_LIMIT": str(ROOM),
        "CDCSYNC_METRICS_PORT": "0",
    }
    with (folder / "operator.log").open("wb") as log:
        command = [sys.executable, "-m", "cdcsync_operator.cluster.handlers"]
        process = subprocess.Popen(command, env=os.environ | settings, stderr=log, stdout=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def listening(process: subprocess.Popen[bytes]) -> int:
    """The port of the operator's page; 0 before it listens."""
    connections = psutil.Process(process.pid).net_connections(kind="inet")
    return next((c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN), 0)


@contextmanager
def refused_writes(api: Api, namespace: str, name: str) -> Iterator[None]:
    """Another's policy of the cluster refuses each write of the status of a sync."""
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    group = {"apiGroups": ["cdcsync.io"], "apiVersions": ["v1alpha1"], "resources": ["cdcsyncs/status"]}
    policy = {
        "matchConstraints": {"resourceRules": [group | {"operations": ["UPDATE"], "resourceNames": [name]}]},
        "validations": [{"expression": "false", "message": REFUSAL}],
    }
    spaces = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    bound = {"policyName": namespace, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": spaces}}
    version = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": namespace}}
    with ExitStack() as stack:
        for kind, spec in (("Policy", policy), ("PolicyBinding", bound)):
            path = policies if kind == "Policy" else policies.replace("policies", "policybindings")
            api.create(path, version | {"kind": f"ValidatingAdmission{kind}", "spec": spec})
            stack.callback(api.delete, f"{path}/{namespace}")
        yield


def create_syncs(api: Api, namespace: str) -> None:
    """One that the operator's policy refuses, one whose source is not there, one at rest, and one
    whose status cannot be written."""
    secret: dict[str, Any] = {"metadata": {"name": "login", "labels": {"cdcsync.io/source": "true"}}}
    api.create(f"/api/v1/namespaces/{namespace}/secrets", secret | {"stringData": {"username": "c", "password": "p"}})
    source = {"host": "127.0.0.1", "port": 1, "credentialsSecretRef": {"name": "login"}}
    spec = {"source": source, "tables": {"include": [r"shop\..*"]}, "sink": {"delta": {"path": "s3://lake/cdc"}}}
    further: dict[str, Any] = {
        "refused": {"driver": {"podTemplate": {"spec": {"nodeSelector": {"disk": "fast"}}}}},
        "unreachable": {"autoRestart": {"backoff": {"initial": "100ms", "max": "1s"}}},
        "paused": {"state": "paused"},
        "unwritable": {"state": "paused"},
    }
    for name, more in further.items():
        body = {"apiVersion": "cdcsync.io/v1alpha1", "kind": "CdcSync", "metadata": {"name": name}, "spec": spec | more}
        api.create(f"/apis/cdcsync.io/v1alpha1/namespaces/{namespace}/cdcsyncs", body)


@contextmanager
def taken_over(api: Api, namespace: str) -> Iterator[list[str]]:
    """Their namespaces, each with a sync that an operator before has brought so far: one that is
    being read, and three that stream, of which the page has no room for the last one. Their drivers
    say nothing more."""
    with ExitStack() as stack:
        names = [f"{namespace}-{name}" for name in ("differing", "standing", "written", "zz")]
        for name in names:
            api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            sync = InProcessSync(api, name)
            controller = sync.create().operator()
            stack.callback(controller.close)
            if name.endswith("-standing"):
                begin_snapshot(sync, controller)
                continue
            sync.to_streaming(controller)
            if name.endswith("-zz"):
                continue
            entry: TableReport = {"name": sync.tables[0], "phase": "Streaming", "position": place(300)}
            if name.endswith("-written"):
                entry["written"] = {"version": 7, "program": "x", "operation": "DELETE", "at": "2026-01-01T00:00:00Z"}
            else:
                entry["phase"] = "CatchingUp"
            sync.driver(RunKind.STREAM).report(epoch=2, tables=[entry])
            sync.until(controller, lambda s: s.condition("Consistent").status == "False")
        yield names


def begin_snapshot(sync: InProcessSync, controller: KubeController) -> None:
    sync.until(controller, lambda s: s.runs.snapshot and sync.pods())
    sync.driver(RunKind.SNAPSHOT).report(epoch=1, snapshot={"splitsTotal": 4, "splitsFinished": 1, "rows": 10})
    sync.until(controller, lambda s: s.phase is Phase.SNAPSHOTTING)


def fired(server: Prometheus) -> set[tuple[str, str]]:
    """Alerts and their syncs, of which those that were taken over have a namespace each."""

    def sync_of(labels: dict[str, str]) -> str:
        name = labels.get("name", "")
        return labels["namespace"].rpartition("-")[2] if name == "shop" else name

    return {(a["labels"]["alertname"], sync_of(a["labels"])) for a in server.firing()}


def wait_for_each(server: Prometheus, alerts: set[tuple[str, str]], log: Path) -> None:
    """Each at some time: a state passes where a driver says nothing more."""
    missing = set(alerts)

    def have_fired() -> bool:
        missing.difference_update(fired(server))
        return not missing

    try:
        eventually(have_fired)
    except AssertionError:
        raise AssertionError(f"not fired: {missing}; {log.read_text()}") from None


def test_each_alert_fires_in_its_state_and_each_panel_has_data(api: Api, namespace: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(prometheus(tmp_path, at_once()))
        port = stack.enter_context(page_of_states())
        before = stack.enter_context(taken_over(api, namespace))
        stack.enter_context(refused_writes(api, namespace, "unwritable"))
        server.scrape("states", port)
        eventually(lambda: ("CdcSyncOperatorAbsent", "") in fired(server), tmp_path / "prometheus.log")
        create_syncs(api, namespace)
        process, log = stack.enter_context(operator(api, [namespace, *before], tmp_path)), tmp_path / "operator.log"
        eventually(functools.partial(listening, process), log)
        server.scrape(JOB, listening(process))
        wait_for_each(server, EXPECTED, log)
        eventually(lambda: ("CdcSyncOperatorAbsent", "") not in fired(server), log)
        assert {name for name, _ in EXPECTED} | {"CdcSyncOperatorAbsent"} == rules().keys()
        assert not {name for name, sync in fired(server) if sync in ("well", "cascades", "paused", "zz")}
        check_runbooks(server)
        failures = [line for line in log.read_text().splitlines() if f"{namespace}/unwritable" in line]
        assert any(REFUSAL in line for line in failures), log.read_text()[-3000:]
        eventually(lambda: not empty_panels(server), tmp_path / "prometheus.log")


def check_runbooks(server: Prometheus) -> None:
    """Each leads to a place of the manual, that of a stalled sync to its reason."""
    links = {(a["labels"]["alertname"], a["labels"].get("name", "")): a["annotations"] for a in server.firing()}
    assert links["CdcSyncStalled", "refused"]["runbook_url"] == f"{MANUAL}/reference/reasons.html#SpecInvalid"
    assert "Reason: SpecInvalid." in links["CdcSyncStalled", "refused"]["description"]
    expected = f"{MANUAL}/reference/reasons.html#SourceUnreachable"
    assert links["CdcSyncPreflightFails", "unreachable"]["runbook_url"] == expected
    for notes in links.values():
        page, _, anchor = notes["runbook_url"].removeprefix(f"{MANUAL}/").partition("#")
        text = (ROOT / "docs" / page).with_suffix(".md").read_text()
        assert not anchor or f'<a id="{anchor}">' in text or f"\n## {anchor.capitalize()}\n" in text, notes


def empty_panels(server: Prometheus) -> list[str]:
    """Queries of the dashboards that return nothing."""
    boards = [json.loads(path.read_text()) for path in (CHART / "files" / "dashboards").glob("*.json")]
    queries = [target["expr"] for board in boards for panel in board["panels"] for target in panel["targets"]]
    assert len(queries) > 40
    filled = [q.replace('"$namespace"', '"n"').replace('"$name"', '"s"') for q in queries]
    return [q for q in filled if not server.query(q)]


#: alert -> minutes for which its state must last, and series of that state, a sample a minute
TIMES: dict[str, tuple[int, dict[str, str]]] = {
    "CdcSyncStalled": (1, {"cdcsync_stalled{%s}": "1x120"}),
    "CdcSyncNotReady": (
        10,
        {"cdcsync_ready{%s}": "0x120", "cdcsync_stalled{%s}": "0x120", 'cdcsync_phase{phase="Streaming",%s}': "1x120"},
    ),
    "CdcSyncBehind": (10, {"cdcsync_lag_seconds{%s}": "301x120", 'cdcsync_phase{phase="Paused",%s}': "0x120"}),
    "CdcSyncFailsInARow": (5, {"cdcsync_failures_in_a_row{%s}": "3x120"}),
    "CdcSyncSinkWritten": (1, {'cdcsync_condition{condition="Consistent",reason="SinkWritten",%s}': "0x120"}),
    "CdcSyncNotConsistent": (
        60,
        {
            'cdcsync_condition{condition="Consistent",reason="CatchingUp",%s}': "0x120",
            'cdcsync_phase{phase="Waiting",%s}': "1x120",
        },
    ),
    "CdcSyncPreflightFails": (
        10,
        {'cdcsync_condition{condition="SinkReady",reason="SinkUnreachable",%s}': "0x120"},
    ),
    "CdcSyncSnapshotStands": (
        30,
        {
            'cdcsync_phase{phase="Snapshotting",%s}': "1x120",
            "cdcsync_snapshot_splits_finished{%s}": "4x120",
            "cdcsync_snapshot_rows{%s}": "100x120",
        },
    ),
    "CdcSyncOperatorAbsent": (5, {}),
    "CdcSyncOperatorFails": (31, {'cdcsync_reconcile_errors_total{job="j"}': "0+1x120"}),
    "CdcSyncMetricsLeftOut": (5, {'cdcsync_syncs_left_out{job="j"}': "1x120"}),
}
#: states in which an alert is quiet, however long they last
QUIET: list[tuple[str, dict[str, str]]] = [
    ("CdcSyncNotReady", {"cdcsync_ready{%s}": "0x120", 'cdcsync_phase{phase="Paused",%s}': "1x120"}),
    ("CdcSyncBehind", {"cdcsync_lag_seconds{%s}": "300x120", 'cdcsync_phase{phase="Paused",%s}': "0x120"}),
    ("CdcSyncBehind", {"cdcsync_lag_seconds{%s}": "301x5 1x5 301x5", 'cdcsync_phase{phase="Paused",%s}': "0x120"}),
    ("CdcSyncFailsInARow", {"cdcsync_failures_in_a_row{%s}": "2x120"}),
    ("CdcSyncSnapshotStands", TIMES["CdcSyncSnapshotStands"][1] | {"cdcsync_snapshot_rows{%s}": "0+1x120"}),
    ("CdcSyncOperatorAbsent", {'cdcsync_leading{job="cdc/cdcsync",pod="a"}': "1 0x120",
                               'cdcsync_leading{job="cdc/cdcsync",pod="b"}': "0x3 1x120"}),
]  # fmt: skip
SYNC = 'namespace="shop",name="orders"'


def case(alert: str, series: dict[str, str], times: list[tuple[int, bool]]) -> dict[str, Any]:
    labels = {"severity": rules()[alert]["labels"]["severity"]}
    text = " ".join(series)
    labels |= {"namespace": "shop", "name": "orders"} if "%s" in text else {"job": "j"} if 'job="j"' in text else {}
    labels |= {"condition": "SinkReady"} if alert == "CdcSyncPreflightFails" else {}
    return {
        "interval": "1m",
        "input_series": [{"series": name.replace("%s", SYNC), "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {"eval_time": f"{m}m", "alertname": alert, "exp_alerts": [{"exp_labels": labels}] if fires else []}
            for m, fires in times
        ],
    }


def test_an_alert_waits_for_its_time(tmp_path: Path) -> None:
    """Not a minute less, and it is quiet in states that look alike."""
    assert TIMES.keys() == rules().keys()
    found = groups()
    for group in found:
        for rule in group["rules"]:
            del rule["annotations"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": found}))
    cases = [case(alert, series, [(m - 1, False), (m, True)]) for alert, (m, series) in TIMES.items()]
    cases += [case(alert, series, [(m, False) for m in (1, 5, 12, 31, 61)]) for alert, series in QUIET]
    checks = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(checks))
    result = subprocess.run(
        [PROMTOOL, "test", "rules", "tests.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_file_of_rules_is_one_of_prometheus() -> None:
    subprocess.run([PROMTOOL, "check", "rules", CHART / "files" / "alerts.yaml"], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("alerts", "expected"),
    [
        ({"lagSeconds": 60}, "> 60 and"),
        ({"disabled": ["CdcSyncBehind"]}, None),
    ],
)
def test_values_change_the_rules(alerts: dict[str, Any], expected: str | None) -> None:
    found = groups(metrics={"alerts": {"enabled": True, **alerts}})
    named = {rule["alert"]: rule for group in found for rule in group["rules"]}
    assert "CdcSyncBehind" not in named if expected is None else expected in named["CdcSyncBehind"]["expr"]
    assert not [rule for rule in named.values() if "runbook_url" in rule["annotations"]], "no manual is named"
