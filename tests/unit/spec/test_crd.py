"""The CRD and the models agree: no field is known to one and unknown to the other, and bounds
and defaults are the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from cdcsync_core.resource.quantity import parse_cpu, parse_seconds, parse_size
from cdcsync_core.resource.spec import API_VERSIONS, VERSION, Spec
from cdcsync_core.runs.status import Status
from cdcsync_core.runs.status_part import StatusPosition, StatusServer, StatusSplit, StatusWatermark
from cdcsync_operator.cluster.policy.pod_policy import ALLOWED_BY, COMMANDS, CONTAINER_FIELDS, POD_FIELDS, VOLUMES

ROOT = Path(__file__).resolve().parents[3]
CRD = ROOT / "crds" / "cdcsync.yaml"
#: of an object in etcd
MOST_BYTES = 1536 * 1024

#: the API server may not know the host's address, or takes a form that the model has filled in
#: before it checks
REQUIRED_BY_THE_MODEL_ONLY = {
    "source.tls", "source.tls.mode", "source.tls.caSecretRef.name", "source.tls.clientCertSecretRef.name",
    "sink.kafka.tls", "sink.kafka.tls.mode", "sink.kafka.tls.caSecretRef.name",
    "sink.kafka.tls.clientCertSecretRef.name",
    "sink.mysql.tls", "sink.mysql.tls.mode", "sink.mysql.tls.caSecretRef.name",
    "sink.mysql.tls.clientCertSecretRef.name",
    "sink.postgresql.tls", "sink.postgresql.tls.mode", "sink.postgresql.tls.caSecretRef.name",
    "sink.postgresql.tls.clientCertSecretRef.name",
}  # fmt: skip
#: left to the model, so that an empty reference stays empty; and what follows from the section
DEFAULT_BY_THE_MODEL_ONLY = {
    "sink.type",
    *(f"{section}.tls.caSecretRef.key" for section in ("source", "sink.kafka", "sink.mysql", "sink.postgresql")),
}
#: the same language of table names; `(?s)` is not a pattern of JSON schema
SAME_PATTERN = {r"(?s)^.+\..+$": r"^[\s\S]+\.[\s\S]+$", r"(?s)^(.+\..+)?$": r"^([\s\S]+\.[\s\S]+)?$"}


def version() -> dict[str, Any]:
    return yaml.safe_load(CRD.read_text())["spec"]["versions"][0]


def schema_of(part: str) -> dict[str, Any]:
    return version()["schema"]["openAPIV3Schema"]["properties"][part]


def pairs(
    model: type[BaseModel], crd: dict[str, Any], mode: Any
) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Every (path, schema of the model, schema of the CRD), from the top."""
    schema = model.model_json_schema(by_alias=True, mode=mode)
    definitions = schema.get("$defs", {})

    def resolved(node: dict[str, Any]) -> dict[str, Any]:
        options = [o for o in node.get("anyOf", []) if o.get("type") != "null"]
        if len(options) == 1:
            node = {k: v for k, v in node.items() if k != "anyOf"} | options[0]
        if "$ref" in node:
            node = definitions[node["$ref"].rpartition("/")[2]] | {k: v for k, v in node.items() if k != "$ref"}
        return node

    def walk(path: str, mine: dict[str, Any], theirs: dict[str, Any]) -> Iterator[Any]:
        mine = resolved(mine)
        yield path, mine, theirs
        for name, node in mine.get("properties", {}).items():
            if name in theirs.get("properties", {}):
                yield from walk(f"{path}.{name}".lstrip("."), node, theirs["properties"][name])
        if isinstance(mine.get("items"), dict) and "items" in theirs:
            yield from walk(f"{path}[]", mine["items"], theirs["items"])

    yield from walk("", schema, crd)


SPEC = list(pairs(Spec, schema_of("spec"), "validation"))
#: parts that go out as they were written, of which the model describes only what comes in
AS_WRITTEN = {
    "source": StatusServer, "position": StatusPosition, "tableStatus[].low": StatusPosition, "tableStatus[].high": StatusWatermark,
    "tableStatus[].position": StatusPosition, "tableStatus[].finished[]": StatusSplit,
}  # fmt: skip


def status_pairs() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for path, model, crd in pairs(Status, schema_of("status"), "serialization"):
        part = AS_WRITTEN.get(path)
        if part is None:
            yield path, model, crd
        else:
            yield from ((f"{path}.{name}".rstrip("."), *both) for name, *both in pairs(part, crd, "validation"))


STATUS = list(status_pairs())
OBJECTS = [(p, m, c) for p, m, c in [*SPEC, *STATUS] if "properties" in m]
SCALARS = [(p, m, c) for p, m, c in SPEC if m.get("type") in ("integer", "string", "boolean", "number", "array")]


@pytest.mark.parametrize(("path", "model", "crd"), OBJECTS, ids=[p or "(top)" for p, _, _ in OBJECTS])
def test_fields_are_the_same(path: str, model: dict[str, Any], crd: dict[str, Any]) -> None:
    assert sorted(crd["properties"]) == sorted(model["properties"])


@pytest.mark.parametrize(("path", "model", "crd"), [o for o in SPEC if "properties" in o[1]])
def test_required_fields_are_the_same(path: str, model: dict[str, Any], crd: dict[str, Any]) -> None:
    wanted = [n for n in model.get("required", []) if f"{path}.{n}".lstrip(".") not in REQUIRED_BY_THE_MODEL_ONLY]
    assert sorted(crd.get("required", [])) == sorted(wanted)


@pytest.mark.parametrize(("path", "model", "crd"), SCALARS, ids=[p for p, _, _ in SCALARS])
def test_bounds_patterns_and_defaults_are_the_same(path: str, model: dict[str, Any], crd: dict[str, Any]) -> None:
    if crd.get("x-kubernetes-int-or-string"):
        check_quantity(model, crd)
        return
    for name in ("type", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"):
        if name in model:
            assert crd.get(name) == model[name], name
    if "pattern" in model:
        assert crd["pattern"] == SAME_PATTERN.get(model["pattern"], model["pattern"])
    choices = model.get("enum", [model["const"]] if "const" in model else None)
    assert crd.get("enum") == choices
    default = model.get("default")
    if default not in (None, []) and path not in DEFAULT_BY_THE_MODEL_ONLY:
        assert crd["default"] == default


def check_quantity(model: dict[str, Any], crd: dict[str, Any]) -> None:
    """A size, a duration or CPU: a text with a unit, whose bounds are in a rule and in its
    message."""
    (rule,) = crd["x-kubernetes-validations"]
    parse = parse_size if model["type"] == "integer" else parse_seconds
    if rule["message"].startswith("cpu "):
        parse = parse_cpu
    assert ("default" in crd) == (model.get("default") is not None)
    assert "default" not in crd or parse(crd["default"]) == model["default"]
    least, most = re.search(r"is between (\S+) and (\S+)$", rule["message"]).groups()  # type: ignore[union-attr]
    assert (parse(least), parse(most)) == (model["ge"], model["le"])
    assert re.findall(r"'(\d+[a-zA-Z]*)'", rule["rule"]) == [least, most]
    assert parse(least.zfill(crd["maxLength"])) == parse(least)
    with pytest.raises(ValueError, match=f"at most {crd['maxLength']} characters"):
        parse(least.zfill(crd["maxLength"] + 1))


def test_nothing_that_is_not_described_is_stored() -> None:
    """What is written into a resource has the form of its fields, a status like a spec."""
    assert "x-kubernetes-preserve-unknown-fields" not in CRD.read_text()
    assert [path for path, model, _ in STATUS if model.get("additionalProperties") is True] == []
    assert {path for path, *_ in STATUS} >= {
        "source.gtid",
        "tableStatus[].low.anchor.file",
        "tableStatus[].finished[].end",
    }


@pytest.mark.parametrize("part", ["spec", "status"])
def test_every_text_list_and_map_has_a_bound(part: str) -> None:
    def unbounded(path: str, node: dict[str, Any]) -> Iterator[str]:
        bound = {"string": "maxLength", "array": "maxItems"}.get(node.get("type", ""))
        if (bound and bound not in node and not {"enum", "format"} & node.keys()) or (
            "additionalProperties" in node and "maxProperties" not in node
        ):
            yield path
        for name, child in node.get("properties", {}).items():
            yield from unbounded(f"{path}.{name}", child)
        if "items" in node:
            yield from unbounded(f"{path}[]", node["items"])

    assert list(unbounded(part, schema_of(part))) == []


def test_the_texts_of_a_status_go_out_within_their_bounds() -> None:
    bounds = {path: (model["maxLength"], crd["maxLength"]) for path, model, crd in STATUS if "maxLength" in model}
    assert {path.rpartition(".")[2] for path in bounds} >= {"message", "statement", "program", "reason", "version"}
    assert [path for path, (ours, theirs) in bounds.items() if ours != theirs] == []


def test_nothing_unseen_passes_for_healthy() -> None:
    assert schema_of("status")["default"] == {"observedGeneration": -1}


def test_all_versions_are_the_same() -> None:
    """An object is not converted between them, so what one version takes the other has to."""
    versions = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    assert [f"cdcsync.io/{v['name']}" for v in versions] == list(API_VERSIONS)
    own = ("name", "storage")
    first, *others = ({k: v for k, v in version.items() if k not in own} for version in versions)
    assert others == [first]
    assert [v["name"] for v in versions if v["storage"]] == [VERSION]


def test_the_crd_leaves_room_in_what_an_api_server_stores() -> None:
    """An object of etcd has 1.5 MiB at most, and a release of Helm, compressed, 1 MiB."""
    assert len(json.dumps(yaml.safe_load(CRD.read_text()))) < MOST_BYTES // 2


def test_a_pod_template_has_the_fields_that_the_policy_can_allow() -> None:
    """What the API server does not know it drops; so whatever a policy allows has to be known."""
    for part in ("driver", "executors"):
        pod = schema_of("spec")["properties"][part]["properties"]["podTemplate"]["properties"]["spec"]["properties"]
        assert pod.keys() == POD_FIELDS | ALLOWED_BY.keys()
        for containers in ("containers", "initContainers"):
            assert pod[containers]["items"]["properties"].keys() == CONTAINER_FIELDS | COMMANDS
        assert pod["volumes"]["items"]["properties"].keys() > VOLUMES
        assert "hostPath" not in pod["volumes"]["items"]["properties"]


def test_columns_are_those_of_the_interface() -> None:
    columns = version()["additionalPrinterColumns"]
    assert [c["name"] for c in columns if not c.get("priority")] == [
        "Phase",
        "Ready",
        "Tables",
        "Snapshot",
        "Lag",
        "Age",
    ]
    assert [c["name"] for c in columns if c.get("priority")] == ["Source", "Sink", "Position", "Message"]


def test_every_field_of_spec_and_status_is_described() -> None:
    """`kubectl explain` answers for each."""
    assert not [m for part in ("spec", "status") for m in undescribed(schema_of(part), part)]


def undescribed(schema: dict[str, Any], path: str) -> list[str]:
    missing = [] if "description" in schema else [path]
    if path.endswith(".podTemplate"):  # the fields of a pod are those of Kubernetes
        return missing
    for name, field in schema.get("properties", {}).items():
        missing += undescribed(field, f"{path}.{name}")
    items = schema.get("items", {})
    return missing + [
        m for name, field in items.get("properties", {}).items() for m in undescribed(field, f"{path}[].{name}")
    ]


def test_the_manual_lists_every_field_that_cannot_be_changed() -> None:
    """In one row of "Changing the spec": fields, then `sink.kind`."""
    page = (ROOT / "docs" / "operator.md").read_text()
    (row,) = re.findall(r"^\| (.*) \| refused: another CdcSync has another place \|$", page, re.M)
    listed = {
        f"{kind}.{field}"
        for fields, kind in (re.findall(r"(.*) of `([\w.]+)`", part)[0] for part in row.split("; "))
        for field in re.findall(r"`([\w.]+)`", fields)
    }
    assert listed == set(_unchangeable(schema_of("spec"), ""))


def _unchangeable(schema: dict[str, Any], path: str) -> Iterator[str]:
    if any(rule["rule"] == "self == oldSelf" for rule in schema.get("x-kubernetes-validations", [])):
        yield path.removeprefix(".")
    for name, field in schema.get("properties", {}).items():
        yield from _unchangeable(field, f"{path}.{name}")
