"""Imports a library without another one that it takes where it finds it.

It serves the rooms above: nothing here imports one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder


class _Hidden(MetaPathFinder):
    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == self._package:
            raise ModuleNotFoundError(fullname)


@contextmanager
def hidden(package: str) -> Iterator[None]:
    """The package cannot be imported meanwhile, by no thread."""
    finder = _Hidden(package)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
