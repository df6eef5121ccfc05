"""The health check and the actions for Argo CD that the documentation ships, run by Lua."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa import LuaRuntime

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "monitoring.md").read_text()


def health(**status: Any) -> tuple[str, str]:
    script = re.search(r"health\.cdcsync\.io_CdcSync: \|\n(.*?)```", TEXT, re.S)
    assert script
    lua = LuaRuntime(unpack_returned_tuples=True)
    lua.globals().obj = lua.table_from({"metadata": {"generation": 2}, "status": status}, recursive=True)
    found = lua.execute(textwrap.dedent(script[1]))
    return found["status"], found["message"]


def conditions(**values: str) -> list[dict[str, str]]:
    return [{"type": k, "status": v, "message": f"{k} says so"} for k, v in values.items()]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"observedGeneration": -1}, ("Progressing", "not observed yet")),
        ({"observedGeneration": 1, "conditions": conditions(Ready="True")}, ("Progressing", "not observed yet")),
        ({"observedGeneration": 2, "conditions": conditions(Ready="False")}, ("Progressing", "Ready says so")),
        (
            {"observedGeneration": 2, "conditions": conditions(Ready="True", Stalled="False")},
            ("Healthy", "Ready says so"),
        ),
        (
            {"observedGeneration": 2, "conditions": conditions(Ready="False", Stalled="True")},
            ("Degraded", "Stalled says so"),
        ),
        (
            {"observedGeneration": 2, "phase": "Paused", "conditions": conditions(Ready="False")},
            ("Suspended", "paused"),
        ),
    ],
)
def test_each_state_has_its_health(status: dict[str, Any], expected: tuple[str, str]) -> None:
    assert health(**status) == expected


def actions() -> dict[str, Any]:
    script = re.search(r"actions\.cdcsync\.io_CdcSync: \|\n(.*?)```", TEXT, re.S)
    assert script
    return dict(yaml.safe_load(textwrap.dedent(script[1])))


def disabled(**spec: Any) -> set[str]:
    lua = LuaRuntime(unpack_returned_tuples=True)
    lua.globals().obj = lua.table_from({"spec": spec}, recursive=True)
    found = lua.execute(actions()["discovery.lua"])
    return {name for name in found if found[name]["disabled"]}


def changed(action: str, **spec: Any) -> dict[str, Any]:
    (script,) = [a["action.lua"] for a in actions()["definitions"] if a["name"] == action]
    lua = LuaRuntime(unpack_returned_tuples=True)
    lua.globals().obj = lua.table_from({"spec": spec}, recursive=True)
    return dict(lua.execute(script)["spec"])


def test_each_action_changes_the_spec() -> None:
    assert changed("pause") == {"state": "paused"}
    assert changed("resume", state="paused") == {"state": "running"}
    assert changed("restart") == {"restartNonce": 1}
    assert changed("restart", restartNonce=4, state="running") == {"restartNonce": 5, "state": "running"}


def test_an_action_is_offered_where_it_changes_something() -> None:
    assert disabled() == disabled(state="running") == {"resume"}
    assert disabled(state="paused") == {"pause", "restart"}
