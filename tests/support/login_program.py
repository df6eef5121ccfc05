"""A program that logs a user of a kubeconfig in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from cdcsync_kube.client import Api
from support.apiserver import kubeconfig

#: prints a credential from a file, and notes that it ran
_PROGRAM = """#!/usr/bin/env python3
import datetime, json, os, pathlib, sys
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
folder = pathlib.Path(sys.argv[1])
with (folder / "runs").open("a") as runs:
    runs.write(os.environ["NOTE"])
status = json.loads((folder / "status").read_text())
if "seconds" in status:
    end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=status.pop("seconds"))
    status["expirationTimestamp"] = end.strftime("%Y-%m-%dT%H:%M:%SZ")
if "fault" in status:
    sys.exit(status["fault"])
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


class LoginProgram:
    """A program of a kubeconfig's user, beside the kubeconfig; it prints `status`."""

    def __init__(self, api: Api, folder: Path, **status: Any) -> None:
        self._folder = folder
        self.kubeconfig = folder / "kubeconfig"
        program = folder / "login"
        program.write_text(_PROGRAM)
        program.chmod(0o755)
        self.prints(**status)
        user = {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "./login", "args": [str(folder)],
            "env": [{"name": "NOTE", "value": "x"}], "installHint": "install the login of the test",
            "interactiveMode": "Never", "provideClusterInfo": True,
        }  # fmt: skip
        write_kubeconfig(api, self.kubeconfig, {"exec": user})

    def prints(self, **status: Any) -> None:
        (self._folder / "next").write_text(json.dumps(status))
        (self._folder / "next").replace(self._folder / "status")

    @property
    def runs(self) -> int:
        path = self._folder / "runs"
        return len(path.read_text()) if path.exists() else 0


def write_kubeconfig(api: Api, path: Path, user: dict[str, Any], **cluster: str) -> None:
    config = kubeconfig(api)
    config["users"] = [{"name": "admin", "user": user}]
    config["clusters"][0]["cluster"] |= cluster
    path.write_text(yaml.safe_dump(config))


def token_of(api: Api) -> str:
    return str(kubeconfig(api)["users"][0]["user"]["token"])
