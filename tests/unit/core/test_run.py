"""What controller and driver send each other survives the way as JSON, and holds no secret."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cdcsync_core.errors import DecodeError, PermanentError, Reason, TransientError, fail, from_json
from cdcsync_core.positions.chunk import Split
from cdcsync_core.runs.run import Decoder, PlanShard, Report, RunConfig, RunKind, TableAssignment
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId

TABLE = Capture(
    SourceTable(
        TableId("shop", "orders"),
        (Column("id", SourceType.parse("int"), False), Column("x", SourceType.parse("enum('ä')", "utf8mb4"))),
    ),
    ("id",),
    frozenset({"x"}),
)


def test_a_run_comes_back_from_its_file() -> None:
    config = RunConfig(
        "shop-7f3c-4",
        4,
        RunKind.CATCH_UP,
        {"metadata": {"name": "shop"}},
        (TableAssignment(TABLE, 2),),
        "/plan",
        "/secrets",
        "/scratch",
        7,
        "binlog.000001:400",
        Decoder.REFERENCE,
    )
    assert "copied" not in config.tables[0].to_dict()
    config = replace(config, tables=(replace(config.tables[0], copied=True, at_start=True),))
    for followed in ("", "mysql:a"):
        config = replace(config, followed=followed)
        assert ("followed" in json.loads(config.to_json())) == bool(followed)
        assert "status_file" not in json.loads(config.to_json()), "an older driver does not know it"
        assert RunConfig.from_json(config.to_json()) == config


def test_a_plan_shard_comes_back_from_its_file() -> None:
    shard = PlanShard("shop.orders", 3, [10, "61"], (Split((10, "61"), (20, "62")), Split((20, "62"), None)), True)
    assert PlanShard.from_json(shard.to_json()) == shard


def test_shards_sort_by_table_and_number() -> None:
    names = [PlanShard.filename(table, number) for table in (0, 9, 10) for number in (0, 9, 10, 99_999)]
    assert names == sorted(names)


def test_a_report_is_one_line_of_what_is_news() -> None:
    report = Report("shop-4", tables=[{"name": "shop.orders", "message": "two\nlines"}], lag_seconds=0.0)
    line = report.to_json()
    assert "\n" not in line
    assert set(json.loads(line)) == {"run", "tables", "lag_seconds"}
    assert Report.from_json(line) == report


@pytest.mark.parametrize("reason", list(Reason))
def test_an_error_comes_back_with_its_family(reason: Reason) -> None:
    """The class alone decides whether the supervisor tries again."""
    error = fail(reason, "found this", needed="that", remedy="do so", table="shop.orders")
    again = from_json(error.to_json())
    assert type(again) is type(error)
    assert isinstance(again, TransientError) is reason.retried
    assert again.to_dict() == error.to_dict()
    assert again.message == "shop.orders: found this; needed: that; remedy: do so"


def test_an_undecodable_value_says_where_it_is_and_needs_the_user() -> None:
    error = DecodeError("a bad value", table="shop.orders", column="v", position="binlog.000001:400")
    assert error.message.startswith("shop.orders: a bad value (column v, at binlog.000001:400)")
    assert isinstance(from_json(error.to_json()), PermanentError)
