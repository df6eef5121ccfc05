"""Which schema an Iceberg table has after a commit, and whether staged rows are of it. Pure.

Rows are staged before the commit that names them, with the field ids that the table had then; the
name of their file says which schema that was. A column that was dropped and added again has another
id since: its values would be looked for in vain, and its default be read for them. So a file of
other ids is refused, or where it is the whole content brings its schema with it.
"""

from __future__ import annotations

import re

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_spark.sinks.iceberg.replica.place import branch_of, folder_of
from cdcsync_spark.sinks.iceberg.table.metadata import FORMAT_VERSION, MAIN, TableMetadata
from cdcsync_spark.sinks.iceberg.table.schema import TableSchema, evolved_schema, new_schema
from cdcsync_spark.sinks.iceberg.table.state import event_names
from cdcsync_spark.sinks.iceberg.table.view import IcebergVersion, branch_schema
from cdcsync_spark.sinks.lake.format import CommitOperation, FileCommit

#: the name of a staged file
STAGED = re.compile(r"s(\d{1,9})-[^/]*")


def staged_name(schema: TableSchema, name: str) -> str:
    """What a staged file is called whose rows have the ids of `schema`."""
    return f"s{schema.id}-{name}"


def next_schema(on: IcebergVersion, commit: FileCommit) -> TableSchema:
    """The schema of the rows after a commit. Raises SinkConflict where staged ones are not of
    it."""
    if commit.operation is CommitOperation.EVOLVE:
        return _evolved(on, commit)
    if commit.operation is CommitOperation.REPLACE:
        return _replaced(on, commit)
    if commit.staged:
        _refuse_other_ids(on, commit)
    return on.schema


def known(metadata: TableMetadata, schema: TableSchema) -> TableSchema:
    """The same schema as the table has it, where it has it."""
    return next((s for s in metadata.schemas.values() if s.same_columns(schema)), schema)


def _evolved(on: IcebergVersion, commit: FileCommit) -> TableSchema:
    """New columns get ids that the table never had."""
    assert on.state is not None
    ours, numbered = on.state.schema.names, _next_numbers(on.metadata)
    beside = set(on.schema.names) if not commit.rewritten else event_names(on.metadata)
    other_fields = tuple(f for f in on.schema.fields if f["name"] not in ours and f["name"] in beside)
    schema = evolved_schema(on.schema, commit.state.schema, commit.origins, other_fields, *numbered)
    return known(on.metadata, schema if on.metadata.format_version >= FORMAT_VERSION else schema.without_defaults)


def _next_numbers(metadata: TableMetadata) -> tuple[int, int]:
    return max(metadata.schemas) + 1, metadata.last_column_id


def _replaced(on: IcebergVersion, commit: FileCommit) -> TableSchema:
    """That of the branch whose files are published; else that of the files themselves."""
    paths, generation = [file.path for file in commit.adding()], commit.state.generation
    copy = branch_of(generation)
    if all(path.startswith(f"{folder_of(generation)}/") for path in paths):
        if copy in on.metadata.refs:
            return branch_schema(on.metadata, copy, MAIN)
        if paths:
            raise _other_ids(commit, paths[0])
    target = commit.state.schema
    if not paths:
        fresh = new_schema(target, *_next_numbers(on.metadata))
        return on.schema if on.schema.serves(target) else known(on.metadata, fresh)
    schema = _schema_of(on, paths[0])
    if schema is None or not schema.serves(target) or any(_schema_of(on, path) is not schema for path in paths):
        raise _other_ids(commit, paths[0])
    return schema


def _schema_of(on: IcebergVersion, path: str) -> TableSchema | None:
    """The schema that a staged file names in its path."""
    named = STAGED.fullmatch(path)
    return on.metadata.schemas.get(int(named[1])) if named else None


def _refuse_other_ids(on: IcebergVersion, commit: FileCommit) -> None:
    target, needed = commit.state.schema, on.schema
    for path in (file.path for file in commit.adding()):
        schema = _schema_of(on, path)
        if schema is not needed and (schema is None or schema.ids_of(target.names) != needed.ids_of(target.names)):
            raise _other_ids(commit, path)


def _other_ids(commit: FileCommit, path: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"the rows of {path} were staged for other columns than the table has now, or their staged copy is gone",
        needed="rows that were staged for the table's columns, and the copy until it is published",
        remedy=f"let no other program change the table meanwhile, {RUN_AGAIN}: the rows are read again",
        table=commit.state.identity.table,
    )
