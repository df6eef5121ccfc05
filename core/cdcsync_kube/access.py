"""How to reach the API server: from inside a pod, or by a kubeconfig.

Only what a service account or a plain kubeconfig needs (certificates, a token); a kubeconfig with a
login program is refused by name.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from pathlib import Path
from typing import Any

import yaml

from cdcsync_core.errors import Reason, fail
from cdcsync_kube.client import Api

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def connect_api() -> Api:
    """The API server of the pod that this runs in, else of `KUBECONFIG` or `~/.kube/config`. Raises
    SpecInvalid."""
    return in_pod() if _is_pod() else by_kubeconfig(_kubeconfig())


def has_cluster() -> bool:
    """Whether there is anything to connect by."""
    return _is_pod() or _kubeconfig().exists()


def _is_pod() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and (SERVICE_ACCOUNT / "token").exists()


def _kubeconfig() -> Path:
    first = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    return Path(first) if first else Path.home() / ".kube" / "config"


def in_pod() -> Api:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    tls = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))
    return Api(f"https://{host}:{port}", tls, lambda: (SERVICE_ACCOUNT / "token").read_text().strip())


def namespace_of_pod() -> str:
    path = SERVICE_ACCOUNT / "namespace"
    return path.read_text().strip() if path.exists() else "default"


def by_kubeconfig(path: Path) -> Api:
    """The current context of a kubeconfig."""
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
    except (OSError, KeyError, TypeError, yaml.YAMLError, StopIteration) as error:
        raise fail(
            Reason.SPEC_INVALID, f"no usable kubeconfig at {path} ({type(error).__name__})", remedy="set KUBECONFIG"
        ) from None
    if "exec" in user or "auth-provider" in user:
        raise fail(
            Reason.SPEC_INVALID,
            f"{path} logs in by a program",
            needed="certificates or a token",
            remedy="run this in the cluster, or with a kubeconfig of a service account",
        )
    return Api(cluster["server"], _tls(cluster, user, path.parent), lambda: str(user.get("token", "")))


def _named(entries: list[Any], name: str) -> dict[str, Any]:
    return dict(next(e for e in entries if e["name"] == name))


def _tls(cluster: dict[str, Any], user: dict[str, Any], folder: Path) -> ssl.SSLContext | None:
    if not cluster["server"].startswith("https:"):
        return None
    context = ssl.create_default_context(cadata=_content(cluster, "certificate-authority", folder) or None)
    certificate = _content(user, "client-certificate", folder)
    if certificate:
        # OpenSSL reads a chain from files only; this one is private and gone at once.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(certificate + "\n" + _content(user, "client-key", folder))
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _content(entry: dict[str, Any], name: str, folder: Path) -> str:
    if f"{name}-data" in entry:
        return base64.b64decode(entry[f"{name}-data"]).decode()
    return (folder / entry[name]).read_text(encoding="utf-8") if name in entry else ""
