"""What a Delta table must not be, or have become, for us to go on with it: found, needed, remedy.
Pure: functions of a view of the table, its name (`table`) and its place (`uri`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.remedies import RESNAPSHOT
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.delta.table.features import (
    CONSTRAINT,
    READABLE,
    append_only,
    hidden_columns,
    not_null_columns,
    unreadable_files_reason,
)
from cdcsync_spark.sinks.delta.table.log import OWN_TABLE
from cdcsync_spark.sinks.delta.table.schema import delta_schema
from cdcsync_spark.sinks.delta.table.view import TableView


def occupied_folder_error(table: str, uri: str, foreign: list[str]) -> CdcError:
    """A folder that holds something else is not taken over: a later VACUUM would remove it."""
    return fail(
        Reason.SINK_CONFLICT,
        f"{uri} holds {len(foreign)} entries that are no Delta table, such as {foreign[0]!r}",
        needed="an empty folder",
        remedy=f"move them away, {RUN_AGAIN}; or create the sync again with another sink path",
        table=table,
    )


def refuse_other_columns(view: TableView, state: TableState) -> None:
    """Another program dropped or changed a column of the target: appends would hide it, so this is
    checked before each commit."""
    _refuse_changed(view, state)
    _refuse_not_null(view, state)


def _refuse_changed(view: TableView, state: TableState) -> None:
    types = {name: field["type"] for name, field in view.fields.items()}
    needed = {field["name"]: field["type"] for field in json.loads(delta_schema(state.schema))["fields"]}
    changed = sorted(name for name, kind in needed.items() if types.get(name) != kind)
    if changed:
        raise fail(
            Reason.SINK_CONFLICT,
            f"the target's column {changed[0]!r} is missing or has another type",
            needed="the columns that the table was made with",
            remedy=f"{RESNAPSHOT}; or undo the change of the target table, {RUN_AGAIN}",
            table=state.identity.table,
        )


def _refuse_not_null(view: TableView, state: TableState) -> None:
    full = sorted(name for name in not_null_columns(view) if name not in state.schema.key)
    if full:
        raise fail(
            Reason.SINK_CONFLICT,
            f"the target's column {full[0]!r} was made NOT NULL",
            needed="columns that take NULL, except for the key: a zero date of the source is one, whatever it declares",
            remedy=f"{RESNAPSHOT}; or ALTER COLUMN {full[0]} DROP NOT NULL there, {RUN_AGAIN}",
            table=state.identity.table,
        )


def refuse_unreadable(table: str, view: TableView) -> None:
    """Also where the table lacks a column of ours: its files may have it, or NULL."""
    features = set(view.protocol.get("readerFeatures") or ()) - READABLE
    if features or view.protocol["minReaderVersion"] == 2:
        raise fail(
            Reason.SINK_CONFLICT,
            f"the target table was given the features {', '.join(sorted(features)) or 'of reader version 2'}",
            needed="a table without them to be read here",
            remedy="take the features away, or compare with Spark",
            table=table,
        )
    if view.partitions:
        raise fail(
            Reason.SINK_CONFLICT,
            f"the target table was partitioned by {', '.join(view.partitions)}",
            needed="a table without partitions to be read here: the files do not hold those columns",
            remedy=f"compare with Spark; or remove the table's folder, {RUN_AGAIN}",
            table=table,
        )
    if view.state is not None:
        _refuse_changed(view, view.state)


def refuse_files(table: str, view: TableView) -> None:
    """Nothing in a staged file says that its columns are to be looked for elsewhere, so readers
    would see NULLs."""
    unreadable = unreadable_files_reason(view)
    if unreadable:
        raise fail(
            Reason.SINK_CONFLICT,
            f"{unreadable}, and rows that were read from the source would be misread in it",
            needed="a table without partitions and column mapping: files are added to it as they are",
            remedy=f"undo that, or remove the table's folder, {RUN_AGAIN}",
            table=table,
        )


def refuse_hidden_keys(view: TableView, state: TableState) -> None:
    """Whether a key is there twice is looked up in the files."""
    hidden = sorted(hidden_columns(view) & set(state.schema.key))
    if hidden:
        raise fail(
            Reason.SINK_CONFLICT,
            f"the target's key column {hidden[0]!r} is not in its files: the table was partitioned by it, or maps its name",
            needed="key columns that are in the files under their names",
            remedy=f"undo that, or remove the table's folder, {RUN_AGAIN}",
            table=state.identity.table,
        )


def refuse_append_only(table: str, view: TableView) -> None:
    if append_only(view):
        raise fail(
            Reason.SINK_CONFLICT,
            "the target table was given delta.appendOnly=true, and rows of it change or go",
            needed="a table whose rows may change",
            remedy=f"set delta.appendOnly to false there, {RUN_AGAIN}",
            table=table,
        )


def constraint_error(table: str, view: TableView) -> CdcError:
    """The error where rows break a rule of the target table. It leaves out the values of the rows:
    errors are read by more people than tables."""
    checks = sorted(n.removeprefix(CONSTRAINT) for n in view.properties if n.startswith(CONSTRAINT))
    which = f"its CHECK constraints: {', '.join(checks)}" if checks else "of its columns"
    return fail(
        Reason.SINK_CONFLICT,
        f"rows break a rule of the target table ({which})",
        needed="a table whose rules the source's rows keep",
        remedy=f"take the rule from the target table, {RUN_AGAIN}",
        table=table,
    )


def delta_rs_error(table: str, uri: str, why: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"delta-rs refused to commit to {uri}, where no other program committed: {why}",
        needed="a table whose rules the commit keeps",
        remedy=f"take the rule from the target table, or remove the table's folder, {RUN_AGAIN}",
        table=table,
    )


def foreign_table_error(table: str, uri: str, sync: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"{uri} holds no state of {sync}: another program's table, or its Delta log was cleaned up by hand",
        needed="a table that this sync made, or none",
        remedy=f"create the sync again with another sink path; or, {OWN_TABLE}, {RUN_AGAIN}",
        table=table,
    )


def history_not_writable(table: str, unsupported_reason: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"{unsupported_reason}, and a history table is written by native commits only",
        needed="a history table without it",
        remedy=f"take the feature from the target table, {RUN_AGAIN}; or create the sync again with another sink path",
        table=table,
    )


def not_writable(table: str, features: Sequence[str]) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"the table has the feature {', '.join(features)}, and neither we nor delta-rs write such tables",
        needed="a table without it",
        remedy=f"take the feature from the target table, or remove the table's folder, {RUN_AGAIN}",
        table=table,
    )
