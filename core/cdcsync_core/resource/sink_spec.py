"""The sink section of the resource: exactly one kind of sink, each a model of its own.

A new kind is a class of `SinkKind` in `sinks`, a field of `SinkSpec`, and the field's schema in the
CRD.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic import model_validator

from cdcsync_core.resource.sinks.delta import Delta
from cdcsync_core.resource.sinks.iceberg import Iceberg
from cdcsync_core.resource.sinks.kafka import Kafka
from cdcsync_core.resource.sinks.kind import SinkKind
from cdcsync_core.resource.sinks.sql_database import MySql, PostgreSql
from cdcsync_core.resource.spec_part import Part


class SinkSpec(Part):
    """One of its kinds; `type` may name it, for people."""

    type: Literal["delta", "iceberg", "kafka", "mysql", "postgresql"] = "delta"
    delta: Delta | None = None
    iceberg: Iceberg | None = None
    kafka: Kafka | None = None
    mysql: MySql | None = None
    postgresql: PostgreSql | None = None

    @model_validator(mode="before")
    @classmethod
    def _type_by_section(cls, data: Any) -> Any:
        given = [name for name in cls._kinds() if isinstance(data, dict) and name in data]
        return {"type": given[0], **data} if len(given) == 1 else data

    @model_validator(mode="after")
    def _exactly_one(self) -> SinkSpec:
        given = [name for name in self._kinds() if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one kind of sink: {' or '.join(self._kinds())}")
        if self.type != given[0]:
            raise ValueError(f"type {given[0]}, or none, because the section is {given[0]}")
        return self

    @classmethod
    def _kinds(cls) -> list[str]:
        return [name for name in cls.model_fields if name != "type"]

    @property
    def kind(self) -> SinkKind:
        """The section that is given."""
        (given,) = (getattr(self, name) for name in self._kinds() if getattr(self, name) is not None)
        return cast(SinkKind, given)
