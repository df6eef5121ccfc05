"""Which drivers report often, by the numbers of their reports at reconciliations."""

from __future__ import annotations

import pytest

from cdcsync_operator.cluster.syncs.report_rate import ReportRate


@pytest.mark.parametrize(("every", "often"), [(1.0, True), (2.0, True), (10.0, False), (0.0, False)])
@pytest.mark.parametrize("pause", [7.0, 10.0])
def test_a_driver_that_reports_often_is_seen_after_two_reconciliations(every: float, often: bool, pause: float) -> None:
    """Each of which may be followed by another at once, by the event of its own write."""
    rate, seen = ReportRate(), []
    for step in range(20):
        for now in (1000 + step * pause, 1000 + step * pause + 0.1):
            rate.note("shop-1", 7 + (int((now - 1000) / every) if every else 0), now)
            seen.append(rate.often)
    assert not any(seen[:2])
    assert seen[2:] == [often] * 38


def test_another_run_counts_from_its_first_report() -> None:
    rate = ReportRate()
    for now, run, number in ((1000.0, "a", 0), (1010.0, "a", 5), (1011.0, "b", 600)):
        rate.note(run, number, now)
    assert not rate.often
    rate.note("b", 605, 1021.0)
    assert rate.often
    rate.note("b", 610, 900.0)  # the clock was set back
    rate.note("b", 611, 910.0)
    assert not rate.often
