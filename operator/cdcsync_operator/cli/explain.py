"""`cdcsync explain`: what a migration would do to each captured table's copy, before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table as Grid

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.migration import MigrationQuestion, Script, StatementEffect, TargetEffect
from cdcsync_core.runs.run import ExitCode
from cdcsync_operator.cli.command import manifest_option, reporting
from cdcsync_operator.cli.plan import opened_manifest
from cdcsync_operator.cli.views.check_view import if_not_followed
from cdcsync_operator.cli.views.output import Output, shown

_NEVER = "never"
_FAILING = (TargetEffect.REWRITE, TargetEffect.EMPTY, TargetEffect.RESNAPSHOT, TargetEffect.STOP)
_STYLES = {TargetEffect.RESNAPSHOT: "yellow", TargetEffect.REWRITE: "yellow", TargetEffect.STOP: "red"}
_MEANINGS = {
    TargetEffect.NEW: "is captured and snapshotted once it is there",
    TargetEffect.METADATA: "is followed; no file of the target is written again",
    TargetEffect.UNKNOWN: "what it runs, or how later statements are read, is not in the script",
    TargetEffect.REWRITE: "is followed; all files of the target are written again",
    TargetEffect.EMPTY: "is followed; the target is emptied",
}
#: the tables' sizes, as the source estimates them
Sizes = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Verdict:
    """An effect under the table's policy; `rows` and `bytes` are the source's estimates."""

    statement: StatementEffect
    effect: TargetEffect
    why: str
    rows: int
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        effect, error = self.statement, self.statement.error
        remedy = {"remedy": error.remedy} if error and self.effect is TargetEffect.STOP else {}
        return {
            "table": effect.table,
            "script": effect.script,
            "line": effect.line,
            "statement": effect.statement,
            "effect": self.effect.value,
            "why": self.why,
            **remedy,
            "rows": self.rows,
            "bytes": self.bytes,
        }


@click.command()
@manifest_option
@click.argument("sql", nargs=-1)
@click.option(
    "--migrations", "paths", multiple=True, type=click.Path(path_type=Path, exists=True), metavar="PATH",
    help="A file of SQL, or a folder whose *.sql files run in the order of their names; may be given again.",
)  # fmt: skip
@click.option("--database", default="", metavar="NAME", help="The default database of the statements.")
@click.option(
    "--fail-on", default=TargetEffect.STOP.value, show_default=True,
    type=click.Choice([*(effect.value for effect in _FAILING), _NEVER]),
    help="The lightest effect with which the command ends with exit code 3.",
)  # fmt: skip
@reporting
def explain(
    output: Output, files: tuple[str, ...], sql: tuple[str, ...], paths: tuple[Path, ...], database: str, fail_on: str
) -> ExitCode:
    """Show what SQL statements would do to the copies of captured tables, one after the other.

    A statement is followed without new files, followed by rewriting the target, or not followed:
    then the table is resnapshotted or stops. The functions that decide it in the stream decide it
    here. Definitions are read from the source; no statement is run.
    """
    from cdcsync_operator.reconcile.migration_calls import effects_of, session_and_sizes
    from cdcsync_operator.reconcile.source_calls import run_preflight

    scripts = _scripts(sql, paths)
    with opened_manifest(files) as (resource, secrets):
        outcome = run_preflight(resource, secrets)
        if outcome.result.errors:
            raise outcome.result.errors[0]
        tables = tuple(outcome.tables[t.name] for t in outcome.result.tables if t.name in outcome.tables)
        session, sizes = session_and_sizes(resource, secrets, [t.id for t in tables])
        question = MigrationQuestion(resource.to_dict(), str(secrets), session, database, tables, scripts)
        verdicts = [_judged(resource, effect, sizes) for effect in effects_of(question)]
    left_out = [t.error for t in outcome.result.tables if t.error is not None]
    for error in left_out:
        output.warn(f"{error.table} is not explained: {error.found}")
    output.data({"effects": [v.to_dict() for v in verdicts]}, lambda console: _render(console, verdicts))
    return _exit_code(verdicts, fail_on)


def _scripts(sql: tuple[str, ...], paths: Sequence[Path]) -> tuple[Script, ...]:
    scripts = [Script("", text) for text in sql]
    scripts += [Script(str(path), _text(path)) for given in paths for path in _files(given)]
    if not scripts:
        raise click.UsageError("no statement: give SQL, or --migrations with a file or a folder")
    return tuple(scripts)


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    files = sorted(path.glob("*.sql"))
    if not files:
        raise click.UsageError(f"no *.sql file in {path}")
    yield from files


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise fail(
            Reason.SPEC_INVALID, f"{path}: {error}", needed="a file in UTF-8", remedy="convert the file to UTF-8"
        ) from None


def _judged(resource: CdcSync, statement: StatementEffect, sizes: Sizes) -> Verdict:
    rows, size = sizes.get(statement.table, (0, 0))
    effect, why = statement.effect, _MEANINGS.get(statement.effect, "")
    if statement.error is not None:
        effect, why = _not_followed(resource, statement.table, statement.error, rows)
    return Verdict(statement, effect, why, rows, size)


def _not_followed(resource: CdcSync, table: str, error: CdcError, rows: int) -> tuple[TargetEffect, str]:
    """A resnapshot by itself is for a change of the definition that is not followed, and not for a
    table that is gone or cannot be captured any more."""
    spec = resource.spec
    policy = if_not_followed(spec.schema_change_of(table), rows, history=spec.sink.kind.keeps_events)
    if error.reason is Reason.SCHEMA_CHANGE_REFUSED and policy == "resnapshot":
        return TargetEffect.RESNAPSHOT, error.found
    asks = f" ({policy})" if error.reason is Reason.SCHEMA_CHANGE_REFUSED and policy.startswith("asks") else ""
    return TargetEffect.STOP, f"{error.reason.value}: {error.found}{asks}"


def _exit_code(verdicts: Sequence[Verdict], fail_on: str) -> ExitCode:
    if fail_on == _NEVER:
        return ExitCode.DONE
    heavy = any(v.effect.weight >= TargetEffect(fail_on).weight for v in verdicts)
    return ExitCode.USER_MUST_ACT if heavy else ExitCode.DONE


def _render(console: Console, verdicts: Sequence[Verdict]) -> None:
    if not verdicts:
        console.print("No captured table is changed.")
        return
    grid = Grid(box=None, pad_edge=False)
    for title in ("TABLE", "EFFECT", "ROWS", "SIZE", "WHERE", "STATEMENT", "WHY"):
        grid.add_column(title, overflow="fold")
    for v in verdicts:
        style = _STYLES.get(v.effect)
        effect = f"[{style}]{v.effect.value}[/]" if style else v.effect.value
        place = f"{v.statement.script}:{v.statement.line}" if v.statement.script else f"line {v.statement.line}"
        cost = (
            (f"{v.rows:,}", f"{v.bytes / (1 << 20):,.1f} MiB")
            if v.effect not in (TargetEffect.NEW, TargetEffect.UNKNOWN)
            else ("", "")
        )
        grid.add_row(shown(v.statement.table), effect, *cost, shown(place), shown(v.statement.statement), shown(v.why))
    console.print(grid)
