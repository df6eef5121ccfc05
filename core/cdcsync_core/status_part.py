"""A piece of the status, and the positions in it.

Why positions have a type of their own: a status names a position by the fields that people read,
and may have the time of its last transaction beside it. Why it is right: it keeps exactly the
fields that were written, in their order, and parses a GTID set only where one is asked for its
position: a status of ten thousand tables is read in each reconciliation.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer
from pydantic.alias_generators import to_camel

from cdcsync_core.position import Position, Watermark, position_from_dict
from cdcsync_core.timestamps import unix_time
from cdcsync_core.watermark import watermark_from_dict

_public_name = cache(to_camel)


class StatusPart(BaseModel):
    """A frozen piece of the status. Unknown fields of a newer version are left aside."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class _AsWritten(StatusPart):
    """A piece of which only those fields go out that came in."""

    @model_serializer(mode="wrap")
    def _written(self, to_json: SerializerFunctionWrapHandler) -> dict[str, Any]:
        names = {n for field in self.model_fields_set for n in (field, _public_name(field))}
        return {name: value for name, value in to_json(self).items() if name in names}


class StatusAnchor(_AsWritten):
    """See `position.Anchor`."""

    file: str
    offset: int
    created: int


class StatusPosition(_AsWritten):
    """A `Position` under its public names; `timestamp` is that of the reader's last transaction,
    RFC 3339, empty where there is none."""

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

    def parsed(self) -> Watermark:
        return watermark_from_dict(self.model_dump(by_alias=True))
