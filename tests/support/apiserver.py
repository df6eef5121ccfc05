"""A real API server with its etcd on loopback: no kubelet, no controllers; what a manifest, a rule
or a status write meets first.

Two processes of the node binary (tests/cluster/node), about 6 seconds to start. Everything is in
one folder and ends with the test.
"""

from __future__ import annotations

import base64
import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from cdcsync_demo.server_process import free_port
from cdcsync_kube.client import Api, ApiError
from support.logins import by_token

ROOT = Path(__file__).resolve().parents[2]
#: of the version of Kubernetes that is asked for, as tests/cluster/lib.sh names it
NODE = ROOT / ".cache" / "node" / "-".join(filter(None, ("node", os.environ.get("KUBERNETES"))))
CRD = ROOT / "crds" / "cdcsync.yaml"
_PORT_ATTEMPTS = 5


@contextmanager
def api_server(folder: Path) -> Iterator[Api]:
    """As an administrator, with the CRD established."""
    token = secrets.token_hex(16)
    (folder / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
    _service_account_keys(folder)
    _client_certificates(folder)
    with ExitStack() as stack:
        api = _started(stack, folder, token)
        stack.callback(api.close)
        establish(api, CRD)
        yield api


def kubeconfig(api: Api) -> dict[str, Any]:
    """For programs that make their own connection. The certificate names 127.0.0.1."""
    access = api.login.access()
    data = base64.b64encode(Path(access.configuration.ssl_ca_cert or "").read_bytes()).decode()
    _, _, token = access.authorization.partition(" ")
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": api.server, "certificate-authority-data": data}}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    }


def client_certificate(api: Api) -> tuple[str, str]:
    """An administrator's certificate and its key, as PEM."""
    folder = Path(api.login.access().configuration.ssl_ca_cert or "").parents[1]
    return (folder / "client.crt").read_text(), (folder / "client.key").read_text()


def minor_version(api: Api) -> int:
    """The server's version of Kubernetes without its "1.", such as 33."""
    return int(api.get("/version")["minor"])


def as_token(api: Api, token: str) -> Api:
    """The same server for who has another token."""
    return Api(by_token(api.server, token, api.login.access().configuration.ssl_ca_cert))


def establish(api: Api, path: Path) -> None:
    """Creates a CRD and waits until its resources are served."""
    document = yaml.safe_load(path.read_text())
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions?fieldValidation=Strict", document)
    name, group = document["metadata"]["name"], document["spec"]["group"]
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = api.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
        conditions = {c["type"]: c for c in found.get("status", {}).get("conditions") or []}
        if conditions.get("NonStructuralSchema", {}).get("status") == "True":
            raise AssertionError(conditions["NonStructuralSchema"]["message"])
        if conditions.get("Established", {}).get("status") == "True" and _served(api, group, document):
            return
        time.sleep(0.05)
    raise AssertionError("the CRD was not established in 120 s")


def _served(api: Api, group: str, document: dict[str, object]) -> bool:
    spec = document["spec"]
    assert isinstance(spec, dict)
    try:
        api.get(f"/apis/{group}/{spec['versions'][0]['name']}/{spec['names']['plural']}")
    except ApiError:
        return False
    return True


def _started(stack: ExitStack, folder: Path, token: str) -> Api:
    """Both processes, on ports that are chosen again where another process has taken one since."""
    for _ in range(_PORT_ATTEMPTS):
        etcd, peer, port = free_port(), free_port(), free_port()
        with ExitStack() as attempt:
            processes = [
                attempt.enter_context(_process(folder, "etcd", *_etcd(folder, etcd, peer))),
                attempt.enter_context(_process(folder, "kube-apiserver", *_apiserver(folder, etcd, port))),
            ]
            api = _wait(folder, port, token, processes)
            if api is not None:
                stack.push(attempt.pop_all())
                return api
    raise AssertionError(f"the API server ended at each of {_PORT_ATTEMPTS} starts: {_last_words(folder)}")


def _last_words(folder: Path) -> str:
    return "\n".join((folder / f"{program}.log").read_text()[-2000:] for program in ("etcd", "kube-apiserver"))


def _service_account_keys(folder: Path) -> None:
    key = folder / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    subprocess.run(
        ["openssl", "rsa", "-in", key, "-pubout", "-out", folder / "sa.pub"], check=True, capture_output=True
    )


def _client_certificates(folder: Path) -> None:
    """An authority of clients, and a certificate by it."""
    new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    authority = "-subj /CN=clients -keyout clients.key -out clients.crt"
    client = "-subj /O=system:masters/CN=admin -keyout client.key -out client.crt -CA clients.crt -CAkey clients.key"
    for command in (f"{new} {authority}", f"{new} {client} -addext extendedKeyUsage=clientAuth"):
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)


def _etcd(folder: Path, port: int, peer: int) -> list[str]:
    client, between = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
    return [
        "--name=node", f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn",
        f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
        f"--listen-peer-urls={between}", f"--initial-advertise-peer-urls={between}", f"--initial-cluster=node={between}",
    ]  # fmt: skip


def _apiserver(folder: Path, etcd: int, port: int) -> list[str]:
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd}", "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
        f"--secure-port={port}", f"--cert-dir={folder / 'certs'}", f"--token-auth-file={folder / 'tokens.csv'}",
        f"--client-ca-file={folder / 'clients.crt'}",
        "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={folder / 'sa.pub'}",
        f"--service-account-signing-key-file={folder / 'sa.key'}", "--authorization-mode=RBAC", "--profiling=false",
        "--service-cluster-ip-range=10.253.0.0/16", "--disable-admission-plugins=ServiceAccount", "--anonymous-auth=false",
        "--allow-privileged=true",
    ]  # fmt: skip


@contextmanager
def _process(folder: Path, program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{program}.log").open("wb") as log:
        process = subprocess.Popen([NODE, program, *arguments], stdout=log, stderr=log, cwd=folder)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _wait(folder: Path, port: int, token: str, processes: list[subprocess.Popen[bytes]]) -> Api | None:
    """None where a process has ended. The server is its own certificate's authority."""
    deadline = time.monotonic() + 240
    certificate = folder / "certs" / "apiserver.crt"
    problem = ""
    while time.monotonic() < deadline:
        if any(process.poll() is not None for process in processes):
            return None
        api = Api(by_token(f"https://127.0.0.1:{port}", token, str(certificate)))
        try:
            api.get("/api/v1/namespaces/default")
        except ApiError as error:
            problem = str(error)
            api.close()
            time.sleep(0.1)
            continue
        return api
    raise AssertionError(f"the API server did not start: {problem}; {_last_words(folder)}")
