"""`cdcsync plan`: the chunk plan of each table, as it would be made now, and the next times of a
schedule. Whether the source keeps its binlog from one time to the next is what `check` compares."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table as Grid

from cdcsync_core.errors import PermanentError
from cdcsync_core.positions.chunk import Bound, Split
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.resource.topic_names import topic_name
from cdcsync_core.runs.run import ExitCode
from cdcsync_core.tables.capture import Capture
from cdcsync_core.timestamps import utc
from cdcsync_operator.cli.command import manifest_option, reporting
from cdcsync_operator.cli.views.output import Output, shown
from cdcsync_operator.local.store import ManifestFiles
from cdcsync_operator.reconcile.secret_files import SecretFiles, remove_leftovers

_SHOWN, _TIMES = 10, 3


@contextmanager
def opened_manifest(files: tuple[str, ...]) -> Iterator[tuple[CdcSync, Path]]:
    """The resource and a folder with its Secrets' files, for commands that only read."""
    manifest = ManifestFiles(files).load()
    remove_leftovers()
    secret_files = SecretFiles()
    try:
        secret_files.write(manifest.secrets)
        yield manifest.resource, secret_files.folder
    finally:
        secret_files.close()


@click.command()
@manifest_option
@reporting
def plan(output: Output, files: tuple[str, ...]) -> ExitCode:
    """Show how each table would be cut into splits, and when a stream with a schedule would run.
    Changes nothing."""
    from cdcsync_operator.reconcile.source_calls import planning, run_preflight

    with opened_manifest(files) as (resource, secrets):
        preflight = run_preflight(resource, secrets)
        if preflight.result.errors:
            for error in preflight.result.errors:
                output.error(error)
            return ExitCode.USER_MUST_ACT
        refused = [t.error for t in preflight.result.tables if t.error]
        for error in refused:
            output.error(error)
        plans: dict[str, list[Split]] = {}
        with planning(resource, secrets) as splits:
            for name in (t.name for t in preflight.result.tables if not t.error):
                try:
                    begun = resource.spec.begins_at_start(name)
                    plans[name] = [] if begun else list(splits(preflight.tables[name], None))
                except PermanentError as error:
                    output.error(error)
                    refused.append(error)
    tables = {name: preflight.tables[name] for name in plans}
    metadata = resource.spec.sink.kind.event_columns()
    added = list(metadata.names) if metadata else []
    topics = _topics(resource, tables)
    data = [_data(tables[name], plans[name], added) | _member("topic", topics.get(name)) for name in plans]
    times = next_times(resource, time.time())
    scheduled = {"schedule": {"nextTimes": times}} if times else {}
    output.data({"tables": data, **scheduled}, lambda console: _render(console, tables, plans, topics, times))
    return ExitCode.USER_MUST_ACT if refused else ExitCode.DONE


def next_times(resource: CdcSync, now: float) -> list[str]:
    """The times of the schedule after `now`; none where the stream has none."""
    schedule, times = resource.spec.stream.schedule, list[str]()
    while schedule is not None and len(times) < _TIMES:
        now = schedule.next_after(now)
        times.append(utc(now))
    return times


def _data(table: Capture, splits: list[Split], added: list[str]) -> dict[str, Any]:
    """`added` are the columns that the target has beside the source's."""
    columns = [*(c.name for c in table.captured), *added]
    key, cuts = list(table.key), [s.to_dict() for s in splits]
    return {"name": str(table.id), "columns": columns, "key": key, "splits": cuts}


def _topics(resource: CdcSync, tables: dict[str, Capture]) -> dict[str, str]:
    """Table -> topic, where targets are topics."""
    template = resource.spec.sink.kind.topics
    return {n: topic_name(template, resource.full_name, t.id) for n, t in tables.items()} if template else {}


def _member(name: str, value: str | None) -> dict[str, str]:
    return {} if value is None else {name: value}


def _render(
    console: Console,
    tables: dict[str, Capture],
    plans: dict[str, list[Split]],
    topics: dict[str, str],
    times: list[str],
) -> None:
    grid = Grid(box=None, pad_edge=False)
    for title in ("TABLE", *(["TOPIC"] if topics else []), "KEY", "SPLITS", "FROM", "TO"):
        grid.add_column(title)
    for name, splits in plans.items():
        key = ", ".join(tables[name].key)
        named = (shown(name), *([topics[name]] if topics else []), shown(key), f"{len(splits)}")
        if not splits:
            grid.add_row(*named, "not read (spec.start)", "")
        for i, split in enumerate(splits[:_SHOWN]):
            first = named if i == 0 else ("",) * len(named)
            grid.add_row(*first, _bound(split.start), _bound(split.end))
        if len(splits) > _SHOWN:
            grid.add_row(*("",) * len(named), f"... {len(splits) - _SHOWN} more", "")
    console.print(grid)
    if times:
        console.print(f"\nThe stream runs at first, and then at {', '.join(times)}, ...")


def _bound(bound: Bound) -> str:
    return "(open)" if bound is None else shown(", ".join(str(v) for v in bound))
