"""Named points at which a test can stop or kill the program, so that an interruption hits the meant
moment.

`CDCSYNC_GATE="name:count:action:once"` arms one gate: the `count`-th time that this process passes
gate `name`, it kills itself (`kill`: SIGKILL) or stops itself (`stop`: SIGSTOP, until a SIGCONT),
provided that it can create the file `once`: so the gate fires in one process of a whole tree, once.
Without the variable a gate is a dictionary lookup. A test in the program's own process observes the
gates instead (`observed`). It is in the core, because the controller and
the Spark applications have crash points alike.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_VARIABLE = "CDCSYNC_GATE"
_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_passed: Counter[str] = Counter()
_observers: list[Callable[[str], None]] = []


def gate(name: str) -> None:
    """A point in the program that a crash test can name."""
    for observe in _observers:
        observe(name)
    armed = os.environ.get(_VARIABLE)
    if armed is None:
        return
    gate_name, count, action, once = armed.split(":", 3)
    if gate_name != name:
        return
    _passed[name] += 1
    if _passed[name] >= int(count) and _created(once):
        os.kill(os.getpid(), _SIGNALS[action])


@contextmanager
def observed(observer: Callable[[str], None]) -> Iterator[None]:
    """`observer` is called with the name of each gate that this process passes meanwhile; what it
    raises is raised there."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def _created(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True
