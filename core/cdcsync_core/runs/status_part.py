"""A piece of the status, and the texts, positions and key ranges in it.

Why positions have a type of their own: a status names a position by the fields that people read,
and may have the time of its last transaction beside it. Why it is right: it keeps exactly the
fields that were written, in their order, and parses a GTID set only where one is asked for its
position: a status of ten thousand tables is read in each reconciliation. Texts for people go out as
long as the CRD allows, so that no long message of a server keeps a status from being written; what
a program reads again (names, positions, keys) is never shortened.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    StrictInt,
    StrictStr,
    WithJsonSchema,
    model_serializer,
)
from pydantic.alias_generators import to_camel

from cdcsync_core.positions.chunk import Bound, KeyValue, Split
from cdcsync_core.positions.lineage import BinlogId
from cdcsync_core.positions.position import Position, Watermark, position_from_dict
from cdcsync_core.positions.watermark import watermark_from_dict
from cdcsync_core.timestamps import unix_time

_public_name = cache(to_camel)
#: characters of a word of the manual or a name, and of a message or a statement
_WORD, _TEXT = 1024, 32768
#: a larger number becomes a rounded one in the API server
_MOST_NUMBER = 2**63 - 1


def _shortened(most: int, text: str) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


Word = Annotated[
    str, PlainSerializer(partial(_shortened, _WORD)), WithJsonSchema({"type": "string", "maxLength": _WORD})
]
Text = Annotated[
    str, PlainSerializer(partial(_shortened, _TEXT)), WithJsonSchema({"type": "string", "maxLength": _TEXT})
]


class StatusPart(BaseModel):
    """A frozen piece of the status. Unknown fields of a newer version are left aside."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class Restarts(StatusPart):
    """Failures in a row; `reason` and `message` are the last one's, `next_attempt_at` is None when
    nothing waits."""

    consecutive: int = 0
    reason: Word = ""
    message: Text = ""
    next_attempt_at: str | None = None


class _AsWritten(StatusPart):
    """A piece of which only those fields go out that came in."""

    @model_serializer(mode="wrap")
    def _written(self, to_json: SerializerFunctionWrapHandler) -> dict[str, Any]:
        names = {n for field in self.model_fields_set for n in (field, _public_name(field))}
        return {name: value for name, value in to_json(self).items() if name in names}


class StatusServer(_AsWritten):
    """What a preflight found of the server."""

    flavor: Word = ""
    version: Word = ""
    server_id: int = 0
    server_uuid: Word = ""
    gtid: bool = False


class StatusAnchor(_AsWritten):
    """See `position.Anchor`."""

    file: str
    offset: int
    created: int


class StatusPosition(_AsWritten):
    """A `Position` under its public names; `timestamp` is that of the reader's last transaction,
    RFC 3339, empty where there is none. `binlog` names the binlog in which it is; empty in a
    status of before, and in a low watermark."""

    binlog: str = ""
    file: str = ""
    offset: int = 0
    gtid_set: str = ""
    exact: bool = False
    anchor: StatusAnchor | None = None
    created: int = 0
    timestamp: str = ""

    @property
    def place(self) -> str:
        """`file:offset`, empty where no reader has been yet."""
        return f"{self.file}:{self.offset}" if self.file else ""

    @property
    def named_place(self) -> str:
        """As `place`, with the binlog where it is known: `Place.parse` reads both."""
        return f"{self.binlog}/{self.place}" if self.binlog and self.file else self.place

    @property
    def seconds(self) -> float | None:
        """Its time, since 1970; None where that is not known."""
        return unix_time(self.timestamp)

    def parsed(self) -> Position:
        return position_from_dict(self.model_dump(by_alias=True))


class StatusWatermark(_AsWritten):
    """A `Watermark` under its public names."""

    file: str = ""
    offset: int = 0
    gtid_set: str = ""
    exact: bool = False

    def parsed(self, binlog: BinlogId) -> Watermark:
        """`binlog` is the one of the content, which its position names."""
        return watermark_from_dict(self.model_dump(by_alias=True), binlog)


class StatusSplit(StatusPart):
    """A `Split`; None is open. A number that an API server would round goes out as its digits."""

    start: tuple[StrictInt | StrictStr, ...] | None = None
    end: tuple[StrictInt | StrictStr, ...] | None = None

    @model_serializer
    def _with_open_ends(self) -> dict[str, list[KeyValue] | None]:
        return {"start": _exact(self.start), "end": _exact(self.end)}

    def parsed(self) -> Split:
        return Split(self.start, self.end)


def _exact(bound: Bound) -> list[KeyValue] | None:
    if bound is None:
        return None
    return [str(value) if isinstance(value, int) and value > _MOST_NUMBER else value for value in bound]
