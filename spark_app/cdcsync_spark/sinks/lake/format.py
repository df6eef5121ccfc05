"""What tells a table format from another: how a version of a table is opened, followed, published
and expired.

All else is the lake's: keys to changes of files, the key index, vectors' bytes, rewriting,
compaction, retry, and what a lost race means (`sinks.lake.writer`). A format is a folder beside
`lake` and one object for each table, which does the four things. Two formats decided the
signatures, Delta's log and Iceberg's catalog (format v3; by `pyiceberg`'s `commit_table`, or by
Iceberg's own `TableOperations`):

- a version has a number that only says whether another is the same one: a Delta version, Iceberg's
  sequence number;
- files are a mapping by the name that the table's metadata gives them: Delta escapes it; Iceberg
  strips the table's location, which a file elsewhere keeps. A file of ours has its path;
- `lineage` gives rows that are written again the ids that Iceberg's rows have; Delta's have none;
- `stamp` gives rows the field ids by which readers of Iceberg find columns; Delta goes by names;
- `publish` is given which rows are deleted, not vectors: one file with those of a commit is Delta's
  way, one Puffin file each is Iceberg's, and what the table then has is in the version that comes
  back. It is also given the new files as a call, because data and vectors are written at the same
  time and a manifest that names both comes last;
- `LostRace` is what a compare-and-set says: a taken name in a Delta log, a failed
  `AssertRefSnapshotId`. An answer that was lost is an error like any other: the version is opened
  again, and the state in it says what landed;
- what expires is steps, each named, because one that fails rests by itself. Iceberg expires
  snapshots within `publish`, so its steps only remove files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Protocol, TypeVar

import pyarrow as pa

from cdcsync_core.errors import CdcError
from cdcsync_core.state import TableState
from cdcsync_core.tables.schema_change import Origin
from cdcsync_spark.sinks.contract.changes import Commit
from cdcsync_spark.sinks.contract.writer import MaintenanceStep
from cdcsync_spark.sinks.lake.files.field_ids import FieldIds
from cdcsync_spark.sinks.lake.files.file_changes import AddedFile, FileChanges
from cdcsync_spark.sinks.lake.files.live_file import LiveFile
from cdcsync_spark.sinks.lake.files.row_lineage import RowLineage
from cdcsync_spark.sinks.lake.files.staging import Stamp


class LostRace(Exception):
    """Another commit came first; start again at "open"."""


class TableVersion(Protocol):
    """A table at one version, which `follow` and `publish` may bring to the next in place."""

    @property
    def number(self) -> int:
        """Another one for another version."""
        ...

    @property
    def state(self) -> TableState | None:
        """The state of the rows that are there (rule R4); None for another program's table."""
        ...

    @property
    def files(self) -> Mapping[str, LiveFile]:
        """The live files, by the names that the metadata gives them."""
        ...

    @property
    def names(self) -> Collection[str]:
        """The columns."""
        ...

    @property
    def field_ids(self) -> FieldIds | None:
        """The ids by which its files have the columns; None where they go by names."""
        ...


class CommitOperation(Enum):
    """What a commit is called in the table's history."""

    APPEND = auto()
    MERGE = auto()
    REPLACE = auto()
    STATE = auto()
    EVOLVE = auto()
    EMPTY = auto()
    COMPACT = auto()


@dataclass(frozen=True)
class FileCommit:
    """What one commit makes of a version: its `state` and changes of files, `adding` gives the new
    ones when they are written. `staged` ones were written before the commit was decided, and stay
    after a lost race.

    `origins` say where the columns of the state's schema come from (see `Evolve`), empty where the
    schema stays or, by REPLACE, no previous row does; with them `rewritten` says whether all files
    were written again. `data_change` is false where no row comes, goes or gets another value.
    """

    state: TableState
    operation: CommitOperation
    changes: FileChanges = field(default_factory=FileChanges)
    adding: Callable[[], tuple[AddedFile, ...]] = tuple
    staged: bool = False
    origins: tuple[Origin, ...] = ()
    rewritten: bool = False
    data_change: bool = True


V = TypeVar("V", bound=TableVersion)
V_co = TypeVar("V_co", bound=TableVersion, covariant=True)


class Writing(Protocol[V_co]):
    """What the steps of a format ask of the writer whose table it is."""

    def newest(self) -> V_co | None:
        """The newest version."""
        ...

    def has_written(self) -> bool:
        """Whether this run has changed rows of the table."""
        ...


class TableFormat(Protocol[V]):
    """One table in a format. Picklable."""

    def open(self) -> V | None:
        """The newest version; None where there is no table. Raises `SinkConflict` for one that
        cannot be followed."""
        ...

    def follow(self, version: V) -> V | None:
        """The newest version, known `version`; None where that one is not part of the table any
        more, and the table is to be opened again."""
        ...

    def has_news(self, version: V, *, or_loss: bool) -> bool:
        """Whether there is a version after this one or, asked by a further request, this one is
        gone."""
        ...

    def publish(self, on: V, commit: FileCommit) -> V:
        """The next version: rows, schema and state together, or nothing. Raises LostRace, and then
        has removed what it wrote but for the files that it was given."""
        ...

    def stamp(self, on: V, after: TableState, origins: tuple[Origin, ...]) -> Stamp | None:
        """What gives rows of the schema of `after` the form that the table's files have after `on`;
        None where they have it. `origins` as of an `Evolve`, empty for others."""
        ...

    def lineage(self, scratch: Path) -> RowLineage:
        """The identities of the table's rows, for a writer whose folder on a local disk is
        `scratch`."""
        ...

    def expiry(self, writing: Writing[V]) -> Mapping[str, Callable[[V], MaintenanceStep | None]]:
        """Steps that keep the table quick to open and small, by their names; each is None where it
        is not due."""
        ...

    # -- what keeps commits away

    def unsupported_reason(self, version: V, *, merging: bool) -> str:
        """Why a commit of ours would not be right for this table, as a phrase; empty where it is.
        `merging` asks for rows to be deleted, too."""
        ...

    def publish_otherwise(self, on: V, commit: Commit, reason: str) -> None:
        """Commits such a change all the same, where another library can. Raises LostRace, and
        `SinkConflict` where none can."""
        ...

    def refuse_altered(self, version: V) -> None:
        """Raises `SinkConflict` where another program changed the columns of the table."""
        ...

    def beside(self, version: V, ours: Collection[str]) -> Sequence[pa.Field]:
        """The columns that other programs added beside `ours`, which compaction keeps. Raises
        `SinkConflict` where it cannot."""
        ...

    def rewrites(self, version: V, after: TableState, origins: tuple[Origin, ...]) -> bool:
        """Whether a change of the schema asks for all files to be written again: readers of Delta
        go by names, those of Iceberg by field ids, which also have defaults."""
        ...

    def max_idle_seconds(self, version: V) -> float:
        """See `WriterStatus`."""
        ...

    def foreign_table_error(self) -> CdcError:
        """There is no table with a state of this sync."""
        ...
