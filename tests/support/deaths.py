"""Deaths at a failpoint within the tests' own process: `Died` is raised where it is passed, so what
the program knew is gone, and what it wrote is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cdcsync_core.gates import observed


class Died(BaseException):
    """Like a SIGKILL: no code of ours but `finally` blocks sees it."""


@contextmanager
def dying_at(gate: str, count: int = 1) -> Iterator[None]:
    """The process ends where it passes `gate` for the `count`-th time, and at every later one."""
    passed = 0

    def die(name: str) -> None:
        nonlocal passed
        passed += name == gate
        if name == gate and passed >= count:
            raise Died

    with observed(die):
        yield


@contextmanager
def at_gate(gate: str, act: Callable[[], object]) -> Iterator[None]:
    """`act` once, where `gate` is passed for the first time."""
    waiting = [act]

    def once(name: str) -> None:
        if name == gate and waiting:
            waiting.pop()()

    with observed(once):
        yield
