"""Logins by a kubeconfig, as a laptop has them, and by a pod's account, on a real API server."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cdcsync_core.errors import PermanentError
from cdcsync_kube import access
from cdcsync_kube.access import by_kubeconfig, in_pod
from cdcsync_kube.client import Api, ApiError
from support.apiserver import client_certificate, kubeconfig
from support.connect_proxy import ConnectProxy
from support.in_process_sync import InProcessSync
from support.login_program import LoginProgram, token_of, write_kubeconfig
from support.waiting import eventually

_DEFAULT = "/api/v1/namespaces/default"


def cdcsync(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"KUBECONFIG": str(folder / "kubeconfig")}
    command = [sys.executable, "-m", "cdcsync_operator", *arguments]
    return subprocess.run(command, check=False, env=environment, cwd=folder, capture_output=True, text=True)


def test_the_command_line_shows_a_sync_of_a_cluster_with_a_login_program(sync: InProcessSync, tmp_path: Path) -> None:
    program = LoginProgram(sync.api, tmp_path, token=token_of(sync.api))
    sync.create(state="paused")
    result = cdcsync(tmp_path, "status", "shop", "-n", sync.namespace)
    assert result.returncode == 0, result.stderr
    assert f"{sync.namespace}/shop" in result.stdout
    assert program.runs == 1


def test_a_login_program_that_fails_is_an_error_that_names_it(api: Api, tmp_path: Path) -> None:
    program = LoginProgram(api, tmp_path, fault="the session has ended, log in again")
    result = cdcsync(tmp_path, "status", "shop", "-n", "default")
    words = " ".join((result.stdout + result.stderr).split())
    assert result.returncode != 0
    assert "login program `./login` failed" in words
    assert "the session has ended, log in again" in words
    assert "install the login of the test" in words
    program.prints(surprise=1)
    with pytest.raises(PermanentError, match="printed neither a token nor a certificate"):
        by_kubeconfig(program.kubeconfig)
    (tmp_path / "login").unlink()
    with pytest.raises(PermanentError, match=r"\./login.* failed: .*No such file"):
        by_kubeconfig(program.kubeconfig)


def test_a_login_program_runs_again_when_its_token_has_ended_or_is_refused(api: Api, tmp_path: Path) -> None:
    program = LoginProgram(api, tmp_path, token=token_of(api), seconds=3600)
    reached = by_kubeconfig(program.kubeconfig)
    for _ in range(3):
        reached.get(_DEFAULT)
    assert program.runs == 1
    program.prints(token=token_of(api), seconds=-60)
    ended = by_kubeconfig(program.kubeconfig)
    program.prints(token=token_of(api))
    for _ in range(3):
        ended.get(_DEFAULT)
    assert program.runs == 3
    program.prints(token="revoked")
    refused = by_kubeconfig(program.kubeconfig)
    with pytest.raises(ApiError) as caught:
        refused.get(_DEFAULT)
    assert (caught.value.status, program.runs) == (401, 5)
    program.prints(fault="no network")
    with pytest.raises(ApiError, match="no network") as caught:
        refused.get(_DEFAULT)
    assert caught.value.transient
    program.prints(token=token_of(api))
    assert refused.get(_DEFAULT)["metadata"]["name"] == "default"
    for one in (reached, ended, refused):
        one.close()


def test_an_operator_goes_on_while_the_tokens_of_its_login_program_end(sync: InProcessSync, tmp_path: Path) -> None:
    """It watches and writes. A token lives long enough for a slow machine to use it."""
    program = LoginProgram(sync.api, tmp_path, token=token_of(sync.api), seconds=15)
    settings = {
        "KUBECONFIG": str(program.kubeconfig), "HOSTNAME": "one", "CDCSYNC_DRIVER_IMAGE": "x",
        "CDCSYNC_METRICS_PORT": "0", "CDCSYNC_NAMESPACES": sync.namespace, "CDCSYNC_LEASE": f"{sync.namespace}/cdcsync",
        "CDCSYNC_REFUSED_SOURCE_NETWORKS": "",
    }  # fmt: skip
    log = tmp_path / "log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "cdcsync_operator.cluster.handlers"]
        process = subprocess.Popen(command, env=os.environ | settings, stderr=output, stdout=output)
    try:
        sync.create(state="paused")
        eventually(lambda: sync.stored.phase == "Paused", log)
        runs = program.runs
        eventually(lambda: program.runs > runs + 1, log)
        sync.change(source={"host": "127.0.0.1", "port": 1}, state="running")
        eventually(lambda: sync.stored.restarts.reason == "SourceUnreachable", log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def _by_certificate(api: Api, folder: Path) -> None:
    certificate, key = client_certificate(api)
    data = {"client-certificate-data": certificate, "client-key-data": key}
    write_kubeconfig(api, folder / "kubeconfig", {k: base64.b64encode(v.encode()).decode() for k, v in data.items()})


def _by_certificate_of_a_program(api: Api, folder: Path) -> None:
    certificate, key = client_certificate(api)
    LoginProgram(api, folder, clientCertificateData=certificate, clientKeyData=key)


def _by_token_file(api: Api, folder: Path) -> None:
    """Whose path is beside the kubeconfig, and which ends with a new line."""
    (folder / "token").write_text(token_of(api) + "\n")
    write_kubeconfig(api, folder / "kubeconfig", {"tokenFile": "token"})


@pytest.mark.parametrize("write", [_by_certificate, _by_certificate_of_a_program, _by_token_file])
def test_logins_without_a_token_in_the_kubeconfig(api: Api, tmp_path: Path, write: Callable[[Api, Path], None]) -> None:
    write(api, tmp_path)
    reached = by_kubeconfig(tmp_path / "kubeconfig")
    assert reached.get(_DEFAULT)["metadata"]["name"] == "default"
    reached.close()


def test_a_token_file_is_read_again_when_its_token_is_refused(api: Api, tmp_path: Path) -> None:
    _by_token_file(api, tmp_path)
    (tmp_path / "token").write_text("revoked")
    reached = by_kubeconfig(tmp_path / "kubeconfig")
    with pytest.raises(ApiError) as caught:
        reached.get(_DEFAULT)
    assert caught.value.status == 401
    _by_token_file(api, tmp_path)
    assert reached.get(_DEFAULT)["metadata"]["name"] == "default"
    reached.close()


def test_a_pod_reads_its_rotated_token_again_and_reaches_the_server_without_a_proxy(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "SERVICE_ACCOUNT", tmp_path)
    with pytest.raises(PermanentError, match="no usable service account"):
        in_pod()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", api.server.rpartition(":")[2])
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    authority = kubeconfig(api)["clusters"][0]["cluster"]["certificate-authority-data"]
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(authority))
    (tmp_path / "token").write_text("rotated")
    pod = in_pod()
    with pytest.raises(ApiError) as caught:
        pod.get(_DEFAULT)
    assert caught.value.status == 401
    (tmp_path / "token").write_text(token_of(api))
    assert pod.get(_DEFAULT)["metadata"]["name"] == "default"
    pod.close()


def test_a_proxy_of_the_environment_or_the_kubeconfig_is_used(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, user = tmp_path / "kubeconfig", {"token": token_of(api)}
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with ConnectProxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        write_kubeconfig(api, path, user)
        tunnels = [_tunnels(path, proxy)]
        monkeypatch.setenv("NO_PROXY", "127.0.0.0/8")
        tunnels.append(_tunnels(path, proxy))
        monkeypatch.delenv("HTTPS_PROXY")
        write_kubeconfig(api, path, user, **{"proxy-url": proxy.url})
        tunnels.append(_tunnels(path, proxy))
    assert tunnels == [1, 1, 2], "a proxy that the kubeconfig names is for its server, whatever NO_PROXY says"


def _tunnels(path: Path, proxy: ConnectProxy) -> int:
    reached = by_kubeconfig(path)
    for _ in range(2):
        assert reached.get(_DEFAULT)["metadata"]["name"] == "default"
    reached.close()
    return proxy.tunnels
