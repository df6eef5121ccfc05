"""`cdcsync demo` prints its whole story, twice in one folder, and leaves nothing running however it
ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from cdcsync_core.runs.run import ExitCode
from cdcsync_demo.shop import TABLES
from support.iceberg_catalog import metadata_file
from support.lake import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-u", "-m", "cdcsync_operator", "demo", "--folder", str(folder), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_with(process: subprocess.Popen[str], text: str) -> str:
    """Reads on until a line has `text`."""
    assert process.stdout
    read = []
    for line in process.stdout:
        read.append(line)
        if text in line:
            return line
    raise AssertionError(f"no line with {text!r} in:\n{''.join(read)}")


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.long)])
def test_the_story_is_told_to_its_end(tmp_path: Path, times: int) -> None:
    """Twice: the second one finds what the first one left."""
    for _ in range(times):
        with demo(tmp_path / "demo", "--rows", "20000") as process:
            assert process.stdout
            text = process.stdout.read()
            assert process.wait() == ExitCode.DONE, text
        assert text.count("equal") >= 2 * len(TABLES)
        assert "Equal both times" in text
        orders = DeltaTable(tmp_path / "demo" / "lake" / "shop" / "order_lines")
        assert rows_of(orders).num_rows > 20_000
        customers = DeltaTable(tmp_path / "demo" / "lake" / "shop" / "customers")
        assert "password_hash" not in [f.name for f in customers.schema().fields]
        assert not (tmp_path / "demo" / "mariadb").exists()


@pytest.mark.long
def test_the_story_with_iceberg_tables(tmp_path: Path) -> None:
    with demo(tmp_path / "demo", "--rows", "20000", "--sink", "iceberg") as process:
        assert process.stdout
        text = process.stdout.read()
        assert process.wait() == ExitCode.DONE, text
    assert text.count("equal") >= 2 * len(TABLES)
    lines = metadata_file(tmp_path / "demo" / "catalog.db", "shop", "order_lines")
    assert StaticTable.from_metadata(lines).scan().count() > 20_000
    customers = StaticTable.from_metadata(metadata_file(tmp_path / "demo" / "catalog.db", "shop", "customers"))
    assert "password_hash" not in customers.schema().column_names


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        pytest.param("The sync starts", signal.SIGINT, marks=pytest.mark.long),
        pytest.param("Verifying", signal.SIGTERM, marks=pytest.mark.long),
    ],
)
def test_an_interrupt_ends_everything(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    with demo(tmp_path / "demo", "--rows", "1000") as process:
        line_with(process, moment)
        started = psutil.Process(process.pid).children(recursive=True)
        assert started
        process.send_signal(number)
        assert process.stdout
        rest = process.stdout.read()
        assert process.wait() == ExitCode.RETRY, rest
        assert "Traceback" not in rest
        # the guards of servers are reaped by the system's first process
        _, alive = psutil.wait_procs(started, timeout=300)
        assert alive == []


def test_a_folder_of_another_program_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with demo(tmp_path) as process:
        assert process.stdout
        text = process.stdout.read()
        assert process.wait() == ExitCode.USAGE
    assert "that no demo made" in text
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
