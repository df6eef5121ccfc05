"""How to reach the API server: from inside a pod, or by a kubeconfig. The official client loads
both; it is imported where one of them is used, because it takes a fifth of a second.
"""

from __future__ import annotations

import os
from pathlib import Path

from cdcsync_core.errors import Reason, fail
from cdcsync_kube import kubeconfig
from cdcsync_kube.client import Api
from cdcsync_kube.login import LoadedLogin, Login

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def connect_api() -> Api:
    """The API server of the pod that this runs in, else of `KUBECONFIG` or `~/.kube/config`. Raises
    SpecInvalid."""
    return in_pod() if _is_pod() else Api(Login(lambda: kubeconfig.load(_kubeconfig())))


def by_context(files: str = "", context: str = "") -> tuple[Api, str]:
    """The API server of a context of kubeconfig files, and the context's namespace; empty: those of
    `KUBECONFIG` or `~/.kube/config`, and their current context. Raises SpecInvalid."""
    files = files or _kubeconfig()
    return Api(Login(lambda: kubeconfig.load(files, context))), kubeconfig.namespace(files, context)


def has_cluster() -> bool:
    """Whether there is anything to connect by."""
    return _is_pod() or any(Path(path).expanduser().exists() for path in _kubeconfig().split(os.pathsep) if path)


def _is_pod() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and (SERVICE_ACCOUNT / "token").exists()


def _kubeconfig() -> str:
    return os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")


def in_pod() -> Api:
    """Raises SpecInvalid."""
    return Api(Login(_load_service_account))


def by_kubeconfig(path: Path) -> Api:
    """The current context of a kubeconfig. Raises SpecInvalid."""
    return Api(Login(lambda: kubeconfig.load(str(path))))


def _load_service_account() -> LoadedLogin:
    """The client reads the token again each minute, because the kubelet rotates it. A proxy of the
    pod's variables is for what is outside the cluster."""
    from kubernetes.client.configuration import Configuration
    from kubernetes.config import ConfigException
    from kubernetes.config.incluster_config import InClusterConfigLoader

    configuration = Configuration()
    token, authority = str(SERVICE_ACCOUNT / "token"), str(SERVICE_ACCOUNT / "ca.crt")
    try:
        InClusterConfigLoader(token, authority).load_and_set(configuration)
    except (ConfigException, OSError) as error:
        raise fail(
            Reason.SPEC_INVALID,
            f"no usable service account in this pod ({error})",
            remedy="mount the token of its service account",
        ) from None
    configuration.proxy = None
    return LoadedLogin(configuration)
