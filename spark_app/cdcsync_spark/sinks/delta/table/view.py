"""A version of a Delta table, from its Delta log: live files, schema, protocol, our state. Pure.

A live file is an `add` that no later `remove` took back; a file with a deletion vector and the same
file with another are two (the Delta protocol, "Action Reconciliation"). Within one entry removes
come before adds, whatever their order in it. Of our own state (rule R4) the newest counts, as long
as no other program changed rows after it (`sinks.delta.table.foreign`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from cdcsync_core.state import TableState
from cdcsync_spark.sinks.delta.table.log import digest_of, lines_of, own_state, parsing
from cdcsync_spark.sinks.delta.table.statistics import counted, counting, loosened, statistics
from cdcsync_spark.sinks.delta.table.vector_files import Descriptor
from cdcsync_spark.sinks.delta.table.weight import FILE, GONE, file_size
from cdcsync_spark.sinks.lake.files.deletion_vectors import DeletedRows
from cdcsync_spark.sinks.lake.files.staging import DataFile

Action = dict[str, Any]
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class DeltaFile:
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
        return counting(self.add["size"])

    @cached_property
    def rows(self) -> int | None:
        """Physical rows, deleted ones included; None where the Delta log does not say."""
        stats = self.add.get("stats")
        with parsing(self.log_path):
            return counted(stats) if stats else None

    @cached_property
    def vector(self) -> Descriptor | None:
        descriptor = self.add.get("deletionVector")
        return None if descriptor is None else Descriptor.from_dict(descriptor)

    @cached_property
    def deleted(self) -> DeletedRows | None:
        """See `LiveFile`."""
        return self.vector.deleted if self.vector else None

    def check(self) -> None:
        """Fails, as parsers do, of an action that does not name a file; its statistics are parsed
        where they are needed."""
        if not isinstance(self.add["path"], str):
            raise TypeError("a path that is no text")
        _ = self.size, self.vector and self.vector.path

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

    def with_vector(self, vector: Descriptor, rows: int, *, data_change: bool) -> DeltaFile:
        """The same file of `rows` physical rows with more of them deleted; its bounds may be wide
        from now on."""
        parts = {k: v for k, v in self.add.items() if v is not None}
        with parsing(self.log_path):
            stats = loosened(self.add.get("stats") or "", rows)
        return DeltaFile({**parts, "dataChange": data_change, "stats": stats, "deletionVector": vector.to_dict()})


def new_file(path: str, file: DataFile, now: int, *, data_change: bool) -> DeltaFile:
    """A file of ours, without deleted rows; `path` is the Delta log's for it and has only
    characters that are themselves in a URL."""
    return DeltaFile(
        {
            "path": path,
            "partitionValues": {},
            "size": file.size,
            "modificationTime": now,
            "dataChange": data_change,
            "stats": statistics(file),
        }
    )


@dataclass
class TableView:
    """The table at `version`; `entry` brings it to the next. `checkpoint` is the newest one's
    version, -1 without one.

    `gone` has the files that were taken away and may still be read by readers of an older
    version: path -> when, in milliseconds. A vector's file is among them with the last vector that
    was taken away. `named` are the files that came since `sinks.delta.table.open` checked their
    paths. `unsettled` is whether another program changed rows since `state` was found. `digest` is
    that of the newest entry, empty where a checkpoint stands for it.
    """

    version: int = -1
    protocol: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    files: dict[str, DeltaFile] = field(default_factory=dict)
    state: TableState | None = None
    checkpoint: int = -1
    gone: dict[str, int] = field(default_factory=dict)
    named: list[str] = field(default_factory=list)
    unsettled: bool = False
    digest: bytes = field(default=b"", compare=False)
    #: what files take beyond the least that one does, and its sum
    _heavy: dict[str, int] = field(default_factory=dict, compare=False)
    _beyond: int = field(default=0, compare=False)

    def entry(self, version: int, text: str) -> None:
        """Applies the Delta log's entry `version`."""
        self.apply(version, list(actions_of(text)), own_state(text), digest_of(text.encode()))

    def apply(self, version: int, actions: list[Action], state: TableState | None, digest: bytes) -> None:
        """The same, where the entry's content is known."""
        for removed in (a["remove"] for a in actions if "remove" in a):
            file = self.files.get(removed["path"])
            if file is not None and vector_of(removed) == file.vector:
                del self.files[removed["path"]]
                self._weigh(removed["path"], FILE)
            self.left(removed)
        for action in actions:
            self.take(action)
        self.unsettled = state is None and (self.unsettled or changes_rows(actions))
        self.state = state or self.state
        self.version, self.digest = version, digest

    def take(self, action: Action) -> None:
        """One action of a checkpoint, or one that adds to the table."""
        if action.get("add"):
            live = DeltaFile(action["add"])
            live.check()
            self.files[live.log_path] = live
            self._weigh(live.log_path, file_size(action["add"]))
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

    def held_after(self, actions: Iterable[Action]) -> int:
        """The same once an entry of ours with `actions` is applied, or a little more."""
        files, gone = dict[str, int](), 0
        for action in actions:
            if action.get("remove"):
                files.setdefault(action["remove"]["path"], 0)
                gone += GONE
            elif action.get("add"):
                files[action["add"]["path"]] = file_size(action["add"])
        before = sum(FILE + self._heavy.get(path, 0) for path in files if path in self.files)
        return self.held + gone + sum(files.values()) - before

    def _weigh(self, path: str, size: int) -> None:
        """Notes what a file takes beyond the least that one does."""
        self._beyond -= self._heavy.pop(path, 0)
        if size > FILE:
            self._heavy[path] = size - FILE
            self._beyond += size - FILE

    def left(self, removed: Mapping[str, Any]) -> None:
        """One `remove` action: its files may go when no reader needs them."""
        when, vector = counting(removed.get("deletionTimestamp") or 0), vector_of(removed)
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
    def number(self) -> int:
        """See `TableVersion`."""
        return self.version

    @property
    def names(self) -> Collection[str]:
        """See `TableVersion`."""
        return self.fields.keys()

    @property
    def field_ids(self) -> None:
        """See `TableVersion`."""

    @property
    def fields(self) -> dict[str, Mapping[str, Any]]:
        """The schema's fields by name."""
        return {f["name"]: f for f in json.loads(self.metadata["schemaString"])["fields"]}


def changes_rows(actions: Iterable[Action]) -> bool:
    """Whether an entry changes what the table's rows are: an OPTIMIZE, for one, does not."""
    return any(a[kind].get("dataChange", True) for a in actions for kind in ("add", "remove") if a.get(kind))


def actions_of(text: str) -> Iterator[Action]:
    """The actions of a Delta log entry; `\\n` alone ends a line: a text in it may hold U+0085."""
    return (json.loads(line) for line in lines_of(text) if line.strip())


def entry_text(actions: list[Action]) -> str:
    """A Delta log entry, one action a line."""
    return "".join(_JSON.encode(a) + "\n" for a in actions)


def vector_of(removed: Mapping[str, Any]) -> Descriptor | None:
    descriptor = removed.get("deletionVector")
    return None if descriptor is None else Descriptor.from_dict(descriptor)
