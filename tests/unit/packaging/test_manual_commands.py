"""What the manual tells to type is there: commands and their options, targets of make, values of
the chart, fields of the resource, metrics, labels; and its manifests are valid.

Reference pages are left out: they are generated. Pages of shell commands for another program
(docker, kind, mysql) are theirs to check.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdcsync_core.resource.manifest import parse_resource, read_yaml
from cdcsync_core.resource.spec import KIND
from cdcsync_operator.cli.main import cli

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = {page: page.read_text(encoding="utf-8") for page in PAGES}
SPANS = {page: re.findall(r"`([^`\n]+)`", text) for page, text in TEXT.items()}
SOURCES = [p for root in ("core", "operator", "spark_app", "helm") for p in (ROOT / root).rglob("*.*")]


def _code(page: Path) -> Iterator[str]:
    """Lines of code blocks, continued ones joined, and spans; without comments."""
    for block in re.findall(r"```\w*\n(.*?)```", TEXT[page], re.DOTALL):
        yield from (line.partition(" #")[0].strip() for line in block.replace("\\\n", " ").splitlines())
    yield from (line.partition(" #")[0].strip() for line in re.findall(r"^    (\S.*)$", TEXT[page], re.MULTILINE))
    yield from SPANS[page]


def _blocks(language: str) -> Iterator[tuple[Path, str]]:
    for page, text in TEXT.items():
        yield from ((page, block) for block in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL))


@functools.cache
def _crd() -> dict[str, Any]:
    crd = yaml.safe_load((ROOT / "crds" / "cdcsync.yaml").read_text(encoding="utf-8"))
    schema: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return schema


def _has(schema: dict[str, Any], path: list[str]) -> bool:
    for name in path:
        schema = schema.get("items", schema)
        if "properties" not in schema:  # a map, or a form that Kubernetes checks (a podTemplate)
            return schema.get("type") == "object"
        if name not in schema["properties"]:
            return False
        schema = schema["properties"][name]
    return True


def _unknown(schema: dict[str, Any], value: Any, at: str = "") -> Iterator[str]:
    """Keys of a part of a manifest that the schema does not have."""
    if isinstance(value, list):
        for item in value:
            yield from _unknown(schema.get("items", {}), item, at)
    elif isinstance(value, dict) and "properties" in schema:
        for name, part in value.items():
            if name not in schema["properties"]:
                yield f"{at}.{name}"
            else:
                yield from _unknown(schema["properties"][name], part, f"{at}.{name}")


def test_every_command_and_its_options_exist() -> None:
    count = 0
    for page in PAGES:
        for line in _code(page):
            if not (found := re.match(r"cdcsync +([a-z]+)( .*)?$", line)):
                continue
            command = cli.commands.get(found[1])
            assert command is not None, f"{page.name}: {line}"
            options = {name for parameter in command.params for name in parameter.opts} | {"-h", "--help"}
            named = set(re.findall(r"(?<!\S)--?[a-zA-Z][\w-]*", found[2] or ""))
            assert named <= options, f"{page.name}: {line}"
            count += 1
    assert count > 15


def test_every_target_of_make_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        (page.name, found[1]) for page in PAGES for line in _code(page) if (found := re.match(r"make ([\w-]+)", line))
    }
    assert len(named) > 5
    assert {(page, target) for page, target in named if target not in targets} == set()


def test_every_value_of_the_chart_exists() -> None:
    values = yaml.safe_load((ROOT / "helm" / "cdcsync" / "values.yaml").read_text(encoding="utf-8"))
    for page in PAGES:
        for line in _code(page):
            for key in re.findall(r"--set(?:-string|-json)?[ =]'?([\w.]+)=", line):
                found: Any = values
                for name in key.split("."):
                    assert isinstance(found, dict), f"{page.name}: {key}"
                    assert name in found, f"{page.name}: {key}"
                    found = found[name]


def test_every_metric_exists() -> None:
    reference = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    known = set(re.findall(r"\bcdcsync_\w+", reference))
    packages = {path.name for root in ("core", "operator", "spark_app", "demo") for path in (ROOT / root).iterdir()}
    for page in PAGES:
        for name in re.findall(r"(?<![\w/.])cdcsync_\w+", TEXT[page]):
            series = re.sub(r"_(bucket|sum|count)$", "", name)
            assert name in packages or {name, series} & known, f"{page.name}: {name}"


def test_every_label_and_annotation_exists() -> None:
    code = "\n".join(p.read_text(encoding="utf-8") for p in SOURCES if p.suffix in (".py", ".yaml", ".tpl"))
    for page in PAGES:
        for name in re.findall(r"\bcdcsync\.io/([a-z][a-z-]+)", TEXT[page]):
            assert f"/{name}" in code, f"{page.name}: cdcsync.io/{name}"


def test_every_field_exists() -> None:
    """`snapshot.chunkSize` and `spec.snapshot.chunkSize` in the text are fields of the resource."""
    schema, checked = _crd(), 0
    for page in PAGES:
        # these name modules, or members of records, in this form
        if page.name in ("architecture.md", "CONTRIBUTING.md", "kafka-formats.md"):
            continue
        for span in SPANS[page]:
            path = span.partition(":")[0].replace("[]", "").split(".")
            if len(path) < 2 or not all(re.fullmatch(r"[a-z]\w*", name) for name in path) or path[-1] == "py":
                continue
            if path[0] == "image":  # a value of the chart
                continue
            if path[0] in ("spec", "status"):
                assert _has(schema[path[0]], path[1:]), f"{page.name}: {span}"
                checked += 1
            elif path[0] in schema["spec"]["properties"]:
                assert _has(schema["spec"], path), f"{page.name}: {span}"
                checked += 1
    assert checked > 40


@pytest.mark.parametrize(("page", "block"), [b for b in _blocks("yaml") if f"kind: {KIND}" in b[1]])
def test_every_manifest_is_valid(page: Path, block: str) -> None:
    (document,) = [d for d in read_yaml(block) if d["kind"] == KIND]
    assert parse_resource(document).spec.tables.include, page.name


@pytest.mark.parametrize(("page", "block"), [b for b in _blocks("yaml") if "kind:" not in b[1]])
def test_every_part_of_a_manifest_has_known_fields(page: Path, block: str) -> None:
    part = yaml.safe_load(block)
    spec = _crd()["spec"]
    if isinstance(part, dict) and set(part) <= {"spec", "metadata"}:
        assert not list(_unknown(spec, part.get("spec", {}))), page.name
    elif isinstance(part, dict) and set(part) <= set(spec["properties"]):
        assert not list(_unknown(spec, part)), page.name
