"""What the state topic holds of a table: its state, and the topic that the state is about. Pure.

The topic is named with its id, because one that was deleted and made again has the name alone, and
with its number of partitions, because another number moves keys to other partitions. So does
another id of the keys' schema, which is in the bytes of an Avro key.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from cdcsync_core.peer_json import parse_json
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.staged_copy import is_whole

_VERSION = 1
_KEYS = frozenset(
    ("v", "writer", "since", "repeats", "topic", "topicId", "partitions", "publication", "begins", "keySchema", "state")
)


@dataclass(frozen=True)
class SnapshotSending:
    """A snapshot that is being sent: version `version` of the staged copy, `rows` of it so far.
    With early delivery the rows are those that this version has added, and the versions before it
    are sent."""

    version: int
    rows: int = 0


@dataclass(frozen=True)
class TableRecord:
    """`publication` is None before a snapshot is sent, and when it has been. `begins` has for each
    partition the offset before the newest snapshot's first record; empty: 0. `key_schema` is the id
    of its keys' schema, None where they have none."""

    state: TableState
    topic: str
    topic_id: str
    partitions: int
    publication: SnapshotSending | None = None
    begins: tuple[int, ...] = ()
    key_schema: int | None = None

    @property
    def published(self) -> bool:
        """Whether the topic has the rows of the snapshot, and takes events."""
        return is_whole(self.state) and self.publication is None

    def by(self, epoch: int) -> TableRecord:
        return replace(self, state=replace(self.state, epoch=epoch))

    def to_json(self, writer: str, since: int | None = None) -> bytes:
        """`writer` is unique to the process, so that it knows its own records; from the offset
        `since` of the state topic on, all tables are found (`fold`)."""
        sent = self.publication
        data = {
            "v": _VERSION,
            "writer": writer,
            **({"since": since} if since is not None else {}),
            "topic": self.topic,
            "topicId": self.topic_id,
            "partitions": self.partitions,
            **({"publication": {"version": sent.version, "rows": sent.rows}} if sent else {}),
            **({"begins": list(self.begins)} if self.begins else {}),
            **({"keySchema": self.key_schema} if self.key_schema is not None else {}),
            "state": self.state.to_dict(),
        }
        return json.dumps(data, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, text: bytes) -> TableRecord:
        """Raises ValueError, KeyError or TypeError for what is no record of this release,
        SinkConflict for one with a newer release's state."""
        data: dict[str, Any] = parse_json(text)
        if data["v"] != _VERSION or data.keys() - _KEYS:
            raise ValueError(f"record version {data['v']} with {sorted(data)}; this program reads {_VERSION}")
        sent = data.get("publication")
        return cls(
            TableState.from_dict(data["state"]),
            data["topic"],
            data["topicId"],
            data["partitions"],
            SnapshotSending(sent["version"], sent["rows"]) if sent else None,
            tuple(data.get("begins", ())),
            data.get("keySchema"),
        )
