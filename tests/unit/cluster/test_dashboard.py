"""The dashboards' queries, read by a parser of PromQL: they are well formed, and ask only for
metrics and labels that are served.

Grafana is not asked; what it fills in (`$namespace`) is a value of a matcher and may be anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest

from support.served_metrics import served

FILES = sorted((Path(__file__).resolve().parents[3] / "helm" / "cdcsync" / "files" / "dashboards").glob("*.json"))
DASHBOARDS = [json.loads(path.read_text()) for path in FILES]
TARGETS = [(panel["title"], target) for board in DASHBOARDS for panel in board["panels"] for target in panel["targets"]]
QUERIES = [v["query"] for board in DASHBOARDS for v in board["templating"]["list"] if v["type"] == "query"]
_OF_COUNTERS = {"rate", "irate", "increase", "resets"}
_CHOOSING = {"topk", "bottomk"}
_SET_OPERATORS = {"or", "and", "unless"}


def kinds() -> dict[str, str]:
    return dict(re.findall(r"^# TYPE (\S+) (\S+)", served(), re.M))


def labels() -> dict[str, frozenset[str]]:
    """The labels of a line that is served, by metric."""
    lines = re.findall(r"^(cdcsync_\w+)(?:{(.*)})? \S+$", served(), re.M)
    return {name: frozenset(re.findall(r'(\w+)="', found)) for name, found in lines}


class Query:
    """One expression. `labels` are those of its result; None for a scalar."""

    def __init__(self, text: str) -> None:
        self.names: set[str] = set()
        self.labels = self._of(promql.parse(text))

    def _of(self, node: Any) -> frozenset[str] | None:
        match node:
            case promql.NumberLiteral() | promql.StringLiteral():
                return None
            case promql.ParenExpr() | promql.UnaryExpr():
                return self._of(node.expr)
            case promql.MatrixSelector():
                return self._of(node.vector_selector)
            case promql.VectorSelector():
                return self._selected(node)
            case promql.Call():
                return self._called(node)
            case promql.AggregateExpr():
                return self._grouped(node)
            case promql.BinaryExpr():
                return self._joined(node)
        raise AssertionError(f"{type(node).__name__} is not handled yet")

    def _selected(self, node: Any) -> frozenset[str]:
        known = labels()
        assert node.name in known, f"{node.name} is not served"
        assert {m.name for m in node.matchers.matchers} <= known[node.name]
        self.names.add(node.name)
        return known[node.name]

    def _called(self, node: Any) -> frozenset[str] | None:
        for argument in node.args:
            if isinstance(argument, promql.MatrixSelector):
                counted = kinds()[argument.vector_selector.name] == "counter"
                assert counted == (node.func.name in _OF_COUNTERS), f"{node.func.name} of {argument}"
        found = [self._of(a) for a in node.args]
        return frozenset() if node.func.name == "vector" else next((la for la in found if la is not None), None)

    def _grouped(self, node: Any) -> frozenset[str]:
        inner = self._of(node.expr)
        assert inner is not None
        if node.modifier is None and str(node.op) in _CHOOSING:
            return inner
        by = frozenset(node.modifier.labels) if node.modifier else frozenset()
        assert node.modifier is None or node.modifier.type == promql.AggModifierType.By
        assert by <= inner, f"by {sorted(by - inner)}, which what is aggregated does not have"
        return by

    def _joined(self, node: Any) -> frozenset[str] | None:
        """The labels of both sides: where there is no `on` they match by all of them, so they must
        have the same."""
        left, right = self._of(node.lhs), self._of(node.rhs)
        assert node.modifier is None or node.modifier.matching is None
        if left is not None and right is not None and str(node.op) not in _SET_OPERATORS:
            assert left == right, f"{sorted(left)} never match {sorted(right)}"
        return right if left is None else left


@pytest.mark.parametrize(("title", "target"), TARGETS)
def test_a_panel_asks_for_what_is_served(title: str, target: dict[str, str]) -> None:
    query = Query(target["expr"])
    assert query.names, title
    shown = frozenset(re.findall(r"{{\s*(\w+)\s*}}", target.get("legendFormat", "")))
    assert shown <= (query.labels or frozenset()), "the legend names labels that the result does not have"


@pytest.mark.parametrize("query", QUERIES)
def test_a_variable_asks_for_a_label_that_is_served(query: str) -> None:
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
    assert found
    of = Query(found[1])
    assert found[2] in (of.labels or ())


def test_every_metric_of_the_operator_is_shown() -> None:
    asked = {name for _, target in TARGETS for name in Query(target["expr"]).names}
    assert {name for name in kinds() if "_driver_" not in name} <= asked


@pytest.mark.parametrize("board", DASHBOARDS, ids=[path.stem for path in FILES])
def test_the_variables_are_those_that_are_used(board: dict[str, Any]) -> None:
    used = {name for text in _strings(board["panels"]) for name in re.findall(r"\$\{?(\w+)", text)}
    assert used - {v["name"] for v in board["templating"]["list"]} == set()


def test_each_dashboard_is_one_of_its_own() -> None:
    assert [path.stem for path in FILES] == ["fleet", "sync"]
    assert len({board["uid"] for board in DASHBOARDS}) == len({board["title"] for board in DASHBOARDS}) == 2
    for board in DASHBOARDS:
        ids = [panel["id"] for panel in board["panels"]]
        assert len(set(ids)) == len(ids)


def _strings(found: Any) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, dict | list):
        for part in found.values() if isinstance(found, dict) else found:
            yield from _strings(part)


@pytest.mark.parametrize(
    "text",
    [
        "sum by (phase) (cdcsync_ready)",
        'cdcsync_lag_seconds{kind="stream"}',
        "cdcsync_no_such",
        "rate(cdcsync_lag_seconds[5m])",
        "deriv(cdcsync_reconcile_total[5m])",
        "cdcsync_lag_seconds / cdcsync_driver_lag_seconds",
    ],
)
def test_the_check_itself_sees_what_could_be_wrong(text: str) -> None:
    with pytest.raises(AssertionError):
        Query(text)
