"""The check of a lake on a disk: a commit is a hard link."""

from __future__ import annotations

import errno
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_lake.failures import store_error
from cdcsync_lake.location import Location
from cdcsync_lake.probe import CONTENT, ELSEWHERE, PROBES, is_probe, no_lake, refuse_inside_a_table, unsupported_store

_ATTEMPTS = 100
#: errors of file systems without hard links
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


def check_disk(lake: Location, leftover: float) -> list[CdcError]:
    folder = Path(lake.root)
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        raise no_lake(lake, f"{str(folder)!r} is no folder", "a folder, or a path where one can be made")
    refuse_inside_a_table(lake, lambda above: Path(above, "_delta_log").is_dir())
    for attempt in range(_ATTEMPTS):
        try:
            _try_links(lake, folder / PROBES, leftover)
        except FileNotFoundError as error:  # another check has just removed the folder
            if attempt == _ATTEMPTS - 1:
                return [store_error(error, str(error), f"a check of {folder}")]
        except OSError as error:
            return [store_error(error, str(error), f"a check of {folder}")]
        else:
            break
    return []


def _try_links(lake: Location, probes: Path, leftover: float) -> None:
    """A commit is a hard link to a name that must be free."""
    with suppress(FileExistsError):
        probes.mkdir()
    _remove_old_files(probes, leftover)
    written, name = probes / f"{uuid.uuid4().hex}.new", probes / uuid.uuid4().hex
    try:
        written.write_bytes(CONTENT)
        _link_twice(lake, written, name)
    finally:
        written.unlink(missing_ok=True)
        name.unlink(missing_ok=True)
        with suppress(OSError):  # another check is using it
            probes.rmdir()


def _link_twice(lake: Location, written: Path, name: Path) -> None:
    try:
        os.link(written, name)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        found = f"the file system of {lake.root} makes no hard links ({error.strerror})"
        needed = "hard links: commits are made by them"
        raise fail(Reason.SPEC_INVALID, found, needed=needed, remedy=ELSEWHERE) from None
    try:
        os.link(written, name)
    except FileExistsError:
        return
    raise unsupported_store(lake, "makes a hard link over a file that is there")


def _remove_old_files(probes: Path, leftover: float) -> None:
    for file in filter(is_probe, probes.iterdir()):
        with suppress(OSError):  # another check removes it
            if time.time() - file.stat().st_mtime > leftover:
                file.unlink()
