"""Counts in the code what can be counted of the rules of its words: `python tools/words.py`.

A docstring begins with a verb or the thing's own noun; a variable is named by what is in it; a
class name is one thing; a test imports helpers from `tests/support`, not from another test, and
calls nothing a world.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("core", "operator", "spark_app", "demo", "tools")
TESTS = ("tests",)
_OPENING = re.compile(r"(Of|With|By|Behind|Those|Without)\b")
_EMPTY_NAMES = frozenset({"found", "known", "kept", "made", "theirs", "mine", "wanted"})
_TEST_MODULE = re.compile(r"(^|\.)test_\w+$")

#: a line, and what is wrong there
Fault = tuple[int, str]
Rule = Callable[[ast.Module], Iterator[Fault]]


def docstrings(tree: ast.Module) -> Iterator[Fault]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            opening = _OPENING.match(ast.get_docstring(node) or "")
            if opening:
                yield getattr(node, "lineno", 1), f"a docstring that begins with {opening[0]}"


def names(tree: ast.Module) -> Iterator[Fault]:
    """`found` as a text is what an error has found, beside what it needed and its remedy."""
    of_errors = _texts_of_errors(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        else:
            continue
        if name in _EMPTY_NAMES and node not in of_errors:
            yield node.lineno, f"a variable `{name}`: name it by what is in it"


def _texts_of_errors(tree: ast.Module) -> set[ast.AST]:
    texts: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg == "found":
            if isinstance(node.annotation, ast.Name) and node.annotation.id == "str":
                texts.add(node)
        elif isinstance(node, ast.ClassDef):
            texts.update(_fields_of_errors(node))
        elif isinstance(node, ast.Assign):
            texts.update(name for name, value in _assigned(node) if name.id == "found" and _is_text(value))
    return texts


def _fields_of_errors(node: ast.ClassDef) -> Iterator[ast.AST]:
    fields = {f.target.id: f for f in node.body if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)}
    if "found" in fields and "needed" in fields:
        yield fields["found"].target


def _assigned(node: ast.Assign) -> Iterator[tuple[ast.Name, ast.expr]]:
    for target in node.targets:
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=False))
        yield from ((name, value) for name, value in pairs if isinstance(name, ast.Name))


def _is_text(value: ast.expr) -> bool:
    if isinstance(value, ast.IfExp):
        return _is_text(value.body) or _is_text(value.orelse)
    return isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str))


def helpers(tree: ast.Module) -> Iterator[Fault]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and _TEST_MODULE.search(node.module or ""):
            yield node.lineno, f"an import from the test {node.module}: move the helper to tests/support"


def worlds(tree: ast.Module) -> Iterator[Fault]:
    for node in ast.walk(tree):
        name = node.arg if isinstance(node, ast.arg) else getattr(node, "id", "") or getattr(node, "name", "")
        if isinstance(name, str) and name.strip("_").lower() == "world":
            yield getattr(node, "lineno", 1), f"`{name}`: say what it is"


#: a rule, where it holds
RULES: tuple[tuple[Rule, tuple[str, ...]], ...] = (
    (docstrings, (*PRODUCT, *TESTS)),
    (names, PRODUCT),
    (helpers, TESTS),
    (worlds, TESTS),
)


def shared_classes(trees: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """The files of each class name that several modules define at their top."""
    files: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                files[node.name].append(path)
    return {name: paths for name, paths in sorted(files.items()) if len(paths) > 1}


def read_trees(folders: tuple[str, ...], root: Path = ROOT) -> dict[str, ast.Module]:
    paths = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    return {str(path.relative_to(root)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def faults(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """A line for each fault. A class of the tests may have the name of one of the product."""
    for rule, folders in RULES:
        for path, tree in _within(trees, folders).items():
            yield from (f"{path}:{line}: {text}" for line, text in rule(tree))
    for folders in (PRODUCT, TESTS):
        for name, paths in shared_classes(_within(trees, folders)).items():
            yield f"class {name} is in {', '.join(paths)}"


def _within(trees: Mapping[str, ast.Module], folders: tuple[str, ...]) -> dict[str, ast.Module]:
    return {path: tree for path, tree in trees.items() if path.split("/")[0] in folders}


def main() -> int:
    wrong = list(faults(read_trees((*PRODUCT, *TESTS))))
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    if wrong:
        sys.stderr.write("mend these lines; CONTRIBUTING.md, Rules of the house, has the rules\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
