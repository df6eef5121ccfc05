"""The login program of a kubeconfig's user (`exec`), run within a bound of time.

Why more than the client's `ExecProvider`: it waits without end, gives the program the standard
input, and ignores `interactiveMode`. Why it is right: the program has no input, and says so
(`spec.interactive`), so one that has to ask a person ends; one that goes on ends with its whole
group of processes, and the pipes are closed without a read, because a process that left the group
may hold them. Source: "client-go credential plugins" of the page "Authenticating".
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubernetes.config.exec_provider import ExecProvider
    from kubernetes.config.kube_config import ConfigNode

#: seconds in which the program has to end
SECONDS = 60.0


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
        found, needed = credential["apiVersion"], provider.api_version
        raise ConfigException(f"exec: plugin api version {found} does not match {needed}")
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
    shown = sys.stdout.isatty()
    with subprocess.Popen(
        provider.args,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=None if shown else subprocess.PIPE,
        cwd=provider.cwd,
        env=provider.env,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"it did not end within {SECONDS:g} s (it may wait for a person or a network)") from None
        finally:
            _end(process)
    return process.returncode, output, errors or ""


def _end(process: subprocess.Popen[str]) -> None:
    """The group exists for as long as its leader is not waited for."""
    if process.returncode is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
