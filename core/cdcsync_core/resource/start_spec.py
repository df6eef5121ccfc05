"""The section `start` of the resource: where the first content of a table begins."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.resource.spec_part import Part, Whole

_FILE = r"^[^/\x00]+\.[0-9]+$"
_MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})$"
_MARIADB = re.compile(r"\s*[0-9]+-[0-9]+-[0-9]+\s*(,|$)")
_NUMBER, _NUMBERS_END = re.compile("[0-9]+"), 2**63

From = Literal["snapshot", "latest", "position", "gtid", "timestamp", "Snapshot"]
#: the fields that each takes, all of them
_FIELDS: dict[str, tuple[str, ...]] = {
    "position": ("file", "offset"),
    "gtid": ("gtid_set",),
    "timestamp": ("timestamp",),
}


def _as_spelled_now(value: From) -> From:
    return "snapshot" if value == "Snapshot" else value


def _check_gtid_set(text: str) -> str:
    if not text.isascii() or any(int(number) >= _NUMBERS_END for number in _NUMBER.findall(text)):
        raise ValueError("numbers of transactions below 2**63")
    if not (MariaDbGtidPos.parse(text) if is_mariadb_gtid(text) else GtidSet.parse(text)):
        raise ValueError("at least one GTID; a start from the beginning is from position")
    return text


def _check_moment(text: str) -> str:
    datetime.fromisoformat(text)
    return text


def is_mariadb_gtid(text: str) -> bool:
    """Whether a set begins as MariaDB's do (`domain-server-sequence`)."""
    return _MARIADB.match(text) is not None


class Start(Part):
    """`from_` snapshot: the tables are read; else the first content has only the changes from a
    place in the binlog on."""

    from_: Annotated[From, AfterValidator(_as_spelled_now)] = Field(default="snapshot", alias="from")
    file: Annotated[str, Field(strict=True, max_length=512, pattern=_FILE)] | None = None
    offset: Annotated[Whole, Field(ge=4, le=2**53)] | None = None
    gtid_set: (
        Annotated[str, Field(strict=True, min_length=1, max_length=65536), AfterValidator(_check_gtid_set)] | None
    ) = None
    timestamp: (
        Annotated[str, Field(strict=True, max_length=40, pattern=_MOMENT), AfterValidator(_check_moment)] | None
    ) = None

    @model_validator(mode="after")
    def _fields_of_from(self) -> Start:
        given = {name for name in ("file", "offset", "gtid_set", "timestamp") if getattr(self, name) is not None}
        if given != set(_FIELDS.get(self.from_, ())):
            raise ValueError(
                "file and offset with start.from position, gtidSet with gtid, timestamp with timestamp, and no other"
            )
        return self

    @property
    def with_snapshot(self) -> bool:
        return self.from_ == "snapshot"

    @property
    def seconds(self) -> float:
        """`timestamp` in seconds since 1970."""
        assert self.timestamp is not None
        return datetime.fromisoformat(self.timestamp).timestamp()
