"""What a check of a sink's servers and targets, such as brokers and topics, is asked, and what it
answers: one form for the process that asks the servers and the command that shows it.

The command starts `python -m cdcsync_spark.app.sink_check`, whose standard input is a
`SinkQuestion` and whose standard output is `Checks`, each one JSON object.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from cdcsync_core.errors import CdcError, from_json
from cdcsync_core.tables.source_table import TableId


@dataclass(frozen=True)
class SinkQuestion:
    """Holds no secret: `secrets_dir` has `<secret name>/<key>` files. `tables` are those whose
    targets are asked for."""

    resource: dict[str, Any]
    secrets_dir: str
    tables: tuple[TableId, ...]

    def to_json(self) -> str:
        data = asdict(self) | {"tables": [[t.database, t.name] for t in self.tables]}
        return json.dumps(data, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> SinkQuestion:
        data = json.loads(text)
        return cls(data["resource"], data["secrets_dir"], tuple(TableId(d, n) for d, n in data["tables"]))


@dataclass(frozen=True)
class TopicCheck:
    """A table's topic: the partitions that it has, or will be made with; whether it is there."""

    table: str
    topic: str
    partitions: int
    exists: bool


@dataclass(frozen=True)
class Checks:
    """What a sink's servers answered. `servers` says which did, empty where none did; `warnings`
    what could not be asked."""

    servers: str = ""
    topics: tuple[TopicCheck, ...] = ()
    errors: tuple[CdcError, ...] = ()
    warnings: tuple[str, ...] = ()

    def of(self, table: str) -> TopicCheck | None:
        return next((t for t in self.topics if t.table == table), None)

    def to_json(self) -> str:
        data = {
            "servers": self.servers,
            "topics": [asdict(t) for t in self.topics],
            "errors": [e.to_json() for e in self.errors],
            "warnings": list(self.warnings),
        }
        return json.dumps(data, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Checks:
        """Raises ValueError, KeyError or TypeError for what is no answer."""
        data = json.loads(text)
        topics = tuple(TopicCheck(**t) for t in data["topics"])
        return cls(data["servers"], topics, tuple(map(from_json, data["errors"])), tuple(data["warnings"]))
