"""A login program of a kubeconfig: what it gets, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from cdcsync_core.errors import CdcError, PermanentError, Reason, fail
from cdcsync_kube import bounded_program, kubeconfig
from cdcsync_kube.access import by_kubeconfig
from cdcsync_kube.login import LoadedLogin, Login
from support.logins import by_token
from support.semisync import until

_CREDENTIAL = '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}'


def _kubeconfig(folder: Path, script: str, mode: str = "IfAvailable") -> Path:
    """The kubeconfig of a user whose program is the script; it runs in the folder."""
    program = folder / "login"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    user = {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "./login", "interactiveMode": mode,
        "env": [{"name": "NOTE", "value": "x"}], "provideClusterInfo": True,
    }  # fmt: skip
    path = folder / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "c", "cluster": {"server": "https://x", "extensions": [extension]}}],
                "contexts": [{"name": "k", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {"exec": user}}],
                "current-context": "k",
            }
        )
    )
    return path


@contextmanager
def _open_input() -> Iterator[None]:
    """The standard input of this process is a pipe that nothing comes by."""
    before = os.dup(0)
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        for one in (before, reading, writing):
            os.close(one)


def test_a_program_gets_its_variables_and_no_input(tmp_path: Path) -> None:
    script = f"cat > input; printf %s \"$KUBERNETES_EXEC_INFO\" > info; printf %s $NOTE > note; echo '{_CREDENTIAL}'"
    with _open_input():
        login = by_kubeconfig(_kubeconfig(tmp_path, script)).login
    assert login.access().authorization == "Bearer t"
    info = json.loads((tmp_path / "info").read_text())
    assert info["spec"]["interactive"] is False
    assert info["spec"]["cluster"]["server"] == "https://x"
    assert info["spec"]["cluster"]["config"] == {"audience": "a"}
    assert ((tmp_path / "input").read_text(), (tmp_path / "note").read_text()) == ("", "x")


def test_a_program_that_needs_a_terminal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"`\./login` failed: it needs a terminal"):
        kubeconfig.load(str(_kubeconfig(tmp_path, "touch ran", mode="Always")))
    assert not (tmp_path / "ran").exists()


def test_a_program_that_does_not_end_is_killed_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that it started holds the pipe of the test open."""
    monkeypatch.setattr(bounded_program, "SECONDS", 1.0)
    os.mkfifo(tmp_path / "held")
    reading = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(PermanentError, match=r"`\./login` failed: it did not end within 1 s"):
            kubeconfig.load(str(_kubeconfig(tmp_path, "exec 3> held; sleep 3600 & sleep 3600")))
        until(lambda: _has_no_writer(reading), "the program and its child have ended")
    finally:
        os.close(reading)


def _has_no_writer(reading: int) -> bool:
    try:
        return os.read(reading, 1) == b""
    except BlockingIOError:
        return False


def test_what_left_the_group_of_a_program_does_not_hold_the_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the program's output for as long as it lives."""
    monkeypatch.setattr(bounded_program, "SECONDS", 1.0)
    config = _kubeconfig(tmp_path, "setsid sleep 300 & echo $! > left; sleep 3600")
    with pytest.raises(PermanentError, match="it did not end within 1 s"):
        kubeconfig.load(str(config))
    with suppress(OSError, ValueError):  # a slow machine may not have started it
        os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)


def test_those_that_wait_for_a_login_share_its_failure() -> None:
    loads = 0

    def load() -> LoadedLogin:
        nonlocal loads
        loads += 1
        if loads == 1:
            return LoadedLogin(by_token("https://x", "t").access().configuration)
        raise fail(Reason.SPEC_INVALID, f"load {loads} failed")

    login = Login(load)
    asked = time.monotonic()
    for _ in range(3):
        with pytest.raises(CdcError, match="load 2 failed"):
            login._reload(asked)
    with pytest.raises(CdcError, match="load 3 failed"):
        login._reload(time.monotonic())
