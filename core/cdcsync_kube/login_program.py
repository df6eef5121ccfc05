"""The login program of a kubeconfig's user (`exec`), run within a bound of time.

Why more than the client's `ExecProvider`: it waits without end, gives the program the standard
input, and ignores `interactiveMode`. Why it is right: the program has no input, as
`spec.interactive` says, so one that has to ask a person ends; one that goes on is ended. Source:
"client-go credential plugins" of the page "Authenticating".
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdcsync_kube.bounded_program import run_bounded

if TYPE_CHECKING:
    from kubernetes.config.exec_provider import ExecProvider
    from kubernetes.config.kube_config import ConfigNode


def run(login: ConfigNode, folder: Path, cluster: ConfigNode) -> dict[str, Any]:
    """The status that it prints, as the client reads it. Raises ConfigException, OSError and
    ValueError."""
    from kubernetes.config import ConfigException
    from kubernetes.config.exec_provider import ExecProvider

    if login.safe_get("interactiveMode") == "Always":
        raise ConfigException("it needs a terminal (interactiveMode: Always), and gets no input")
    provider = ExecProvider(login, str(folder), cluster)
    provider.env["KUBERNETES_EXEC_INFO"] = json.dumps(_info(provider))
    code, output, errors = _run(provider)
    if code != 0:
        raise ConfigException(f"exec: process returned {code}. {errors.strip()}")
    try:
        credential = json.loads(output)
    except ValueError as error:
        raise ConfigException(f"exec: failed to decode process output: {error}") from None
    if credential["apiVersion"] != provider.api_version:
        version, needed = credential["apiVersion"], provider.api_version
        raise ConfigException(f"exec: plugin api version {version} does not match {needed}")
    status: dict[str, Any] = credential["status"]
    return status


def _info(provider: ExecProvider) -> dict[str, Any]:
    spec: dict[str, Any] = {"interactive": False}
    if provider.cluster:
        extensions = provider.cluster.value.get("extensions") or []
        own = [e["extension"] for e in extensions if e["name"] == "client.authentication.k8s.io/exec"]
        spec["cluster"] = provider.cluster.value | ({"config": own[0]} if own else {})
    return {"apiVersion": provider.api_version, "kind": "ExecCredential", "spec": spec}


def _run(provider: ExecProvider) -> tuple[int, str, str]:
    """At a terminal the program's errors are shown there, as by the client: they may be the page at
    which to log in."""
    return run_bounded(provider.args, cwd=provider.cwd, env=provider.env, errors_shown=sys.stdout.isatty())
