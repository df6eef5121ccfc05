"""The live screen of `status --watch`, and the rates that it draws."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.status import Phase, SnapshotProgress, Status, only_tables, with_condition
from cdcsync_core.runs.status_part import StatusPosition
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_operator.cli.views.history import Histories, SyncHistory, sparkline
from cdcsync_operator.cli.views.screen import Size, draw_screen
from cdcsync_operator.cli.views.sync_view import ShownSync, failure, tables_of

REMEDY = "shop.a: it has no key; needed: a key; remedy: add a key"


def sync(name: str, phase: Phase = Phase.STREAMING, stalled: str = "", **tables: TablePhase) -> ShownSync:
    entries = [TableStatus(name=f"shop.{table}", phase=p, rows=1234) for table, p in tables.items()]
    status = only_tables(Status(phase=phase, lag_seconds=2.0), entries)
    status = with_condition(status, "Ready", not stalled, "NoPrimaryKey" if stalled else phase.value, stalled, 0.0)
    return ShownSync("ns", name, with_condition(status, "Stalled", bool(stalled), "x", stalled, 0.0), running=True)


def lines(syncs: list[ShownSync], width: int = 120, height: int = 30, **more: str) -> list[str]:
    histories = Histories()
    for number in range(30):
        for one in syncs:
            histories.of(one.full_name).note(one.status, float(number))
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=False)
    size = Size(width, height, plain="plain" in more)
    drawn = draw_screen(syncs, histories, 0.0, size, more.get("problem", ""))
    return ["".join(part.text for part in line).rstrip() for line in console.render_lines(drawn)]


def test_the_worst_comes_first_with_its_remedy() -> None:
    shown = lines([sync("well", a=TablePhase.STREAMING), sync("bad", Phase.FAILED, REMEDY, b=TablePhase.FAILED)])
    text = "\n".join(shown)
    assert shown[0].startswith("CdcSync  2 syncs: 1 ready, 0 not ready, 1 stalled   1/2 tables consistent")
    assert text.index("ns/bad") < text.index("ns/well")
    assert "shop.b" in text
    assert "shop.a " not in text, "it is consistent"
    assert "add a key" in text


@pytest.mark.parametrize("height", [8, 12, 24, 60])
def test_it_fits_the_terminal_and_counts_what_it_leaves_out(height: int) -> None:
    phases = {f"t{n}": TablePhase.PENDING for n in range(40)}
    syncs = [sync(f"s{n:02d}", **phases) for n in range(20)] + [sync("bad", Phase.FAILED, REMEDY)]
    shown = lines(syncs, height=height)
    assert len(shown) <= max(height, 12)
    assert any("more tables that are not consistent" in line for line in shown)
    assert any("more syncs" in line for line in shown) == (height < 60)
    assert "ns/bad" in "\n".join(shown)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_a_figure_is_never_cut(width: int) -> None:
    """A cut one reads as another one."""
    text = "\n".join(lines([sync("a-sync-with-a-long-name", b=TablePhase.SNAPSHOTTING)], width=width))
    assert "1,234" in text
    assert "0/1" in text
    assert max(map(len, text.splitlines())) <= width


def test_text_of_others_is_data() -> None:
    hostile = sync("s", Phase.FAILED, "\x1b[2Jx[red]; needed: y; remedy: z", **{"[bold]t\x1b[0m": TablePhase.FAILED})
    text = "\n".join(lines([hostile]))
    assert "\x1b" not in text
    assert "[bold]t" in text
    assert "x[red]" in text


def test_an_answer_that_does_not_come_is_shown_beside_the_last_one() -> None:
    shown = lines([sync("well", a=TablePhase.STREAMING)], problem="the API server does not answer", plain="yes")
    assert "as of the last answer: the API server does not answer" in shown[1]
    assert "ns/well" in "\n".join(shown)
    assert "\n".join(shown).isascii()


def snapshotting(rows: int) -> Status:
    return Status(phase=Phase.SNAPSHOTTING, snapshot=SnapshotProgress(rows=rows))


def streaming(file: str, offset: int) -> Status:
    return Status(phase=Phase.STREAMING, position=StatusPosition(file=file, offset=offset))


def test_rates_are_of_a_window_and_of_one_unit() -> None:
    """A status that is written every few seconds makes no spikes; a snapshot's rows are no
    neighbours of a stream's bytes, and another file of the binlog is no step back."""
    history = SyncHistory()
    for second in range(30):
        history.note(snapshotting(rows=100 * (second // 5) * 5), float(second))
    assert history.unit == "rows/s"
    assert all(60 <= rate <= 140 for rate in list(history.rates)[20:] if rate is not None)
    for second in range(30, 50):
        history.note(streaming("log.1", 1000 * second), float(second))
    assert (history.unit, history.rates[-1]) == ("B/s", 1000.0)
    history.note(streaming("log.2", 4), 50.0)
    assert history.rates[-1] is None


@pytest.mark.parametrize(
    ("values", "line"),
    [([], ""), ([0.0, 0.0], "▁▁"), ([0.0, 1.0, 2.0], "▁▄▇"), ([None, 5.0], " ▇")],
)
def test_a_line_goes_from_zero_to_its_largest_value(values: list[float | None], line: str) -> None:
    assert sparkline(values) == line
    assert len(sparkline(values, plain=True)) == len(values)
    assert sparkline(values, plain=True).isascii()


def test_a_table_that_is_shown_once_has_nothing_that_a_terminal_acts_on() -> None:
    """The name of a binlog file is the server's, and reasons come from a driver's report."""
    words = "\x1b]0;owned\x07[/x]\x9b2J\u202e"
    at = StatusPosition(file=words, offset=4)
    table = TableStatus(name="shop.a", phase=TablePhase.FAILED, reason=words, position=at)
    console = Console(width=200, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(tables_of([table], Status()))
    console.print(failure(words, f"{words}; needed: {words}"))
    text = console.file.getvalue()
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text.replace("\x1b[1m", "").replace("\x1b[0m", ""))
    assert "[/x]" in text
