"""Commits by delta-rs, for tables whose protocol asks for more than our own entries honour.

A commit is made on the version that was opened or not at all, whether it appends, merges or only
advances the position: delta-rs, left to itself, puts one that meets no conflict on top of what came
meanwhile, with a state that does not know of it. A MERGE rewrites every file that it touches.

It is a library of 15 MiB, which is loaded by commits and checkpoints that need it: this module is
imported where it is used.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, TableFeatures, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from cdcsync_core.state import TableState
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.rows.arrow_types import arrow_schema
from cdcsync_spark.sinks.contract.changes import Append, Commit, Replace, Upsert
from cdcsync_spark.sinks.delta.fallback import merge as delta_merge
from cdcsync_spark.sinks.delta.table import properties as delta_properties
from cdcsync_spark.sinks.delta.table import refusals
from cdcsync_spark.sinks.delta.table.log import STATE_KEY, entry_name, written
from cdcsync_spark.sinks.delta.table.schema import delta_schema
from cdcsync_spark.sinks.delta.table.statistics import statistics
from cdcsync_spark.sinks.delta.table.table_path import TablePath
from cdcsync_spark.sinks.delta.table.vector_files import Descriptor
from cdcsync_spark.sinks.delta.table.view import Action, TableView, actions_of
from cdcsync_spark.sinks.lake.files.staging import DataFile, data_files
from cdcsync_spark.sinks.lake.format import LostRace

_RULE_BROKEN = re.compile("failed validation check|validation check failed|Invalid data found")
#: another entry came first, or none that can be seen: a store may refuse a conditional put even so
_TRIED_IN_VAIN = re.compile(r"Failed to commit transaction: \d+")
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def publish(table_path: TablePath, view: TableView, commit: Commit) -> None:
    """Rows and state on top of `view`, durable; raises LostRace where another commit came first,
    and `SinkConflict` for what the table's rules forbid: a retry would meet them again."""
    handle = opened(table_path)
    if handle is None or handle.version() != view.version:
        raise LostRace
    try:
        _write(table_path, view, handle, commit)
    except CommitFailedError as failed:
        raise _lost_or_refused(table_path, view, failed) from None
    except DeltaError as failed:
        # what it says of a rule shows the rows that break it
        if _RULE_BROKEN.search(str(failed)):
            raise refusals.constraint_error(str(table_path.table), view) from None
        raise
    _make_durable(table_path, view)


def opened(table_path: TablePath) -> DeltaTable | None:
    """None where there is no table."""
    try:
        return DeltaTable(table_path.store.uri, storage_options=table_path.lake.storage_options())
    except TableNotFoundError:
        return None


def _make_durable(table_path: TablePath, view: TableView) -> None:
    """delta-rs leaves that to the operating system: a machine that lost its power would keep the
    entries of ours that come next, and not what they build on."""
    log, version = table_path.log(), view.version + 1
    while table_path.store.local_folder is not None and (text := log.entry(version)) is not None:
        table_path.store.make_durable([*new_paths(view, actions_of(text)), entry_name(version)])
        version += 1


def new_paths(view: TableView, actions: Iterable[Action]) -> list[str]:
    """The files that `actions` name and `view` does not have, relative to the table."""
    before = set(_paths({"add": f.add} for f in view.files.values()))
    return sorted(set(_paths(actions)) - before)


def _paths(actions: Iterable[Action]) -> Iterator[str]:
    for named in (a.get("add") or a.get("cdc") for a in actions):
        if named is None:
            continue
        yield unquote(named["path"])
        vector = named.get("deletionVector")
        if vector and (path := Descriptor.from_dict(vector).path):
            yield path


def _lost_or_refused(table_path: TablePath, view: TableView, failed: CommitFailedError) -> Exception:
    now = opened(table_path)
    if now is None or now.version() != view.version or _TRIED_IN_VAIN.search(str(failed)):
        return LostRace(str(failed))
    return refusals.delta_rs_error(str(table_path.table), table_path.store.uri, " ".join(str(failed).split())[:500])


def _write(table_path: TablePath, view: TableView, handle: DeltaTable, commit: Commit) -> None:
    properties, change, schema = _properties(commit.state), commit.change, commit.state.schema
    if isinstance(change, Replace) or (isinstance(change, Append) and change.staged):
        refusals.refuse_files(str(table_path.table), view)
    if isinstance(change, Replace) and view.files:
        refusals.refuse_append_only(str(table_path.table), view)
    if isinstance(change, Upsert) and not change.empty:
        refusals.refuse_hidden_keys(view, commit.state)
        if delta_merge.rows_met(table_path.snapshot(view), change):
            refusals.refuse_append_only(str(table_path.table), view)
        delta_merge.merge(handle, commit.state, change, properties, _NO_HOOKS)
        if handle.version() == view.version:
            # delta-rs commits no MERGE that meets no row (keys born and gone within a batch); the
            # state must follow even so
            _append(table_path, handle, (), properties)
    elif isinstance(change, Replace):
        if _adapt(handle, schema):
            _make_durable(table_path, view)
            raise LostRace("the target was given what its new columns need")
        _replace(table_path, handle, schema, change, properties)
    else:
        _append(table_path, handle, data_files(change), properties)


def _adapt(handle: DeltaTable, schema: TargetSchema) -> bool:
    """Gives an existing target what the new columns of `schema` need, by a commit without rows;
    False: it had everything."""
    if "timestamp_ntz" in delta_schema(schema) and "timestampNtz" not in (handle.protocol().writer_features or ()):
        handle.alter.add_feature(TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True)
        return True
    missing = delta_properties.adapted(handle.metadata().configuration, schema)
    if missing:
        handle.alter.set_table_properties(missing)
    return bool(missing)


def _append(
    table_path: TablePath, handle: DeltaTable, files: tuple[DataFile, ...], properties: CommitProperties
) -> None:
    handle.create_write_transaction(
        _adds(table_path, files),
        "append",
        handle.schema(),
        commit_properties=properties,
        post_commithook_properties=_NO_HOOKS,
    )


def _replace(
    table_path: TablePath, handle: DeltaTable, schema: TargetSchema, change: Replace, properties: CommitProperties
) -> None:
    handle.create_write_transaction(
        _adds(table_path, data_files(change)),
        "overwrite",
        Schema.from_arrow(arrow_schema(schema)),
        commit_properties=properties,
        post_commithook_properties=_NO_HOOKS,
    )


def _adds(table_path: TablePath, files: tuple[DataFile, ...]) -> list[AddAction]:
    table_path.refuse_missing(files)
    now = int(time.time() * 1000)
    return [AddAction(f.path.removeprefix(table_path.prefix), f.size, {}, now, True, statistics(f)) for f in files]


def _properties(state: TableState) -> CommitProperties:
    """A retry of delta-rs would put the entry on top of commits that `state` does not know."""
    return CommitProperties(
        custom_metadata={STATE_KEY: written(state)},
        max_commit_retries=0,
        app_transactions=[Transaction(state.identity.app_id, state.commit_number)],
    )
