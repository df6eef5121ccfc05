"""Label selectors, as `kubectl -l` takes them: which CdcSyncs are this release's.

Why it exists: the API server selects what is listed and watched, but a sync whose labels change is
met once more, by its name: then it is another release's. Source: "Labels and Selectors",
https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_KEY = r"(?P<key>(?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_EXISTS = re.compile(rf"(?P<no>!?)\s*{_KEY}")
_EQUALS = re.compile(rf"{_KEY}\s*(?P<op>==|=|!=)\s*(?P<value>{_VALUE})")
_IN = re.compile(rf"{_KEY}\s+(?P<op>in|notin)\s*\((?P<values>\s*{_VALUE}\s*(?:,\s*{_VALUE}\s*)*)\)")
#: a comma that is not in parentheses
_BORDER = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True)
class Requirement:
    """`values` None: any value. `refused`: the label is to be absent, or to have none of them."""

    key: str
    values: frozenset[str] | None
    refused: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        met = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return met is not self.refused


def parse_selector(text: str) -> tuple[Requirement, ...]:
    """None of an empty text, which selects everything. Raises ValueError, with what was found."""
    return tuple(_requirement(part.strip()) for part in _BORDER.split(text)) if text.strip() else ()


def _requirement(part: str) -> Requirement:
    if match := _EXISTS.fullmatch(part):
        return Requirement(match["key"], None, bool(match["no"]))
    if match := _EQUALS.fullmatch(part):
        return Requirement(match["key"], frozenset({match["value"]}), match["op"] == "!=")
    if match := _IN.fullmatch(part):
        values = frozenset(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], values, match["op"] == "notin")
    raise ValueError(f"{part!r} is no requirement of a label selector")


def selects(requirements: tuple[Requirement, ...], labels: Mapping[str, str]) -> bool:
    return all(requirement.holds(labels) for requirement in requirements)
