"""The manual is what the code is: its generated pages, its reasons, and the files that it names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

from cdcsync_core.errors import Reason
from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.status import Phase

ROOT = Path(__file__).resolve().parents[3]


def test_the_generated_reference_is_that_of_the_code() -> None:
    command = [sys.executable, "tools/reference.py", "--check"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert found.returncode == 0, found.stderr


def test_every_reason_has_a_meaning_and_a_remedy() -> None:
    guide = tomllib.loads((ROOT / "tools" / "reasons.toml").read_text())
    assert list(guide) == [reason.value for reason in Reason]
    assert all(entry["meaning"] and entry["remedy"] for entry in guide.values())


def test_every_reason_of_a_condition_or_an_event_is_explained() -> None:
    """Whatever the decision names and is no failure, phase or condition is in the table, and the
    table has nothing else."""
    guide = tomllib.loads((ROOT / "tools" / "conditions.toml").read_text())
    conditions = {name for name in guide if name != "Events"} | {"Reconciling", "Stalled"}
    phases = {phase.value for phase in (*Phase, *TablePhase)}
    failures = {reason.value for reason in Reason}
    operator = ROOT / "operator" / "cdcsync_operator"
    decided = _names(operator / "decision")
    posted = _names(operator / "cluster" / "events.py") - {"Event", "Normal", "Warning"}
    explained = {reason for entry in guide.values() for reason in entry["reasons"]}
    known = explained | conditions | phases | failures | {"True", "False", "Unknown"}
    assert not decided - known
    assert not posted - known
    assert not explained - decided - posted - phases - failures


def _names(path: Path) -> set[str]:
    """Strings in the form of a reason, in a module or in those of a folder."""
    files = path.rglob("*.py") if path.is_dir() else [path]
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text())))
    found = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return {text for text in found if re.fullmatch(r"([A-Z][a-z]+)+", text)}


def test_no_page_loads_anything_from_another_host() -> None:
    """Figures are SVG files beside the pages: the theme would fetch what draws a Mermaid block."""
    for path in (ROOT / "docs").rglob("*.md"):
        text = path.read_text()
        assert "```mermaid" not in text, f"{path}: draw it as SVG in docs/assets"
        assert not re.search(r"<(img|script|link|iframe)|!\[[^\]]*\]\(https?:", text), path


def test_every_file_that_the_architecture_names_exists() -> None:
    """`name.py` behind a path is in the same folder."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    missing = []
    for cell in re.findall(r"\|([^|\n]*\.py`[^|\n]*)\|", text):
        folder = ROOT
        for name in re.findall(r"`([\w./]+\.py)`", cell):
            path = ROOT / name if "/" in name else folder / name
            folder = path.parent
            missing += [] if path.exists() else [str(path.relative_to(ROOT))]
    assert not missing


def test_every_module_that_the_architecture_names_exists() -> None:
    """`snapshot.table` is a module of a room, `cdcsync_mysql.positions.watermark` one of a
    package."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    operator, spark_app = ROOT / "operator" / "cdcsync_operator", ROOT / "spark_app" / "cdcsync_spark"
    rooms = {p.name: p for root in (operator, spark_app, ROOT / "core") for p in root.iterdir() if p.is_dir()}
    named = [name.split(".") for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", text)]
    modules = [(rooms[room], "/".join(rest)) for room, *rest in named if room in rooms and rest[-1] != "py"]
    assert len(modules) > 20
    assert not [str(p / rest) for p, rest in modules if not ((p / rest).is_dir() or (p / f"{rest}.py").is_file())]


def test_every_file_that_the_rules_name_exists() -> None:
    """`cdcsync_core/gates.py` is below one of the source roots; `tests/...` is below the root."""
    text = (ROOT / "docs" / "correctness.md").read_text()
    roots = (ROOT, ROOT / "core", ROOT / "operator", ROOT / "spark_app")
    named = re.findall(r"`((?:cdcsync_\w+|tests)/[\w./]+)`", text)
    assert len(named) > 40
    assert not [name for name in named if not any((root / name).exists() for root in roots)]


def test_the_figures_of_the_readme_are_those_of_performance() -> None:
    """A figure has one home; what the first screen repeats is there as it is written here."""
    readme, home = (ROOT / "README.md").read_text(), (ROOT / "docs" / "performance.md").read_text()
    measured = readme[readme.index("Measured on two cores") : readme.index("## The manual")]
    bullet = readme[readme.index("*A commit costs what it changes.*") : readme.index("*Schema changes are followed.*")]
    # a word or a digit on both sides would be a part of another number
    numbers = re.findall(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?![\w])", measured + bullet)
    assert len(numbers) > 10
    assert not [n for n in numbers if not re.search(rf"(?<![\w.,]){re.escape(n)}(?!\w|[.,]\d)", home)]


def test_seconds_of_cpu_are_on_the_pages_of_figures_alone() -> None:
    """Elsewhere a figure would grow old beside its home."""
    homes = {"performance.md", "comparison.md", "tuning.md"}
    pages = [p for p in (ROOT / "docs").glob("*.md") if p.name not in homes]
    stray = [p.name for p in pages if re.search(r"\d CPU (milli|micro)?seconds", p.read_text())]
    assert len(pages) > 15
    assert not stray


def test_every_page_is_in_the_navigation() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]

    def pages(node: object) -> set[str]:
        if isinstance(node, str):
            return {node}
        children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
        return {page for child in children for page in pages(child)}

    there = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    assert pages(navigation) == there
