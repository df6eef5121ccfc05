"""The fork server: Spark's processes and the driver's calls, as a program of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest

from cdcsync_spark.forks import client
from cdcsync_spark.forks.server import CALLS, SERVER, SOURCE

_WORKER = """
import os, sys, time
with open(os.environ["FOUND"], "w") as found:
    found.write(f"{os.getpid()} {os.environ['WORD']} {'decimal' in sys.modules} {__name__}")
if os.environ["WORD"] == "wait":
    time.sleep(60)
sys.exit(3)
"""


class Program:
    """A Python program with a fork server; `run` gives the value of an expression as JSON."""

    def __init__(self, folder: Path) -> None:
        folder.joinpath("worker_of_test.py").write_text(_WORKER)
        folder.joinpath("calls_of_test.py").write_text(
            dedent("""
            import os, sys, time
            from cdcsync_core.errors import Reason, fail

            def pid(): return os.getpid()
            def twice(n, *, more=0): return 2 * n + more
            def refused(): raise fail(Reason.SINK_UNREACHABLE, "no answer", needed="one", remedy="wait", table="a.b")
            def wrong(): raise ValueError("no number")
            def unsendable(): return lambda: 1
            def ended(): os._exit(9)
            """)
        )
        source = dedent("""
            import json, sys
            from pathlib import Path
            from cdcsync_spark.forks import client
            client.start(Path(sys.argv[1]) / "it's scratch", ["decimal"])
            for line in sys.stdin:
                try:
                    print(json.dumps(eval(line)), flush=True)
                except Exception as error:
                    print(json.dumps([type(error).__name__, str(error)]), flush=True)
            """)
        self.workers: list[subprocess.Popen[bytes]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", source, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(folder)},
        )
        assert self.run("1") == 1  # it has forked its server

    def run(self, line: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def call(self, text: str) -> Any:
        return self.run(f"client.in_own_process(__import__('calls_of_test').{text})")

    def children(self, name: str) -> list[psutil.Process]:
        return [p for p in psutil.Process(self.process.pid).children(recursive=True) if p.name() == name]

    def start_worker(self, word: str, found: Path) -> subprocess.Popen[bytes]:
        """As Spark's JVM does."""
        worker = subprocess.Popen(
            [self.run("client.python()"), "-m", "worker_of_test"],
            stdin=subprocess.PIPE,
            env={"FOUND": str(found), "WORD": word, "PATH": os.environ["PATH"]},
        )
        self.workers.append(worker)
        return worker

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        for worker in self.workers:
            assert worker.stdin is not None
            worker.stdin.close()
            worker.wait(30)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    started = Program(tmp_path)
    try:
        yield started
    finally:
        started.end()


def _until(condition: Any, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_worker_has_the_environment_and_the_imports(program: Program, tmp_path: Path) -> None:
    found = tmp_path / "found"
    worker = program.start_worker("an = odd\nvalue", found)
    worker.wait(30)
    pid, rest = found.read_text().split(" ", 1)
    assert rest == "an = odd\nvalue True __main__"
    _until(lambda: not psutil.pid_exists(int(pid)))


def test_a_worker_ends_with_what_was_started_for_it(program: Program, tmp_path: Path) -> None:
    worker = program.start_worker("wait", tmp_path / "found")
    _until(lambda: program.children(SOURCE))
    worker.terminate()
    worker.wait(30)
    _until(lambda: not program.children(SOURCE))


def test_a_worker_ends_when_the_jvm_does(program: Program, tmp_path: Path) -> None:
    worker = program.start_worker("wait", tmp_path / "found")
    _until(lambda: program.children(SOURCE))
    assert worker.stdin is not None
    worker.stdin.close()
    worker.wait(30)
    _until(lambda: not program.children(SOURCE))


def test_what_was_started_ends_with_the_worker(program: Program, tmp_path: Path) -> None:
    worker = program.start_worker("wait", tmp_path / "found")
    _until(lambda: program.children(SOURCE))
    program.children(SOURCE)[0].kill()
    worker.wait(30)


def test_the_server_outlives_a_worker_and_its_program_that_end_at_once(program: Program, tmp_path: Path) -> None:
    worker = program.start_worker("wait", tmp_path / "found")
    _until(lambda: program.children(SOURCE))
    (server,), (source,) = program.children(SERVER), program.children(SOURCE)
    server.suspend()
    for first in (source, psutil.Process(worker.pid)):
        first.kill()
    worker.wait(30)
    server.resume()
    _until(lambda: not program.children(SOURCE))
    assert program.call("twice, 4") == 8


def test_a_process_ends_after_a_call_that_cannot_be_sent_to_it(program: Program) -> None:
    program.call("pid")
    kind, _ = program.call("twice, (n for n in ())")
    assert kind == "TypeError"
    _until(lambda: not program.children(CALLS))


def test_all_end_with_the_driver(program: Program, tmp_path: Path) -> None:
    program.start_worker("wait", tmp_path / "found")
    program.call("pid")
    _until(lambda: program.children(SOURCE) and program.children(SERVER))
    children = [p for name in (SERVER, SOURCE, CALLS) for p in program.children(name)]
    assert len(children) == 3
    program.process.kill()
    _, alive = psutil.wait_procs(children, 30)
    assert not alive


def test_signals_to_the_group_leave_the_server(program: Program) -> None:
    _until(lambda: program.children(SERVER))
    (server,) = program.children(SERVER)
    for number in (signal.SIGINT, signal.SIGTERM):
        server.send_signal(number)
    assert program.call("twice, 4") == 8


def test_a_call_gives_what_the_function_gives(program: Program) -> None:
    assert program.call("twice, 4, more=1") == 9
    assert program.call("pid") != program.process.pid
    assert program.call("wrong") == ["ValueError", "no number"]
    kind, text = program.call("refused")
    assert (kind, text) == ("TransientError", "a.b: no answer; needed: one; remedy: wait")
    kind, text = program.call("unsendable")
    assert kind == "RuntimeError"
    assert "cannot be sent" in text


def test_calls_have_one_process_that_ends_when_idle(program: Program) -> None:
    assert program.call("pid") == program.call("pid")
    _until(lambda: not program.children(CALLS))
    assert program.call("twice, 1") == 2


def test_a_process_that_ends_is_an_error_and_the_next_call_has_another(program: Program) -> None:
    kind, text = program.call("ended")
    assert kind == "TransientError"
    assert "the process of ended ended" in text
    assert program.call("twice, 1") == 2


def test_without_a_server_a_function_is_called_here() -> None:
    assert client.in_own_process(os.getpid) == os.getpid()
    assert client.python() == sys.executable


@pytest.mark.parametrize("refused", ["no programs", "no descriptors"])
def test_where_it_is_not_possible_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    if refused == "no programs":
        monkeypatch.setattr(os, "access", lambda *_: False)
    else:
        monkeypatch.delattr(os, "pidfd_open")
    client.start(tmp_path, ["no.such.module"])
    assert client.python() == sys.executable
