"""The login of a kubeconfig's `auth-provider` (gcp, oidc), renewed by the official client in a
process of its own.

Why it exists: the client asks an issuer, or runs `cmd-path`, without a bound of time, and holds the
lock of the login meanwhile. Why it is right: the process, with what it started, ends at the bound
that login programs have. It gets the provider's part of the kubeconfig by its standard input and
prints what became of it; the kubeconfig is written by who asked, so none is half written when the
process is killed.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from cdcsync_kube.bounded_program import run_bounded

_SELF = (sys.executable, "-P", "-m", "cdcsync_kube.auth_provider")


def login(provider: dict[str, Any]) -> tuple[str, float, dict[str, Any]]:
    """The token ("" for none), when it ends, and the provider as it is now. Raises OSError, and
    ValueError with what the client failed by."""
    given = json.dumps(provider, default=_text)
    code, output, errors = run_bounded([*_SELF], cwd=Path.cwd(), env=dict(os.environ), given=given)
    if code != 0:
        raise ValueError(f"its process returned {code}. {errors.strip()[-300:]}")
    answer = json.loads(output)
    if answer["error"]:
        raise ValueError(answer["error"])
    changed = {} if answer["provider"] == json.loads(given) else answer["provider"]
    return answer["token"], answer["ends"] or math.inf, provider | changed


def _text(value: object) -> str:
    """YAML reads an expiry without quotation marks as a time."""
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def main() -> None:
    provider = json.load(sys.stdin)
    try:
        token, ends = _renewed(provider)
        error = ""
    except Exception as failure:  # noqa: BLE001 - whatever the client and what it calls raise
        token, ends, error = "", None, _cause(failure)
    sys.stdout.write(json.dumps({"token": token, "ends": ends, "error": error, "provider": provider}))


def _renewed(provider: dict[str, Any]) -> tuple[str, float | None]:
    from kubernetes.client.configuration import Configuration
    from kubernetes.config.kube_config import KubeConfigLoader

    config = {
        "clusters": [{"name": "c", "cluster": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"auth-provider": provider}}],
        "current-context": "c",
    }
    loader, configuration = KubeConfigLoader(config), Configuration()
    loader.load_and_set(configuration)
    expiry: dt.datetime | None = getattr(loader, "expiry", None)
    token = configuration.api_key.get("BearerToken", "").removeprefix("Bearer ")
    return token, expiry.timestamp() if expiry else None


def _cause(error: Exception) -> str:
    """Leaves out the arguments of a command, which may be secrets."""
    lines = [line for line in str(error).partition("{")[0].splitlines() if not line.startswith("Cmd:")]
    return f"{type(error).__name__}: {' '.join(lines)}"[:500]


if __name__ == "__main__":
    main()
