"""What a check of a lake writes and refuses, whatever holds the lake."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_lake.location import Location

#: a folder of the lake, with an object for each check
PROBES = "_cdcsync.probe"
CONTENT = b"cdcsync check"
ELSEWHERE = "create the sync again with another path in spec.sink"
_PROBE = re.compile(r"[0-9a-f]{32}(\.new)?")


def is_probe(name: Path) -> bool:
    return _PROBE.fullmatch(name.name) is not None


def refuse_inside_a_table(lake: Location, has_log: Callable[[str], bool]) -> None:
    """The VACUUM of a Delta table removes what it does not know, at any depth."""
    above = lake.root
    while above:
        if has_log(above):
            found, needed = f"{above!r} is a Delta table", "a path outside of any table, whose VACUUM would remove ours"
            raise no_lake(lake, found, needed)
        above = above.rpartition("/")[0]


def no_lake(lake: Location, found: str, needed: str) -> CdcError:
    return fail(Reason.SINK_CONFLICT, f"{lake.uri} cannot be a lake: {found}", needed=needed, remedy=ELSEWHERE)


def unsupported_store(lake: Location, fault: str) -> CdcError:
    return fail(
        Reason.SPEC_INVALID,
        f"the store of {lake.uri} {fault}",
        needed="one that refuses that: of two commits of one version one must fail",
        remedy="give a sink path in a store with conditional puts, or upgrade this one",
    )
