"""`kubectl explain` answers what a field does, its unit and its default: it prints a field's
description, and neither bounds nor defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
_VERSION = yaml.safe_load((ROOT / "crds" / "cdcsync.yaml").read_text())["spec"]["versions"][0]
_SCHEMA = _VERSION["schema"]["openAPIV3Schema"]["properties"]


def _fields(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Every field below: its path, its schema, whether it must be given; of lists `path[]`. The
    fields of a pod are those of Kubernetes, whose manual describes them."""
    if path.endswith(".podTemplate"):
        return
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field, name in schema.get("required", [])
        yield from _fields(f"{path}.{name}", field)
        yield from _fields(f"{path}.{name}[]", field.get("items", {}))


def _is_amount(field: dict[str, Any]) -> bool:
    """A number, a duration or a size."""
    return field.get("type") in ("integer", "number") or "x-kubernetes-int-or-string" in field


FIELDS = [*_fields("spec", _SCHEMA["spec"]), *_fields("status", _SCHEMA["status"])]
SPEC = [(path, field, required) for path, field, required in FIELDS if path.startswith("spec.")]
AMOUNTS = [(path, field, required) for path, field, required in SPEC if _is_amount(field)]
#: of an object its fields have them
WITH_DEFAULT = [
    (path, field) for path, field, _ in SPEC if field.get("default", "") != "" and "properties" not in field
]
#: they identify, and count nothing
WITHOUT_UNIT = {
    "spec.source.port",
    "spec.source.serverId",
    "spec.sink.iceberg.formatVersion",
    "spec.sink.mysql.port",
    "spec.sink.postgresql.port",
    "spec.restartNonce",
    "spec.resnapshot[].nonce",
    "spec.verify.nonce",
}
_UNIT = re.compile(
    r"\b(bytes|a duration like|seconds|rows|splits|sessions|entries|cores|executors|partitions|replicas|failed runs)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize(("path", "field"), [(p, f) for p, f, _ in FIELDS], ids=[p for p, _, _ in FIELDS])
def test_a_field_has_a_description(path: str, field: dict[str, Any]) -> None:
    assert re.search(r"\w{2}", field.get("description", "")), path


@pytest.mark.parametrize(("path", "field"), WITH_DEFAULT, ids=[p for p, _ in WITH_DEFAULT])
def test_a_description_ends_with_the_default_that_the_api_server_fills_in(path: str, field: dict[str, Any]) -> None:
    default = field["default"]
    shown = str(default).lower() if isinstance(default, bool) else default
    assert field["description"].endswith(f" Default: {shown}."), path


@pytest.mark.parametrize(("path", "field", "required"), AMOUNTS, ids=[p for p, _, _ in AMOUNTS])
def test_an_amount_has_its_unit_and_its_default(path: str, field: dict[str, Any], required: bool) -> None:
    text = field["description"]
    assert bool(_UNIT.search(text)) is (path not in WITHOUT_UNIT), f"{path}: {text}"
    assert required or re.search(r" Default: \S", text), f"{path}: {text}"
