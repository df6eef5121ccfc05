"""`kubectl cdcsync` on a real API server: what it shows, what it changes, and what it leaves out of
a bundle."""

from __future__ import annotations

import itertools
import json
import os
import pty
import signal
import ssl
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from cdcsync_core.runs.run import ExitCode, RunKind, TablePhase
from cdcsync_core.runs.status import Phase, Status, only_tables
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_kube.client import Api
from cdcsync_operator.cli.cluster_syncs import ClusterSyncs
from cdcsync_operator.cli.kubectl.plugin import plugin
from cdcsync_operator.cluster.controller import KubeController
from cdcsync_operator.cluster.store import KubeTableShards, owner_of
from support.apiserver import kubeconfig
from support.in_process_sync import PASSWORD, InProcessSync
from support.login_program import LoginProgram, token_of
from support.logins import by_token
from support.waiting import eventually

Call = Callable[..., Result]


@pytest.fixture
def call(sync: InProcessSync, tmp_path: Path) -> Call:
    """The plugin in the sync's namespace, which the context names."""
    config = kubeconfig(sync.api)
    config["contexts"][0]["context"]["namespace"] = sync.namespace
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(plugin, [*arguments, "--kubeconfig", str(path)], catch_exceptions=False)

    return run


def spec(sync: InProcessSync) -> dict[str, Any]:
    return dict(sync.api.get(f"{sync.syncs}/shop")["spec"])


def test_a_change_is_made_or_printed_as_a_patch_that_makes_it(sync: InProcessSync, call: Call) -> None:
    sync.create()
    before = spec(sync)
    printed = yaml.safe_load(call("pause", "shop", "--print").stdout)
    assert spec(sync) == before
    assert call("pause", "shop").exit_code == 0
    assert spec(sync)["state"] == "paused"
    assert call("resume", "shop").exit_code == 0
    assert spec(sync)["state"] == "running"
    assert call("restart", "shop").exit_code == call("restart", "shop").exit_code == 0
    assert spec(sync)["restartNonce"] == 2
    assert (printed["kind"], printed["metadata"]) == ("CdcSync", {"name": "shop", "namespace": sync.namespace})
    sync.api.merge(f"{sync.syncs}/shop", printed)
    assert spec(sync)["state"] == "paused"


def test_a_patch_names_the_version_of_the_manifest(sync: InProcessSync, call: Call) -> None:
    """Whatever has changed the spec since: this program, or a field that a user edited."""
    path = f"{sync.syncs.replace('v1alpha1', 'v1beta1')}/shop"
    body = {"apiVersion": "cdcsync.io/v1beta1", "kind": "CdcSync", "metadata": {"name": "shop"}, "spec": sync.spec}
    assert sync.api.create(sync.syncs.replace("v1alpha1", "v1beta1"), body)["metadata"]
    assert _printed_version(call) == "cdcsync.io/v1alpha1", "it is this program that has created it"
    sync.api._call(
        "PATCH", path, {"fieldManager": "argocd-controller", "force": "true"}, body, "application/apply-patch+yaml"
    )
    assert call("restart", "shop").exit_code == 0
    assert _printed_version(call) == "cdcsync.io/v1beta1"
    edit = {"spec": {"restartNonce": 9}}
    sync.api._call(
        "PATCH", f"{sync.syncs}/shop", {"fieldManager": "kubectl-edit"}, edit, "application/merge-patch+json"
    )
    assert _printed_version(call) == "cdcsync.io/v1beta1"


def _printed_version(call: Call) -> Any:
    return yaml.safe_load(call("pause", "shop", "--print").stdout)["apiVersion"]


def test_a_resnapshot_raises_the_nonce_of_its_tables_alone(
    sync: InProcessSync, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another user asks for another table at the same moment."""
    sync.create(resnapshot=[{"tables": r"shop\..*", "nonce": 4}])
    sync.until(sync.operator(), lambda s: s.tables.total == 2)
    assert call("resnapshot", "shop", "shop.a").exit_code == 0
    pattern, table = {"tables": r"shop\..*", "table": "", "nonce": 4}, {"table": "shop.a", "tables": ""}
    assert spec(sync)["resnapshot"] == [pattern, table | {"nonce": 5}]

    change, others = ClusterSyncs.change, [{"table": "shop.b", "nonce": 9}]

    def after_another(self: ClusterSyncs, name: str, body: dict[str, Any]) -> dict[str, Any]:
        if others:
            sync.change(resnapshot=[pattern, table | {"nonce": 5}, others.pop()])
        return change(self, name, body)

    monkeypatch.setattr(ClusterSyncs, "change", after_another)
    assert call("resnapshot", "shop", "shop.a").exit_code == 0
    assert {(e["table"], e["nonce"]) for e in spec(sync)["resnapshot"]} == {("", 4), ("shop.a", 6), ("shop.b", 9)}
    assert call("resnapshot", "shop", "--matching", ".*").exit_code == 0
    assert {"table": "", "tables": ".*", "nonce": 10} in spec(sync)["resnapshot"]


def test_a_verification_is_asked_for_waited_for_and_shown(sync: InProcessSync, call: Call) -> None:
    """On a real API server: the request, its run's rights and pod, its results in the status. What
    differs is never taken for equal."""
    sync.create()
    controller = sync.operator()
    sync.to_streaming(controller)
    stream = sync.stored.runs.stream
    patch = yaml.safe_load(call("verify", "shop", "shop.a", "--print").stdout)
    assert patch["spec"] == {"verify": {"nonce": 1, "tables": [r"shop\.a"]}}
    assert call("verify", "shop", "shop.z").exit_code == ExitCode.USAGE
    assert spec(sync)["verify"] == {"nonce": 0}
    for nonce, result, code, words in (
        (1, {"result": "Different", "missing": 3}, ExitCode.DIFFERENCES, "3 missing in the target of 10 rows"),
        (2, {"result": "NotCompared", "message": "the source is away"}, ExitCode.RETRY, "not compared"),
        (3, {"result": "Equal"}, ExitCode.DONE, "Equal: 2 of 2 tables equal"),
    ):
        with answering(sync, controller, nonce, result):
            answer = call("verify", "shop", "--wait", "2m")
        assert (answer.exit_code, words in answer.stdout) == (code, True), answer.stdout
        consistent = sync.stored.condition("Consistent")
        assert (consistent.status, consistent.reason) == (
            ("True", "Consistent") if code is ExitCode.DONE else ("False", "Differs")
        )
    assert sync.stored.runs.stream.id == stream.id, "the stream is not touched"
    assert call("verify", "shop", "--wait", "0s").exit_code == ExitCode.RETRY
    reasons = {e["reason"] for e in sync.api.items(f"{sync.base}/events")}
    assert {"VerificationDifferent", "VerificationIncomplete", "VerificationEqual"} <= reasons


def test_a_verification_is_waited_for_while_the_api_server_is_away(
    sync: InProcessSync, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync.create()
    controller = sync.operator()
    sync.to_streaming(controller)
    away, get, calls = Api(by_token("http://127.0.0.1:1", "")), ClusterSyncs.get, itertools.count()

    def get_with_an_outage(syncs: ClusterSyncs, name: str) -> Any:
        """After the request the API server cannot be reached for some time."""
        return get(ClusterSyncs(away, syncs.namespace) if next(calls) in range(1, 4) else syncs, name)

    monkeypatch.setattr(ClusterSyncs, "get", get_with_an_outage)
    monkeypatch.setattr("cdcsync_operator.cli.kubectl.verify._POLL_SECONDS", 0.1)
    with answering(sync, controller, 1, {"result": "Equal"}):
        answer = call("verify", "shop", "--wait", "10m")
    assert (answer.exit_code, next(calls) > 4) == (ExitCode.DONE, True), answer.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",), ("status", "shop"), ("tables", "shop"), ("why", "shop.a"), ("logs", "shop"), ("pause", "shop"),
        ("verify", "shop", "--wait", "0s"), ("report", "shop"),
    ],
)  # fmt: skip
def test_an_api_server_that_is_away_is_no_fault_of_the_user(
    call: Call, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    config = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    result = call(*arguments)
    assert result.exit_code == ExitCode.RETRY
    assert "does not answer" in result.stderr
    assert "no CdcSync" not in result.stderr


@contextmanager
def answering(sync: InProcessSync, controller: KubeController, nonce: int, second: dict[str, Any]) -> Iterator[None]:
    """An operator, and the driver of request `nonce`, which finds this of the second table."""

    def answer() -> None:
        sync.until(controller, lambda s: s.runs.get(RunKind.VERIFY) and s.verification.nonce == nonce)
        ref = sync.stored.runs.get(RunKind.VERIFY)
        sync.until(controller, lambda _: ref.pod in sync.pods())
        rules = sync.api.get(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{sync.namespace}/roles/{ref.id}")["rules"]
        assert {
            "apiGroups": ["cdcsync.io"],
            "resources": ["cdcsyncs"],
            "resourceNames": ["shop"],
            "verbs": ["get"],
        } in rules
        own = {"nonce": nonce, "at": "2026-01-01T00:00:00Z", "sourceRows": 10, "targetRows": 10}
        of_first = {"name": "shop.a", "verified": own | {"result": "Equal"}}
        sync.driver(RunKind.VERIFY).report(tables=[of_first, {"name": "shop.b", "verified": own | second}])
        sync.end(RunKind.VERIFY)
        sync.until(controller, lambda s: s.verification.state.final)

    with ThreadPoolExecutor(1) as pool:
        answered = pool.submit(answer)
        yield
        answered.result()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("resnapshot", "shop", "shop.z"), "shop.z: no table of this CdcSync"),
        (("resnapshot", "shop"), "neither tables nor --matching"),
        (("resnapshot", "shop", "--matching", "("), "resnapshot"),
        (("pause", "nope"), "no CdcSync"),
        (("why", "shop.z"), "has the table shop.z"),
        (("status", "--context", "nope"), "no usable kubeconfig"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(
    sync: InProcessSync, call: Call, arguments: tuple[str, ...], words: str
) -> None:
    sync.create(state="paused")
    before = spec(sync)
    result = call(*arguments)
    assert result.exit_code == ExitCode.USAGE
    assert words in " ".join(result.stderr.split())
    assert "remedy" in result.stderr
    assert spec(sync) == before


def test_who_may_not_read_is_told_the_right_that_is_missing(sync: InProcessSync, call: Call, tmp_path: Path) -> None:
    about = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "guest"}}
    sync.api.create(f"{sync.base}/serviceaccounts", about)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = sync.api.create(f"{sync.base}/serviceaccounts/guest/token", request)["status"]["token"]
    config = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    config["users"][0]["user"] = {"token": token}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    result = call("status")
    assert result.exit_code == ExitCode.USAGE
    assert "kubectl auth can-i list cdcsyncs" in result.stderr


def test_why_has_the_reason_the_remedy_and_the_events(sync: InProcessSync, call: Call) -> None:
    sync.create()
    controller = sync.operator()
    sync.to_streaming(controller)
    found = "shop.a: ALTER TABLE a DROP PRIMARY KEY; needed: a key; remedy: add one"
    entry = {"name": "shop.a", "phase": "Failed", "reason": "NoPrimaryKey", "message": found}
    sync.driver(RunKind.STREAM).report(epoch=2, tables=[entry])
    sync.until(controller, lambda s: s.tables.failed == 1)
    result = call("why", "shop.a")
    for text in ("NoPrimaryKey", "DROP PRIMARY KEY", "needed:", "a key", "remedy:", "add one", "events of the CdcSync"):
        assert text in result.stdout
    assert "RunStarted" in result.stdout
    answer = json.loads(call("why", "shop.b", "-o", "json").stdout)
    assert (answer["table"]["name"], answer["table"]["phase"]) == ("shop.b", "Streaming")
    (failed,) = json.loads(call("tables", "shop", "--failed", "-o", "json").stdout)
    assert (failed["name"], failed["reason"]) == ("shop.a", "NoPrimaryKey")


def test_all_tables_are_listed_though_the_resource_has_the_worst_alone(sync: InProcessSync, call: Call) -> None:
    sync.create(state="paused")
    entries = [TableStatus(name=f"shop.t{n:03d}", phase=TablePhase.STREAMING) for n in range(300)]
    found = sync.api.get(f"{sync.syncs}/shop")
    shards = KubeTableShards(sync.api, sync.namespace, "shop")
    shards.owner = owner_of(found)
    shown = shards.write(only_tables(Status(phase=Phase.STREAMING), entries))
    assert len(shown.table_status) < 300
    status = shown.model_dump(by_alias=True, mode="json", exclude_none=True)
    sync.api.replace(f"{sync.syncs}/shop/status", found | {"status": status})
    assert len(json.loads(call("tables", "shop", "-o", "json").stdout)) == 300
    assert json.loads(call("why", "shop.t123", "-o", "json").stdout)["table"]["phase"] == "Streaming"
    assert call("resnapshot", "shop", "shop.t999", "--print").exit_code == ExitCode.USAGE
    for about in sync.api.metadata(f"{sync.base}/configmaps", labelSelector="cdcsync.io/part=tables"):
        sync.api.delete(f"{sync.base}/configmaps/{about['name']}")
    unread = call("resnapshot", "shop", "shop.t123", "--print")
    assert (unread.exit_code, "perhaps no table" in unread.stderr) == (0, True)


def test_a_bundle_has_no_secret(sync: InProcessSync, call: Call, tmp_path: Path) -> None:
    hidden = "hide-this-7"
    container = {"name": "driver", "env": [{"name": "AWS_REGION", "value": hidden}]}
    driver = {"podTemplate": {"metadata": {"annotations": {"note": hidden}}, "spec": {"containers": [container]}}}
    sync.create(driver=driver, sparkConf={"spark.executor.heartbeatInterval": hidden})
    controller = sync.operator()
    controller.reconcile()
    address = f"https://user:{hidden}@store.example/lake?sig={hidden}"
    status = sync.api.get(f"{sync.syncs}/shop")
    stalled = {
        "type": "Stalled", "status": "True", "reason": "SinkUnreachable", "message": f"{address}, password={hidden}",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
    }  # fmt: skip
    reading = {"name": "shop.a", "phase": "Snapshotting", "finished": [{"start": None, "end": [hidden.encode().hex()]}]}
    stalled_status = (status.get("status") or {}) | {"conditions": [stalled], "tableStatus": [reading]}
    sync.api.replace(f"{sync.syncs}/shop/status", status | {"status": stalled_status})
    target = tmp_path / "bundle.tar.gz"
    result = call("report", "shop", "--to", str(target))
    assert result.exit_code == 0, result.output
    assert target.stat().st_mode & 0o77 == 0
    with tarfile.open(target) as archive:
        texts = {m.name.partition("/")[2]: (archive.extractfile(m) or sys.stdin).read() for m in archive}
    assert {"versions.json", "cdcsync.yaml", "tables.json", "events.json"} <= texts.keys()
    content = b"\n".join(t if isinstance(t, bytes) else t.encode() for t in texts.values()).decode()
    assert "store.example/lake" in content
    assert "spark.executor.heartbeatInterval" in content
    assert hidden not in content
    assert hidden.encode().hex() not in content, "the key of a row"
    assert "finished" in content
    assert PASSWORD not in content


def test_it_logs_in_as_kubectl_does_and_lists_all_namespaces(sync: InProcessSync, tmp_path: Path) -> None:
    program = LoginProgram(sync.api, tmp_path, token=token_of(sync.api))
    sync.create(state="paused")
    chosen = ["--kubeconfig", str(program.kubeconfig), "--context", "test"]
    result = CliRunner().invoke(plugin, ["status", "-A", "-o", "json", *chosen])
    found = json.loads(result.stdout)
    listed = found if isinstance(found, list) else [found]
    assert (sync.namespace, "shop") in {(s["namespace"], s["name"]) for s in listed}
    assert program.runs == 1
    result = CliRunner().invoke(plugin, ["status", "-n", "kube-public", *chosen])
    assert "no CdcSync in the namespace kube-public" in result.stdout


#: a shell's job in the background, such as these tests may be, ignores interrupts, and so do the
#: processes that it starts; a program in a terminal does not
_IN_A_TERMINAL = """
import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
from cdcsync_operator.cli.kubectl.plugin import main

main()
"""


def test_the_live_screen_shows_the_namespace_until_it_is_interrupted(
    sync: InProcessSync, call: Call, tmp_path: Path
) -> None:
    """In a terminal; what was there before is there again then."""
    sync.create(state="paused")
    sync.until(sync.operator(), lambda s: s.phase == "Paused")
    mine, its = pty.openpty()
    environment = os.environ | {"KUBECONFIG": str(tmp_path / "kubeconfig"), "TERM": "xterm", "COLUMNS": "120"}
    command = [sys.executable, "-c", _IN_A_TERMINAL, "status", "-w"]
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment)
    os.close(its)
    os.set_blocking(mine, False)
    shown = bytearray()

    def has(text: bytes) -> bool:
        with suppress(OSError):  # nothing yet, or its end
            shown.extend(os.read(mine, 2**16))
        return text in shown

    try:
        eventually(lambda: has(f"{sync.namespace}/shop".encode()) and b"1 sync" in shown and b"Paused" in shown)
        process.send_signal(signal.SIGINT)
        eventually(lambda: has(b"\x1b[?1049l") or process.poll() is not None)
        assert process.wait(120) == 0
        has(b"")
        assert b"\x1b[?1049l" in shown, "the screen of before is back"
    finally:
        process.kill()
        process.wait()
        os.close(mine)


@contextmanager
def kubelet(sync: InProcessSync, log: str) -> Iterator[list[str]]:
    """A node whose kubelet has this log of every container; the requests that it got."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(log.encode())))
            self.end_headers()
            self.wfile.write(log.encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    certificate = Path(sync.api.login.access().configuration.ssl_ca_cert or "")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoints = {"kubeletEndpoint": {"Port": server.server_port}}
        address = {"type": "InternalIP", "address": "127.0.0.1"}
        status = {"addresses": [address], "daemonEndpoints": endpoints}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{sync.namespace}"}, "status": status}
        sync.api.create("/api/v1/nodes", body)
        try:
            yield asked
        finally:
            server.shutdown()
            sync.api.delete(f"/api/v1/nodes/node-{sync.namespace}")


def test_the_logs_are_those_of_the_drivers(sync: InProcessSync, call: Call) -> None:
    sync.create()
    controller = sync.operator()
    sync.until(controller, lambda s: s.runs.snapshot and sync.pods())
    (pod,) = sync.pods()
    with kubelet(sync, "started\nshop.a is read\nshop.b waits\nshop.a is whole \x1b[2J\n") as asked:
        sync.bind(pod, f"node-{sync.namespace}")
        result = call("logs", "shop", "--tail", "7")
        assert f"==> {pod}" in result.stdout
        assert "shop.b waits" in result.stdout
        assert "\x1b" not in result.stdout
        assert "/driver?" in asked[0]
        assert "tailLines=7" in asked[0]
        answer = json.loads(call("why", "shop.a", "-o", "json").stdout)
        assert [line.partition(" ")[0] for line in answer["log"]] == ["shop.a", "shop.a"]
