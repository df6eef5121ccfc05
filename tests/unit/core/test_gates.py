"""A gate fires where, when and as often as it is armed, in real processes; without the variable it
does nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cdcsync_core.gates import gate

_PROGRAM = """
import os, sys
from cdcsync_core.gates import gate
for number in range(5):
    gate("other")
    gate("here")
    os.write(1, b"%d" % number)
"""


def run(armed: str | None) -> subprocess.CompletedProcess[bytes]:
    environment = {k: v for k, v in os.environ.items() if k != "CDCSYNC_GATE"}
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=environment | ({"CDCSYNC_GATE": armed} if armed else {}),
        capture_output=True,
        check=False,
        timeout=600,
    )


@pytest.mark.parametrize(("count", "printed"), [(1, b""), (3, b"01"), (5, b"0123")])
def test_the_process_dies_at_the_gate_the_nth_time(tmp_path: Path, count: int, printed: bytes) -> None:
    """SIGKILL: nothing is cleaned up, as in a crash."""
    done = run(f"here:{count}:kill:{tmp_path / 'once'}")
    assert done.returncode == -signal.SIGKILL
    assert done.stdout == printed


@pytest.mark.parametrize("armed", [None, "nowhere:1:kill:{}", "here:6:kill:{}"])
def test_a_gate_that_is_not_reached_does_nothing(tmp_path: Path, armed: str | None) -> None:
    done = run(armed and armed.format(tmp_path / "once"))
    assert (done.returncode, done.stdout) == (0, b"01234")


def test_a_gate_fires_in_one_process_only(tmp_path: Path) -> None:
    """The one that creates the file; so a successor passes where its predecessor died."""
    armed = f"here:1:kill:{tmp_path / 'once'}"
    assert run(armed).returncode == -signal.SIGKILL
    assert run(armed).returncode == 0


def test_a_path_may_hold_colons(tmp_path: Path) -> None:
    assert run(f"here:1:kill:{tmp_path / 'a:b'}").returncode == -signal.SIGKILL


def test_a_stopped_process_goes_on_when_it_is_continued(tmp_path: Path) -> None:
    environment = os.environ | {"CDCSYNC_GATE": f"here:2:stop:{tmp_path / 'once'}"}
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM], env=environment, stdout=subprocess.PIPE)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    out, _ = process.communicate(timeout=600)
    assert out == b"01234"


def test_without_the_variable_a_gate_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It returns: a gate that fired would kill or stop this process."""
    monkeypatch.delenv("CDCSYNC_GATE", raising=False)
    gate("here")
