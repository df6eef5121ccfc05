"""A version of a Delta table, from its Delta log: live files, schema, protocol, our state. Pure.

A live file is an `add` that no later `remove` took back; a file with a deletion vector and the same
file with another are two (the Delta protocol, "Action Reconciliation"). Within one entry removes
come before adds, whatever their order in it. Of our own state (rule R4) the newest counts, as long
as no other program changed rows after it (`sinks.delta.foreign`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import repeat
from typing import Any
from urllib.parse import unquote

from cdcsync_core.state import TableState
from cdcsync_spark.sinks.delta.log import own_state, parsing
from cdcsync_spark.sinks.delta.weight import FILE, GONE, parsed_size
from cdcsync_spark.sinks.lake.deletion_vectors import Descriptor
from cdcsync_spark.sinks.lake.statistics import as_json

Action = dict[str, Any]
#: a file's statistics stay the same from batch to batch, however often its vector changes
_KNOWN_STATISTICS = 4096
#: the least double has 4.9e-324
_LARGEST_EXPONENT = 400
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class LiveFile:
    """One data file and what of it is deleted, as its `add` action says."""

    add: Mapping[str, Any]

    @property
    def log_path(self) -> str:
        """The path as the Delta log writes it."""
        return str(self.add["path"])

    @property
    def path(self) -> str:
        """Relative to the table."""
        return unquote(self.log_path)

    @property
    def size(self) -> int:
        """Bytes."""
        return _long(self.add["size"])

    @cached_property
    def rows(self) -> int | None:
        """Physical rows, deleted ones included; None where the Delta log does not say."""
        stats = self.add.get("stats")
        with parsing(self.log_path):
            return _counted(stats) if stats else None

    @cached_property
    def vector(self) -> Descriptor | None:
        found = self.add.get("deletionVector")
        return None if found is None else Descriptor.from_dict(found)

    def check(self) -> None:
        """Fails, as parsers do, of an action that does not name a file; its statistics are parsed
        where they are needed."""
        if not isinstance(self.add["path"], str):
            raise TypeError("a path that is no text")
        _ = self.size, self.vector and self.vector.path

    @property
    def deleted_rows(self) -> int:
        return self.vector.cardinality if self.vector else 0

    def removed(self, now: int, *, data_change: bool) -> Action:
        """The action that takes the file away at `now` (milliseconds)."""
        vector = {"deletionVector": self.add["deletionVector"]} if self.vector else {}
        return {
            "remove": {
                "path": self.log_path,
                "deletionTimestamp": now,
                "dataChange": data_change,
                "extendedFileMetadata": True,
                "partitionValues": self.add.get("partitionValues") or {},
                "size": self.size,
                **vector,
            }
        }

    def with_vector(self, vector: Descriptor, rows: int, *, data_change: bool) -> LiveFile:
        """The same file of `rows` physical rows with more of them deleted; its bounds may be wide
        from now on."""
        kept = {k: v for k, v in self.add.items() if v is not None}
        with parsing(self.log_path):
            stats = loosened(self.add.get("stats") or "", rows)
        return LiveFile({**kept, "dataChange": data_change, "stats": stats, "deletionVector": vector.to_dict()})


def new_file(path: str, size: int, stats: str, now: int, *, data_change: bool) -> LiveFile:
    """A file of ours; `path` has only characters that are themselves in a URL."""
    return LiveFile(
        {
            "path": path,
            "partitionValues": {},
            "size": size,
            "modificationTime": now,
            "dataChange": data_change,
            "stats": stats,
        }
    )


@lru_cache(_KNOWN_STATISTICS)
def _counted(stats: str) -> int | None:
    found = json.loads(stats).get("numRecords")
    return None if found is None else _long(found)


@lru_cache(_KNOWN_STATISTICS)
def loosened(stats: str, rows: int) -> str:
    """Statistics whose bounds may be wide; numbers keep their digits."""
    found = json.loads(stats, parse_float=_decimal) if stats else {}
    if found.get("tightBounds") is False and found.get("numRecords") == rows:
        return stats
    return as_json({**found, "numRecords": rows, "tightBounds": False})


def _long(value: Any) -> int:
    """A number of the protocol's type long that counts something."""
    found = int(value)
    if not 0 <= found < 1 << 63:
        raise ValueError("a number that counts nothing")
    return found


def _decimal(text: str) -> Decimal:
    """All digits of one are written, so an exponent beyond every type's is refused."""
    found = Decimal(text)
    if abs(found.adjusted()) > _LARGEST_EXPONENT:
        raise ValueError("a number beyond every type")
    return found


@dataclass
class TableView:
    """The table at `version`; `entry` brings it to the next. `checkpoint` is the newest one's
    version, -1 without one.

    `gone` has the files that were taken away and may still be read by readers of an older
    version: path -> when, in milliseconds. A vector's file is among them with the last vector that
    was taken away. `named` are the files that came since `sinks.delta.open` checked their paths.
    `unsettled` is whether another program changed rows since `state` was found.
    """

    version: int = -1
    protocol: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    files: dict[str, LiveFile] = field(default_factory=dict)
    state: TableState | None = None
    checkpoint: int = -1
    gone: dict[str, int] = field(default_factory=dict)
    named: list[str] = field(default_factory=list)
    unsettled: bool = False
    _heavy: dict[str, int] = field(default_factory=dict)
    _beyond: int = 0

    def entry(self, version: int, text: str) -> None:
        """Applies the Delta log's entry `version`."""
        lines = [line for line in text.split("\n") if line.strip()]
        self.apply(version, [json.loads(line) for line in lines], own_state(text), list(map(parsed_size, lines)))

    def apply(
        self, version: int, actions: list[Action], state: TableState | None, sizes: Sequence[int] | None = None
    ) -> None:
        """The same, where the entry's content is known; `sizes` are the bytes of its actions in
        memory, of the usual size without."""
        for removed in (a["remove"] for a in actions if "remove" in a):
            found = self.files.get(removed["path"])
            if found is not None and vector_of(removed) == found.vector:
                del self.files[removed["path"]]
                self._weigh(removed["path"], 0)
            self.left(removed)
        for action, size in zip(actions, sizes or repeat(0, len(actions)), strict=True):
            self.take(action, size)
        self.unsettled = state is None and (self.unsettled or changes_rows(actions))
        self.state = state or self.state
        self.version = version

    def take(self, action: Action, size: int = 0) -> None:
        """One action of a checkpoint, or one that adds to the table, and its bytes in memory."""
        if action.get("add"):
            live = LiveFile(action["add"])
            live.check()
            self.files[live.log_path] = live
            self._weigh(live.log_path, size)
            self.named.append(live.log_path)
        elif action.get("metaData"):
            self.metadata = action["metaData"]
            _ = self.fields, self.partitions, self.properties.items()
        elif action.get("protocol"):
            self.protocol = action["protocol"]

    @property
    def held(self) -> int:
        """About the bytes that the files take in memory."""
        return len(self.files) * FILE + self._beyond + len(self.gone) * GONE

    def _weigh(self, path: str, size: int) -> None:
        """Notes what of a file is beyond the usual size."""
        self._beyond -= self._heavy.pop(path, 0)
        if size > FILE:
            self._heavy[path] = size - FILE
            self._beyond += size - FILE

    def left(self, removed: Mapping[str, Any]) -> None:
        """One `remove` action: its files may go when no reader needs them."""
        when, vector = _long(removed.get("deletionTimestamp") or 0), vector_of(removed)
        for path in (unquote(removed["path"]), vector.path if vector else ""):
            if path:
                self.gone[path] = max(when, self.gone.get(path, 0))

    def dead(self, before: int) -> list[str]:
        """Files that no version since `before` (milliseconds) has."""
        vectors = (f.vector.path for f in self.files.values() if f.vector)
        live = {*vectors, *(f.path for f in self.files.values())}
        return [path for path, when in self.gone.items() if when < before and path not in live]

    @property
    def properties(self) -> Mapping[str, str]:
        return self.metadata.get("configuration") or {}

    @property
    def partitions(self) -> list[str]:
        """The columns whose values are in the Delta log, not in the files."""
        return list(self.metadata.get("partitionColumns") or ())

    @property
    def fields(self) -> dict[str, Mapping[str, Any]]:
        """The schema's fields by name."""
        return {f["name"]: f for f in json.loads(self.metadata["schemaString"])["fields"]}


def changes_rows(actions: Iterable[Action]) -> bool:
    """Whether an entry changes what the table's rows are: an OPTIMIZE, for one, does not."""
    return any(a[kind].get("dataChange", True) for a in actions for kind in ("add", "remove") if a.get(kind))


def actions_of(text: str) -> Iterator[Action]:
    """Of a Delta log entry; `\\n` alone ends a line: a text in it may hold U+0085."""
    return (json.loads(line) for line in text.split("\n") if line.strip())


def entry_text(actions: list[Action]) -> str:
    """A Delta log entry, one action a line."""
    return "".join(_JSON.encode(a) + "\n" for a in actions)


def vector_of(removed: Mapping[str, Any]) -> Descriptor | None:
    found = removed.get("deletionVector")
    return None if found is None else Descriptor.from_dict(found)
