"""The figure of the rooms in the manual: the floors are the import layers of `pyproject.toml`, the
arrows are the imports of the code.

An arrow is left out where a longer way says it already, so that the figure stays readable.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_SOURCES = {"cdcsync_operator": ROOT / "operator", "cdcsync_spark": ROOT / "spark_app"}
#: what starts a program, and an alias of a public module: no rooms
_NO_ROOMS = frozenset({"__main__", "datasource"})
_WIDTH, _HEIGHT, _GAP, _FLOOR, _PANEL = 104, 34, 16, 70, 420

#: to the side, so that an arrow that passes the floor does not run through the room
_SHIFTS = {"delivery": -120}

Floors = list[list[str]]
Arrows = set[tuple[str, str]]


def floors(package: str) -> Floors:
    """The rooms of a package from the top floor down."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c.get("containers") == [package])
    rooms = [[name for name in layer.split(" | ") if name not in _NO_ROOMS] for layer in layers]
    return [floor for floor in rooms if floor]


def arrows(package: str) -> Arrows:
    """(room, room that it imports)."""
    folder = _SOURCES[package] / package
    pairs = set()
    for path in folder.rglob("*.py"):
        room = path.relative_to(folder).parts[0]
        for module in _imported(path):
            package_of, _, rest = module.partition(".")
            other = rest.partition(".")[0]
            if package_of == package and other and other != room and not {room, other} & _NO_ROOMS:
                pairs.add((room, other))
    return _reduced({(a, b) for a, b in pairs if not a.endswith(".py")})


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _reduced(pairs: Arrows) -> Arrows:
    """The arrows without those that a longer way makes, too."""
    direct: dict[str, set[str]] = {}
    for a, b in pairs:
        direct.setdefault(a, set()).add(b)

    def reached(room: str) -> set[str]:
        below = direct.get(room, set())
        return below | {further for other in below for further in reached(other)}

    return {(a, b) for a, b in pairs if not any(b in reached(other) for other in direct[a] - {b})}


def svg() -> str:
    """Both packages beside each other, the packages that they stand on below."""
    panels = {name: floors(name) for name in _SOURCES}
    height = 50 + _FLOOR * max(len(rooms) for rooms in panels.values())
    parts = []
    for number, (name, rooms) in enumerate(panels.items()):
        left = 20 + number * (_PANEL + 20)
        parts += [*_panel(name, left, height), *_drawn(rooms, arrows(name), left, height)]
    parts += _below(height + 60)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _PANEL + 60} {height + 190}" '
        'font-family="system-ui, sans-serif" font-size="14" role="img" aria-label="The rooms of the code">\n'
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#5c6bc0"/></marker></defs>'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _panel(name: str, left: int, height: int) -> Iterator[str]:
    yield f'<rect x="{left}" y="10" width="{_PANEL}" height="{height}" rx="10" fill="#fafafa" stroke="#9fa8da"/>'
    yield f'<text x="{left + 12}" y="30" fill="#37474f">{name}</text>'


def _drawn(rooms: Floors, lines: Arrows, left: int, height: int) -> Iterator[str]:
    places = dict(_places(rooms, left, height))
    for a, b in sorted(lines):
        (ax, ay), (bx, by) = places[a], places[b]
        yield _arrow(ax, ay + _HEIGHT, bx, by)
    for name, (x, y) in places.items():
        yield _box(name, x, y)


def _places(rooms: Floors, left: int, height: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """The middle of the upper edge of each room; the floors are spread over the height."""
    step = (height - 60) // len(rooms)
    for number, floor in enumerate(rooms):
        width = len(floor) * _WIDTH + (len(floor) - 1) * _GAP
        x = left + (_PANEL - width) // 2 + _WIDTH // 2
        for name in floor:
            yield name, (x + _SHIFTS.get(name, 0), 46 + number * step)
            x += _WIDTH + _GAP


def _box(name: str, x: int, y: int, width: int = _WIDTH) -> str:
    return (
        f'<rect x="{x - width // 2}" y="{y}" width="{width}" height="{_HEIGHT}" rx="6" fill="#e8eaf6" stroke="#5c6bc0"/>'
        f'<text x="{x}" y="{y + 22}" text-anchor="middle" fill="#1a237e">{name}</text>'
    )


def _arrow(ax: int, ay: int, bx: int, by: int) -> str:
    return f'<path d="M{ax} {ay} {bx} {by - 1}" stroke="#5c6bc0" stroke-width="1.3" marker-end="url(#a)"/>'


#: the packages below, as in the contracts of pyproject.toml
BELOW: Mapping[int, tuple[str, ...]] = {0: ("cdcsync_mysql", "cdcsync_kube", "cdcsync_lake"), 1: ("cdcsync_core",)}


def _below(top: int) -> Iterator[str]:
    middle, width = _PANEL + 30, 140
    for panel in (20 + _PANEL // 2, 40 + _PANEL + _PANEL // 2):
        yield _arrow(panel, top - 50, middle + (panel - middle) // 3, top)
    for x in (middle - 170, middle, middle + 170):
        yield _arrow(x, top + _HEIGHT, middle, top + _FLOOR)
    for row, names in BELOW.items():
        for number, name in enumerate(names):
            yield _box(name, middle + (number - len(names) // 2) * 170, top + row * _FLOOR, width)
