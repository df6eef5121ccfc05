"""Which server this is, from the version that it prints; pure.

MariaDB prints `10.11.19-MariaDB-log`, in the greeting possibly `5.5.5-10.11.19-MariaDB`; MySQL and
its builds print `9.7.4` and a suffix.
"""

from __future__ import annotations

import re
from typing import Literal

Flavor = Literal["mysql", "mariadb"]
_NUMBERS = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_COMPATIBILITY_PREFIX = "5.5.5-"

#: what the test suite runs against
TESTED: dict[Flavor, tuple[tuple[int, int], ...]] = {"mysql": ((9, 7),), "mariadb": ((10, 11), (11, 4), (11, 8))}
#: from here on it is expected to work
SUPPORTED: dict[Flavor, tuple[int, int]] = {"mysql": (8, 0), "mariadb": (10, 6)}


def flavor_of(printed: str) -> Flavor:
    return "mariadb" if "mariadb" in printed.lower() else "mysql"


def parse_version(printed: str) -> tuple[int, ...]:
    """Three numbers; zeros where nothing is recognised, which is older than anything supported."""
    match = _NUMBERS.match(printed.removeprefix(_COMPATIBILITY_PREFIX))
    return tuple(int(n or 0) for n in match.groups()) if match else (0, 0, 0)
