"""The health check for Argo CD that the documentation ships, run by Lua."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
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
