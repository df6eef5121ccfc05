"""What a statement does to a captured table, as values: the definition before it, the definition
after it, and what becomes of the rows that are there.

Why it is right: each outcome states all that a sink needs and nothing that it must look up. A
followed change lists the origin of every column of the next definition, so no column is matched by
its name: a dropped name that comes back is a new column. What is not followed exactly is a
`Resnapshot`, and what leaves nothing to copy is a `Stop`; there is no outcome "perhaps".
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from cdcsync_core.errors import Reason
from cdcsync_core.tables.capture import Capture

#: A value of an added column in existing rows, in the terms of the source's type: `bytes` for
#: binary types, `int` for integers, YEAR and BIT, a naive `datetime` for DATETIME, one in UTC for
#: TIMESTAMP. A zero date is None, as everywhere in the copy.
Value = None | int | float | Decimal | str | bytes | dt.date | dt.datetime | dt.timedelta


class Kind(StrEnum):
    """What happens to the table, from nothing to what cannot be followed."""

    NOTHING = "nothing"
    RESHAPE = "reshape"
    FILL = "fill"
    EMPTY = "empty"
    RENAME = "rename"
    RESNAPSHOT = "resnapshot"
    STOP = "stop"


class Proof(StrEnum):
    """What has confirmed the definition that was predicted from a statement."""

    PENDING = "Pending"
    ROWS = "Rows"
    CATALOG = "Catalog"


@dataclass(frozen=True)
class Kept:
    """The values of the old column `source`, whose type stays."""

    source: str


@dataclass(frozen=True)
class Converted:
    """The same values of the old column `source` in a wider type: equal numbers, characters,
    members or instants. Where the copy holds the server's text (TIME, long DECIMALs) the text
    gains the digits of the new type, which an origin in the terms of a target has as `digits`."""

    source: str
    digits: int = 0


@dataclass(frozen=True)
class Filled:
    """A new column: `value` in each row that is there."""

    value: Value = None


Origin = Kept | Converted | Filled


@dataclass(frozen=True)
class Followed:
    """The rows stay; `origins` says for each column of the next definition, in its order, where the
    values of existing rows come from."""

    before: Capture
    after: Capture
    origins: tuple[Origin, ...]

    @property
    def dropped(self) -> tuple[str, ...]:
        """Columns of the old definition that the next one does not have, by their old names."""
        used = {origin.source for origin in self.origins if not isinstance(origin, Filled)}
        return tuple(c.name for c in self.before.columns if c.name not in used)

    @property
    def kind(self) -> Kind:
        if any(isinstance(o, Filled) and o.value is not None for o in self.origins):
            return Kind.FILL
        names = [c.name for c in self.before.columns]
        same = self.origins == tuple(map(Kept, names)) and names == [c.name for c in self.after.columns]
        return Kind.NOTHING if same else Kind.RESHAPE


@dataclass(frozen=True)
class Emptied:
    """All rows are gone, without a row event; the definition stays."""

    after: Capture
    kind = Kind.EMPTY


@dataclass(frozen=True)
class Renamed:
    """The table left its name. `to` is its name now, empty if not certain. `successor` is the table
    that took the old name, if one did, and `after` its definition where that is known: the rows
    under the captured name are the successor's."""

    to: str = ""
    successor: str = ""
    after: Capture | None = None
    kind = Kind.RENAME


@dataclass(frozen=True)
class Resnapshot:
    """Rows or definition may change in a way that is not predicted."""

    reason: str
    kind = Kind.RESNAPSHOT


@dataclass(frozen=True)
class Stop:
    """No copy is possible any more; what was copied stays. `cause` is its word for the user."""

    reason: str
    cause: Reason
    kind = Kind.STOP


Outcome = Followed | Emptied | Renamed | Resnapshot | Stop


def unchanged(definition: Capture, after: Capture | None = None) -> Followed:
    """No row changes; `after` differs from `definition` at most in what no value depends on."""
    origins = tuple(Kept(c.name) for c in definition.columns)
    return Followed(definition, after or definition, origins)
