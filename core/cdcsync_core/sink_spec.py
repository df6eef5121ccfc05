"""The sink section of the resource: exactly one kind of sink, each a model of its own.

Why it exists: what the operator needs of a sink (where it is, which Secrets it names, what its pods
must mount) is the same question for every kind. So each kind answers it here, and nothing outside
asks which kind it is. A new kind is a class, a field of `Sink`, and the field's schema in the CRD.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from cdcsync_core.event_columns import EventColumns
from cdcsync_core.spec_part import Flag, Part, SecretName, Text

#: what the columns of events are called where the resource does not say
NAMES = EventColumns()


@dataclass(frozen=True)
class SinkLocation:
    """Where a sink's data is, and how its store is reached. `field` is the path of its section in
    the resource, for messages; `secret` names the Secret with the credentials, empty where the
    identity of the process serves."""

    field: str
    path: str
    endpoint: str = ""
    region: str = ""
    secret: str = ""


class SinkKind(Part, ABC):
    """What every kind of sink answers about its section."""

    @abstractmethod
    def location(self) -> SinkLocation: ...

    @abstractmethod
    def secrets(self) -> dict[str, set[str]]:
        """Secret name -> keys that must be in it; none where only the Secret must be there."""

    @abstractmethod
    def event_columns(self) -> EventColumns | None:
        """The columns that targets have beside the source's; None where they keep no events."""

    @abstractmethod
    def needs_shared_volume(self) -> bool:
        """Whether all pods of a run must mount the same volume at the location's path."""


class SinkCredentialsRef(Part):
    """A Secret whose keys are the object store's usual variables (AWS_ACCESS_KEY_ID, ...)."""

    name: SecretName


class DeltaOptions(Part):
    """`deletion_vectors` false: every MERGE rewrites the files that it touches, for readers that do
    not know deletion vectors."""

    endpoint: Text = ""
    region: Text = ""
    deletion_vectors: Flag = True


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


class DeltaMode(StrEnum):
    """What a table of the lake holds."""

    REPLICA = "replica"
    HISTORY = "history"


def _check_path(path: str) -> str:
    scheme, separator, rest = path.partition("://")
    if not path or (separator and (not scheme or not rest)):
        raise ValueError("a folder or a URL like s3://bucket/prefix")
    if separator and ":" in rest.partition("/")[0].rpartition("@")[0]:
        raise ValueError("a URL without credentials; give them by credentialsSecretRef")
    return path


class Delta(SinkKind):
    path: Annotated[str, Field(strict=True, min_length=1, max_length=1024), AfterValidator(_check_path)]
    credentials_secret_ref: SinkCredentialsRef | None = None
    options: DeltaOptions = DeltaOptions()
    mode: DeltaMode = DeltaMode.REPLICA
    history_columns: HistoryColumns = HistoryColumns()

    @model_validator(mode="after")
    def _publishable(self) -> Delta:
        if self.mode is DeltaMode.HISTORY and not self.options.deletion_vectors:
            raise ValueError("mode history needs options.deletionVectors: its snapshot is published with them")
        return self

    def event_columns(self) -> EventColumns | None:
        return self.history_columns.names if self.mode is DeltaMode.HISTORY else None

    def location(self) -> SinkLocation:
        secret = self.credentials_secret_ref.name if self.credentials_secret_ref else ""
        return SinkLocation("spec.sink.delta", self.path, self.options.endpoint, self.options.region, secret)

    def secrets(self) -> dict[str, set[str]]:
        """Its keys are the object store's business."""
        return {self.credentials_secret_ref.name: set()} if self.credentials_secret_ref else {}

    def needs_shared_volume(self) -> bool:
        """A folder is each pod's own."""
        return "://" not in self.path


class Sink(Part):
    """One of its kinds; `type` may name it, for people."""

    type: Literal["delta"] = "delta"
    delta: Delta | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Sink:
        if len(self._given()) != 1:
            raise ValueError("exactly one kind of sink: delta")
        return self

    @property
    def kind(self) -> SinkKind:
        """The section that is given."""
        (given,) = self._given()
        return given

    def _given(self) -> list[SinkKind]:
        values = (getattr(self, name) for name in type(self).model_fields)
        return [v for v in values if isinstance(v, SinkKind)]
