"""A table's metadata as its catalog gives them: what a commit is built on. Pure.

Iceberg's REST protocol and `metadata.json` have one form. What another program wrote is checked
where it is read: `parsing` makes any other form that table's named error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_spark.sinks.iceberg.table.avro import BROKEN
from cdcsync_spark.sinks.iceberg.table.metadata_form import check_form
from cdcsync_spark.sinks.iceberg.table.schema import TableSchema

MAIN = "main"
#: the default, with deletion vectors and row ids; all that can be written
FORMAT_VERSION, FORMAT_VERSIONS = 3, (2, 3)
Json = Mapping[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """A snapshot as the metadata have it."""

    document: Json

    @property
    def id(self) -> int:
        return int(self.document["snapshot-id"])

    @property
    def parent(self) -> int | None:
        return self.document.get("parent-snapshot-id")

    @property
    def number(self) -> int:
        """Its sequence number."""
        return int(self.document["sequence-number"])

    @property
    def milliseconds(self) -> int:
        return int(self.document["timestamp-ms"])

    @property
    def manifest_list(self) -> str:
        return str(self.document["manifest-list"])

    @property
    def schema_id(self) -> int | None:
        return self.document.get("schema-id")

    @property
    def summary(self) -> Mapping[str, str]:
        return self.document.get("summary") or {}

    @property
    def operation(self) -> str:
        return str(self.summary.get("operation", ""))


class TableMetadata:
    """The metadata of one version, whose form was checked (`checked_metadata`)."""

    def __init__(self, document: Json) -> None:
        self.document = document
        self.uuid = str(document["table-uuid"])
        self.location = str(document["location"]).rstrip("/")
        self.format_version = int(document["format-version"])
        self.last_sequence_number = int(document.get("last-sequence-number") or 0)
        #: None where rows have no ids
        self.next_row_id = int(document.get("next-row-id") or 0) if self.format_version >= FORMAT_VERSION else None
        self.last_column_id = int(document["last-column-id"])
        self.properties: Mapping[str, str] = document.get("properties") or {}
        self.snapshots = {s.id: s for s in map(Snapshot, document.get("snapshots") or ())}
        self.refs: Mapping[str, Json] = document.get("refs") or {}
        self.last_updated = int(document.get("last-updated-ms") or 0)

    @cached_property
    def schemas(self) -> dict[int, TableSchema]:
        return {s.id: s for s in map(TableSchema.of, self.document["schemas"])}

    @property
    def current_schema(self) -> TableSchema:
        return self.schemas[self.document["current-schema-id"]]

    @property
    def partitioned(self) -> bool:
        """Whether any partition spec that the table has, or had, has fields."""
        return any(spec.get("fields") for spec in self.document.get("partition-specs") or ())

    def head(self, ref: str) -> Snapshot | None:
        """The newest snapshot of a branch; None where there is no branch, or no snapshot."""
        named = self.refs.get(ref)
        return None if named is None else self.snapshots[named["snapshot-id"]]

    def ancestors(self, snapshot: Snapshot | None) -> Iterator[Snapshot]:
        """A snapshot and those before it, up to one that has expired."""
        seen = set[int]()
        while snapshot is not None and snapshot.id not in seen:
            seen.add(snapshot.id)
            yield snapshot
            snapshot = None if snapshot.parent is None else self.snapshots.get(snapshot.parent)

    @property
    def branches(self) -> dict[str, int]:
        """The newest snapshot of each branch."""
        return {name: ref["snapshot-id"] for name, ref in self.refs.items() if ref.get("type") == "branch"}


def checked_metadata(document: Json, what: str) -> TableMetadata:
    """The metadata of the table `what`. Raises SinkConflict where they have another form; those of
    another format version are as they are."""
    with parsing(f"the metadata of {what}"):
        version = int(document["format-version"])
        if version in FORMAT_VERSIONS:
            check_form(document, row_ids=version >= FORMAT_VERSION)
        return TableMetadata(document)


@contextmanager
def parsing(what: str) -> Iterator[None]:
    """Makes what parsers raise the error of a table that cannot be followed."""
    try:
        yield
    except CdcError:
        raise
    except BROKEN as broken:
        raise unreadable(what, f"{type(broken).__name__}: {broken}") from None


def unreadable(what: str, problem: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"{quoted(what)} cannot be read: {problem[:300]}",
        needed="an Iceberg table's file or metadata as Iceberg's own library writes them",
        remedy=f"restore the table, or drop it and its files, {RUN_AGAIN}",
    )
