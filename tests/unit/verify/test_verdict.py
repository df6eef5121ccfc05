"""What a verification says travels whole, and its exit code follows from the results alone."""

from __future__ import annotations

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import ExitCode
from cdcsync_core.runs.verification import (
    Difference,
    DifferenceKind,
    TableResult,
    VerificationProgress,
    VerificationStep,
    parse_line,
    verdict,
)

EQUAL = TableResult("shop.a", source_rows=3, target_rows=3, ranges=1, counts={})
DIFFERENT = TableResult(
    "shop.b",
    counts={DifferenceKind.DIFFERENT.value: 1},
    keys=(Difference(DifferenceKind.DIFFERENT, {"id": "1"}, {"name": ("''", "NULL")}),),
)
UNCONFIRMED = TableResult("shop.c", unconfirmed=2, why="the sync is not running")
SKIPPED = TableResult("shop.d", skipped="its snapshot is not complete")
LOST = TableResult("shop.e", error=fail(Reason.POSITION_LOST, "purged").to_dict())
UNREACHABLE = TableResult("shop.f", error=fail(Reason.SOURCE_UNREACHABLE, "no route").to_dict())


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([EQUAL, EQUAL], ExitCode.DONE),
        ([EQUAL, DIFFERENT], ExitCode.DIFFERENCES),
        ([DIFFERENT, LOST, UNCONFIRMED], ExitCode.DIFFERENCES),
        ([EQUAL, LOST, UNCONFIRMED], ExitCode.USER_MUST_ACT),
        ([EQUAL, UNCONFIRMED], ExitCode.RETRY),
        ([EQUAL, SKIPPED], ExitCode.RETRY),
        ([EQUAL, UNREACHABLE], ExitCode.RETRY),
    ],
)
def test_verdict(results: list[TableResult], code: ExitCode) -> None:
    assert verdict(results) is code


@pytest.mark.parametrize("result", [EQUAL, DIFFERENT, UNCONFIRMED, SKIPPED, LOST])
def test_results_round_trip(result: TableResult) -> None:
    assert parse_line(result.to_json()) == result


def test_progress_round_trips() -> None:
    progress = VerificationProgress("shop.a", VerificationStep.COMPARING, 10, 100, 2, 1)
    assert parse_line(progress.to_json()) == progress


def test_another_line_is_refused() -> None:
    with pytest.raises(ValueError, match="not a line of a verification"):
        parse_line('{"something": 1}')
