"""What a migration would do to a sync's tables: the question of the command line, and the answer of
the process that knows what a stream follows.

The command starts `python -m cdcsync_spark.app.explain`, whose standard input is a
`MigrationQuestion` and whose standard output a list of `StatementEffect`s, each in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from cdcsync_core.errors import CdcError, from_json
from cdcsync_core.tables.capture import Capture


class TargetEffect(StrEnum):
    """What a statement does to a table's target, the heavier the later."""

    NEW = "new"
    METADATA = "metadata"
    UNKNOWN = "unknown"
    REWRITE = "rewrite"
    EMPTY = "empty"
    RESNAPSHOT = "resnapshot"
    STOP = "stop"

    @property
    def weight(self) -> int:
        return list(TargetEffect).index(self)


@dataclass(frozen=True)
class Script:
    """SQL as a client runs it; `name` is its file, empty for a statement of the command line."""

    name: str
    sql: str


@dataclass(frozen=True)
class ServerSession:
    """How the server reads a new session's statements. `version` is 80036 for 8.0.36 and 101119 for
    10.11.19, `sql_mode` the server's words, `timestamps` MySQL's explicit_defaults_for_timestamp
    and None on MariaDB."""

    mariadb: bool
    version: int
    sql_mode: str
    timestamps: bool | None = None


@dataclass(frozen=True)
class MigrationQuestion:
    """Holds no secret. `tables` are the captured tables with their definitions of now, `database`
    the default database of the scripts, which run one after the other."""

    resource: dict[str, Any]
    secrets_dir: str
    session: ServerSession
    database: str
    tables: tuple[Capture, ...]
    scripts: tuple[Script, ...]

    def to_json(self) -> str:
        parts = {
            "resource": self.resource,
            "secretsDir": self.secrets_dir,
            "session": asdict(self.session),
            "database": self.database,
            "tables": [t.to_dict() for t in self.tables],
            "scripts": [asdict(s) for s in self.scripts],
        }
        return json.dumps(parts, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> MigrationQuestion:
        data = json.loads(text)
        return cls(
            data["resource"],
            data["secretsDir"],
            ServerSession(**data["session"]),
            data["database"],
            tuple(map(Capture.from_dict, data["tables"])),
            tuple(Script(**s) for s in data["scripts"]),
        )


@dataclass(frozen=True)
class StatementEffect:
    """One statement's effect on one table, whose name is empty for a statement of which it is not
    known what it runs. `line` counts from 1 in the script; `error` is why the
    statement is not followed, and then `effect` is STOP, whatever a policy makes of it."""

    table: str
    script: str
    line: int
    statement: str
    effect: TargetEffect
    error: CdcError | None = None

    def to_dict(self) -> dict[str, Any]:
        error = self.error.to_json() if self.error else None
        return asdict(self) | {"effect": self.effect.value, "error": error}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> StatementEffect:
        error = from_json(data["error"]) if data["error"] else None
        return cls(**data | {"effect": TargetEffect(data["effect"]), "error": error})


def effects_to_json(effects: Iterable[StatementEffect]) -> str:
    return json.dumps([e.to_dict() for e in effects], ensure_ascii=False)


def effects_from_json(text: str) -> list[StatementEffect]:
    """Raises ValueError, KeyError or TypeError for what is no answer."""
    return [StatementEffect.from_dict(e) for e in json.loads(text)]
