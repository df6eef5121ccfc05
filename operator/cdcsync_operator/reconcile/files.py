"""Files that are whole or not there, whatever dies meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """A file that becomes the one at `path`. The error of a full disk names no file by itself."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        error.filename = error.filename or str(path)
        with suppress(OSError):
            temporary.unlink()
        raise


def write_whole(path: Path, text: str) -> None:
    """For readers that do not outlive the machine: they see the whole text or no file."""
    with _temporary(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_atomically(path: Path, text: str, mode: int = 0o600) -> None:
    """The file has the old text or the new one, whatever dies meanwhile, the machine too."""
    with _temporary(path) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
