"""Parts of the sections of several lakes: where their files are, and what a table there holds."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from cdcsync_core.resource.spec_part import OptionalUrl, Part, SecretName
from cdcsync_core.tables.event_columns import EventColumns

#: what the columns of events are called where the resource does not say
NAMES = EventColumns()


class SinkCredentialsRef(Part):
    """A Secret whose keys are the object store's usual variables (AWS_ACCESS_KEY_ID, ...)."""

    name: SecretName


class StoreOptions(Part):
    endpoint: OptionalUrl = ""
    region: Annotated[str, Field(strict=True, pattern="^[A-Za-z0-9_-]*$", max_length=63)] = ""


ColumnName = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64)]


class HistoryColumns(Part):
    """The names of the columns that a history table has beside the source's (`EventColumns`)."""

    op: ColumnName = NAMES.op
    ts: ColumnName = NAMES.ts
    seq: ColumnName = NAMES.seq
    position: ColumnName = NAMES.position
    gtid: ColumnName = NAMES.gtid

    @model_validator(mode="after")
    def _distinct(self) -> HistoryColumns:
        if len({name.lower() for name in self.names.names}) != len(self.names.names):
            raise ValueError("historyColumns are different names")
        return self

    @property
    def names(self) -> EventColumns:
        return EventColumns(self.op, self.ts, self.seq, self.position, self.gtid)


class TableMode(StrEnum):
    """What a table of the lake holds."""

    REPLICA = "replica"
    HISTORY = "history"


def check_path(path: str) -> str:
    scheme, separator, rest = path.partition("://")
    if not path or (separator and (not scheme or not rest)):
        raise ValueError("a folder or a URL like s3://bucket/prefix")
    if separator and ":" in rest.partition("/")[0].rpartition("@")[0]:
        raise ValueError("a URL without credentials; give them by credentialsSecretRef")
    return path


LakePath = Annotated[str, Field(strict=True, min_length=1, max_length=1024), AfterValidator(check_path)]
