"""Calls in processes of their own, as a program makes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest

_CALLS = """
import os, time
from cdcsync_core.errors import Reason, fail

def pid(): return os.getpid()
def twice(n, *, more=0): return 2 * n + more
def refused(): raise fail(Reason.SINK_UNREACHABLE, "no answer", needed="one", remedy="wait", table="a.b")
def wrong(): raise ValueError("no number")
def unsendable(): return lambda: 1
def ended(): os._exit(9)
def wait(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
"""
_PROGRAM = """
import json, sys
import calls_of_test
from cdcsync_spark.own_process import in_own_process
for line in sys.stdin:
    try:
        print(json.dumps(eval(f"in_own_process(calls_of_test.{line})")), flush=True)
    except Exception as error:
        print(json.dumps([type(error).__name__, str(error)]), flush=True)
"""


class Program:
    def __init__(self, folder: Path) -> None:
        folder.joinpath("calls_of_test.py").write_text(dedent(_CALLS))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(folder)},
        )

    def send(self, call: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(call + "\n")
        self.process.stdin.flush()

    def call(self, call: str) -> Any:
        assert self.process.stdout is not None
        self.send(call)
        return json.loads(self.process.stdout.readline())


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    started = Program(tmp_path)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


def test_a_call_gives_what_the_function_gives_and_its_process_ends(program: Program) -> None:
    assert program.call("twice, 4, more=1") == 9
    pid = program.call("pid")
    assert pid != program.process.pid
    assert not psutil.pid_exists(pid)
    assert program.call("wrong") == ["ValueError", "no number"]
    assert program.call("refused") == ["TransientError", "a.b: no answer; needed: one; remedy: wait"]
    kind, text = program.call("unsendable")
    assert "pickle" in text, kind


def test_a_process_that_is_killed_is_an_error_and_the_next_call_has_another(program: Program) -> None:
    kind, text = program.call("ended")
    assert (kind, "the process of ended ended" in text) == ("TransientError", True)
    assert program.call("twice, 1") == 2


def test_all_end_with_their_parent(program: Program, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    program.send(f"wait, {str(begun)!r}")
    deadline = time.monotonic() + 120
    while not (begun.exists() and begun.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    children = psutil.Process(program.process.pid).children(recursive=True)
    assert int(begun.read_text()) in [child.pid for child in children]
    program.process.kill()
    _, alive = psutil.wait_procs(children, 120)
    assert not alive
