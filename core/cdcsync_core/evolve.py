"""Where the values of existing rows come from when a target takes another schema.

Each column of the next schema has one origin, so no column is matched by its name: a dropped name
that comes back is a new column, whose previous values do not return. An origin is in the terms of
the target: a sink needs to know nothing of the source's types.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal

#: a value of a target's column; None is NULL
TargetValue = None | bool | int | float | Decimal | str | bytes | dt.date | dt.datetime


@dataclass(frozen=True)
class Kept:
    """The values of the target's column `name`, whose type stays."""

    name: str


@dataclass(frozen=True)
class Converted:
    """The same values of the target's column `name` in the type of the next one. Where that is a
    text of numbers or times, `digits` is how many each value has after the point; None: the type
    says it all."""

    name: str
    digits: int | None = None


@dataclass(frozen=True)
class Filled:
    """`value` in each row that is there, in the type of the target's column."""

    value: TargetValue = None


Origin = Kept | Converted | Filled
