"""The image makes its archive of Spark's classes from a few files, before the product is there:
they may need no others of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def imports(file: Path) -> set[str]:
    """The product's modules that it names, as paths."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cdcsync_"):
            module = str(node.module).replace(".", "/")
            folder = (ROOT / "spark_app" / module).is_dir()
            found |= {f"{module}/{a.name}.py" for a in node.names} if folder else {f"{module}.py"}
    return found


def test_what_the_archive_is_made_with_is_all_there() -> None:
    warm, _, _ = (ROOT / "Dockerfile").read_text(encoding="utf-8").partition("cdcsync_spark.engine.class_archive")
    copied = set(re.findall(r"spark_app/(cdcsync_spark/engine/\w+\.py)", warm))
    assert {"cdcsync_spark/engine/start.py", "cdcsync_spark/engine/class_archive.py"} <= copied
    for name in copied:
        assert imports(ROOT / "spark_app" / name) <= copied, name
