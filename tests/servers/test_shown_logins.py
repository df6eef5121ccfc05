"""A login that a real server refuses: what its Secret has is in no status, event or log.

The server repeats the account's name in its answer, so a spec that took the password for the name
would show it.
"""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cdcsync_core.runs.status import Condition, Status
from cdcsync_operator.cluster.controller import KubeController
from cdcsync_operator.cluster.objects.driver_pod import Image
from cdcsync_operator.cluster.policy.pod_policy import PodPolicy
from cdcsync_operator.cluster.settings import OperatorSettings
from cdcsync_operator.reconcile.source_calls import CALLS
from support.servers import Server
from unit.cluster.fake_api import FakeApi
from unit.controller.harness import resource

pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]
_SYNCS, _SECRETS = "/apis/cdcsync.io/v1alpha1/namespaces/lake/cdcsyncs", "/api/v1/namespaces/lake/secrets"
#: longer than the part of a name that servers repeat
_HIDDEN = "hunter2-" + "never-shown-" * 5


@contextmanager
def _syncing(server: Server, keys: dict[str, str], **annotations: str) -> Iterator[tuple[FakeApi, KubeController]]:
    """The operator's controller of one sync on a simulated API server; its source is `server`."""
    api = FakeApi()
    named = {f"cdcsync.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
    about = {"name": "victim", "labels": {"cdcsync.io/source": "true"}, "annotations": named}
    texts = {"username": "nobody", "password": _HIDDEN}
    api.add(_SECRETS, {"metadata": about, "data": {k: base64.b64encode(t.encode()).decode() for k, t in texts.items()}})
    account = {"name": "victim"} | keys
    source = {"host": server.host, "port": server.port, "credentialsSecretRef": account, "tls": {"mode": "disabled"}}
    body = resource(source=source).model_dump(by_alias=True, mode="json", exclude_none=True)
    api.add(_SYNCS, body | {"metadata": {"name": "shop", "namespace": "lake", "uid": "u", "generation": 1}})
    settings = OperatorSettings(Image("x"), PodPolicy())
    controller = KubeController(api, settings, "lake", "shop", CALLS, time.time, lambda: None)
    try:
        yield api, controller
    finally:
        controller.close()


def _source_ready(api: FakeApi, controller: KubeController) -> Condition:
    """The condition once it is known."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        controller.reconcile()
        condition = Status.model_validate(api.objects[f"{_SYNCS}/shop"].get("status") or {}).condition("SourceReady")
        if condition.status == "False":
            return condition
        time.sleep(0.05)
    raise AssertionError("the source was not judged")


def _shown(api: FakeApi, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> str:
    """All that others than the Secret's readers see."""
    objects = {path: found for path, found in api.objects.items() if not path.startswith(_SECRETS)}
    return "".join((json.dumps(objects), json.dumps(api.bodies), caplog.text, *capfd.readouterr()))


@pytest.mark.parametrize(
    ("keys", "annotations", "reason", "found"),
    [
        ({"usernameKey": "password"}, {}, "SpecInvalid", "names its key password as usernameKey"),
        ({"usernameKey": "password"}, {"username_key": "password"}, "AuthenticationFailed", "***"),
        ({}, {}, "AuthenticationFailed", "nobody"),
    ],
)
def test_a_refused_login_shows_nothing_of_the_secret(
    any_server: Server,
    keys: dict[str, str],
    annotations: dict[str, str],
    reason: str,
    found: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    with _syncing(any_server, keys, **annotations) as (api, controller):
        condition = _source_ready(api, controller)
        shown = _shown(api, caplog, capfd)
    assert condition.reason == reason
    assert found in condition.message
    assert _HIDDEN[:8] not in shown
