"""Secrets' files live as long as their user, and what a killed one left is found, whatever else
makes and removes folders just then."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import SecretStr

from cdcsync_operator.reconcile import secret_files
from cdcsync_operator.reconcile.secret_files import LockedFolder, SecretFiles, remove_leftovers

KILLED = """
import os, signal
from pydantic import SecretStr
from cdcsync_operator.reconcile.secret_files import SecretFiles
SecretFiles().write({"source": {"password": SecretStr("x")}})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where secrets are put."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_process_left_is_removed_and_what_is_in_use_stays(folders: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED], env=os.environ | {"TMPDIR": str(folders)}, check=False)
    (left,) = folders.iterdir()
    assert (left / "source" / "password").read_text() == "x"
    used = SecretFiles()
    used.write({"source": {"password": SecretStr("y")}})
    remove_leftovers()
    assert list(folders.iterdir()) == [used.folder]
    assert (used.folder / "source" / "password").read_text() == "y"
    used.close()
    assert list(folders.iterdir()) == []


def test_files_that_could_not_be_written_are_written_when_they_can(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a Secret goes in the same change."""
    used = SecretFiles()
    used.write({"old": {"password": SecretStr("x")}, "source": {"password": SecretStr("x")}})
    wanted = {"source": {"password": SecretStr("y")}}
    with monkeypatch.context() as full:
        full.setattr(secret_files, "write_atomically", _fail)
        with pytest.raises(OSError, match="no space"):
            used.write(wanted)
    used.write(wanted)
    assert [p.relative_to(used.folder).as_posix() for p in used.folder.rglob("*")] == ["source", "source/password"]
    assert (used.folder / "source" / "password").read_text() == "y"
    used.close()


def _fail(*_: object, **__: object) -> None:
    raise OSError("no space left")


def test_folders_come_and_go_while_leftovers_are_searched(folders: Path) -> None:
    """Neither side raises over a folder that the other one removed."""

    def come_and_go(_: int) -> None:
        files = SecretFiles()
        files.write({"source": {"password": SecretStr("x")}})
        files.close()

    with ThreadPoolExecutor(4) as threads:
        users = [threads.submit(come_and_go, n) for n in range(500)]
        while not all(user.done() for user in users):
            remove_leftovers()
        for user in users:
            user.result()


def test_a_try_that_fails_leaves_no_folder(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as exhausted:
        exhausted.setattr(os, "open", _fail)
        with pytest.raises(OSError, match="no space"):
            SecretFiles()
    assert list(folders.iterdir()) == []


def test_many_share_one_folder_that_is_in_use(folders: Path) -> None:
    shared = LockedFolder()
    first, second = SecretFiles(shared.path), SecretFiles(shared.path)
    first.write({"source": {"password": SecretStr("x")}})
    second.write({"source": {"password": SecretStr("y")}})
    remove_leftovers()
    assert (first.folder / "source" / "password").read_text() == "x"
    first.close()
    assert list(shared.path.iterdir()) == [second.folder]
    shared.close()
    assert list(folders.iterdir()) == []
