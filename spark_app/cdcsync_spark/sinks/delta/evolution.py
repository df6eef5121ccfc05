"""A followed change of the schema, natively: the next schema and, where it must be, other files, in
one entry of the Delta log.

Why it is right. A reader gives NULL for a column that a file lacks and ignores one that the schema
lacks, so some changes are the schema alone (`evolve.rewrites`). For all others each live file is
written again, row by row in the same order, and keeps its deletion vector: no row comes or goes,
and the key index renames files. No feature is used that would keep readers out (column mapping,
type widening). The files are durable before the entry that names them; without it they are orphans.

A column that another program added stays while files stay as they are. It has no place in rewritten
ones, and where the source adds one of its name they are rewritten: its values are not the source's.
A history table's files always stay, and so do its metadata columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.evolve import rewrites
from cdcsync_core.remedies import resnapshot
from cdcsync_core.schema_change import Filled
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.changes import Evolve
from cdcsync_spark.sinks.delta import properties as delta_properties
from cdcsync_spark.sinks.delta.batch import Batch
from cdcsync_spark.sinks.delta.features import upgrade
from cdcsync_spark.sinks.delta.schema import evolved_schema
from cdcsync_spark.sinks.delta.snapshot import file_batches
from cdcsync_spark.sinks.delta.table_path import TablePath
from cdcsync_spark.sinks.delta.view import Action, LiveFile, TableView, loosened, new_file
from cdcsync_spark.sinks.lake.file_changes import FileChanges
from cdcsync_spark.sinks.lake.rewrite import needed, rewritten
from cdcsync_spark.sinks.lake.staging import DataFile, write_one
from cdcsync_spark.wire.columns.typemap import arrow_schema

#: files that are rewritten at the same time
_AT_ONCE = 2


def write_evolution(
    table_path: TablePath, view: TableView, after: TableState, change: Evolve, now: int, most_bytes: int
) -> Batch:
    """Writes the files of `change` on top of `view`; raises SchemaChanged where they would be more
    than `most_bytes`, before it writes one; where that is 0, also where there is no file to be
    written again, because the schema would lose the columns that are not the source's. `now` in
    milliseconds."""
    table_path.refuse_taken_names(after.capture)
    before = view.state
    assert before is not None
    theirs = _theirs(view, before)
    rewriting = rewrites(before.schema, after.schema, change.origins) or _share_a_name(after, theirs)
    schema = evolved_schema(view.fields, after.schema, change.origins, () if rewriting else theirs.values())
    actions = upgrade(view, schema, delta_properties.adapted(view.properties, after.schema), vectors=False)
    if not rewriting:
        return Batch(actions)
    size = sum(file.size for file in view.files.values())
    if size > most_bytes or not most_bytes:
        raise _too_large(before, size, most_bytes)
    return _rewrite(table_path, view, after, change, actions, now)


def _rewrite(
    table_path: TablePath, view: TableView, after: TableState, change: Evolve, actions: list[Action], now: int
) -> Batch:
    """Each live file is written again; `actions` come first."""
    before, files = view.state, list(view.files.values())
    assert before is not None
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        made = list(pool.map(lambda file: _rewritten(table_path, before, after, change, file), files))
    filled = any(isinstance(o, Filled) for o in change.origins)
    actions += [old.removed(now, data_change=filled) for old in files]
    kept = [(old, new) for old, new in zip(files, made, strict=True) if new is not None]
    actions += [_added(old, new, table_path.prefix, now, data_change=filled) for old, new in kept]
    renamed = {old.log_path: new.path.removeprefix(table_path.prefix) for old, new in kept}
    empty = tuple(old.log_path for old, new in zip(files, made, strict=True) if new is None)
    return Batch(actions, FileChanges(removed=empty, rewritten=renamed), paths=tuple(renamed.values()))


def _theirs(view: TableView, state: TableState) -> dict[str, Mapping[str, Any]]:
    """The fields of columns that another program added."""
    ours = set(state.schema.names)
    return {name: field for name, field in view.fields.items() if name not in ours}


def _share_a_name(after: TableState, theirs: Mapping[str, object]) -> bool:
    """In any case: readers of lakes do not tell `A` from `a`."""
    return not {name.casefold() for name in theirs}.isdisjoint(name.casefold() for name in after.schema.names)


def _rewritten(
    table_path: TablePath, before: TableState, after: TableState, change: Evolve, file: LiveFile
) -> DataFile | None:
    """None for a file without rows, which another program may leave."""
    schema, columns = arrow_schema(before.schema), needed(change.origins)
    read = file_batches(table_path.lake.files(), f"{table_path.folder}/{file.path}", schema, columns)
    made = rewritten(read, after.schema, change.origins)
    written = write_one(
        table_path.lake.below(table_path.root),
        table_path.staged,
        after.schema,
        made,
        f"version-{after.commit_number}",
        table_path.stamp,
    )
    rows = written.rows if written else 0
    if file.rows is not None and rows != file.rows:
        raise OSError(f"{file.path} gave {rows} of {file.rows} rows")
    return written


def _added(old: LiveFile, new: DataFile, prefix: str, now: int, *, data_change: bool) -> Action:
    """With the deletions that the file had, whose bounds may be wide. A value that no previous file
    had is a change of data."""
    path = new.path.removeprefix(prefix)
    if old.vector is None:
        return {"add": dict(new_file(path, new.size, new.stats, now, data_change=data_change).add)}
    file = new_file(path, new.size, loosened(new.stats, new.rows), now, data_change=data_change)
    return {"add": {**file.add, "deletionVector": old.add["deletionVector"]}}


def write_emptied(view: TableView, now: int) -> Batch:
    """All rows go."""
    files = list(view.files.values())
    gone = [file.removed(now, data_change=True) for file in files]
    return Batch(gone, FileChanges(removed=tuple(file.log_path for file in files)))


def not_native(state: TableState, reason: str) -> CdcError:
    """`reason` rules native commits out."""
    return fail(
        Reason.SCHEMA_CHANGE_REFUSED,
        f"a change of the definition, and {reason}",
        needed="a target table that has only the features with which it was made",
        remedy=resnapshot(state.identity.table),
        table=state.identity.table,
    )


def _too_large(state: TableState, size: int, most: int) -> CdcError:
    return fail(
        Reason.SCHEMA_CHANGE_REFUSED,
        f"a change of the definition that asks for {size // 2**20} MiB of files to be written again",
        needed=f"at most {most // 2**20} MiB"
        if most
        else "rows that stay as they are: a history table's are published",
        remedy=resnapshot(state.identity.table),
        table=state.identity.table,
    )
