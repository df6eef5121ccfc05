"""Runs DDL on real servers, many cases in one go, and compares what the product predicts from the
binlog with what the server has afterwards: definition, TABLE_MAP and rows."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pymysql.err import MySQLError

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.confirmation import contradictions, other_defaults
from cdcsync_core.tables.schema_change import Emptied, Filled, Followed, Kind, Outcome, Stop, unchanged
from cdcsync_core.tables.source_table import Column, TableId, quote
from cdcsync_mysql.reading.catalog import read_defaults, read_table
from cdcsync_spark.binlog.schema.steps import FollowPolicy, meaning
from cdcsync_spark.wire.binlog.facts import Fact, RowsEvent, TableMap
from cdcsync_spark.wire.binlog.predicted_map import differences
from cdcsync_spark.wire.sql.changes.schema_change import apply_to
from cdcsync_spark.wire.sql.column.catalog_default import catalog_default, predicted_default
from cdcsync_spark.wire.sql.syntax.text import Statement
from cdcsync_spark.wire.sql.syntax.tokens import Session
from support.definitions import OTHERS, DefinitionCase
from support.dump import log_end, read_log
from support.servers import Server

Rows = dict[Any, dict[str, Any]]
_EXACT = FollowPolicy(follow=True)
_KEPT = ("no key is left, but the server has one",)
#: the next row event, whatever the table's columns are; every partitioned table has room for it
_WRITE = "REPLACE INTO t ({key}) VALUES (29)"
_OTHER_TABLES = re.compile(r"\b[op]\b")


@dataclass
class Played:
    """A case, and what the server had before and after it; `after` is None where it has no such
    table any more, `refused` is the server's error."""

    case: DefinitionCase
    table: TableId
    before: Capture
    rows: Rows
    refused: str = ""
    after: Capture | None = None
    defaults: dict[str, str] = field(default_factory=dict)
    rows_after: Rows = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """`kind` is what was predicted; `wrong` how the server differs from it."""

    case: DefinitionCase
    kind: Kind
    wrong: tuple[str, ...] = ()
    reason: str = ""


class Bench:
    """One server, on which cases are played one after the other, each in a database of its own.

    Setting up and reading go by a session that writes no binlog, so what is in the binlog of a
    database is the case itself and one row written after it.
    """

    def __init__(self, server: Server, prefix: str) -> None:
        self._server, self._prefix = server, prefix
        self._start = log_end(server)
        self.refused = 0
        self._played: list[Played] = []
        #: by its statements a table whose only statement so far was refused
        self._untouched: dict[tuple[str, ...], Played] = {}
        self._templates: dict[tuple[str, ...], tuple[str, str]] = {}
        self._admin, self._writer = server.connect(), server.connect()
        self._cursor = self._admin.cursor()
        self._run("SET time_zone = '+00:00', sql_log_bin = 0, sql_mode = 'NO_AUTO_VALUE_ON_ZERO'")

    def close(self) -> None:
        for name in (*(name for name, _ in self._templates.values()), *(p.table.database for p in self._played)):
            self._run(f"DROP DATABASE IF EXISTS {name}")
        self._admin.close()
        self._writer.close()

    def play(self, cases: Iterable[DefinitionCase], *, followed_only: bool = False) -> None:
        """`followed_only` leaves out what the reader does not follow: it claims nothing of it."""
        for case in cases:
            if case.flavor in ("", self._server.flavor) and not (followed_only and self._is_left(case)):
                self._play(case)

    def _is_left(self, case: DefinitionCase) -> bool:
        database, _ = self._template(case.table)
        definition = self._definition(TableId(database, "t"))
        assert definition is not None
        self._cursor.execute("SELECT VERSION()")
        version = _version(str(self._cursor.fetchone()[0]))
        session = Session(0, "utf8mb4", self._server.flavor == "mariadb", version)
        return not all(
            isinstance(apply_to(definition, Statement(database, sql, session)), Followed) for sql in case.run
        )

    def _play(self, case: DefinitionCase) -> None:
        alone = len(case.run) == 1 and not _OTHER_TABLES.search(case.run[0])
        played = (self._untouched.pop(case.table, None) if alone else None) or self._prepared(case)
        played.case, played.refused, database = case, "", played.table.database
        try:
            self._server.run(*(s.replace("{database}", database) for s in (*case.before, *case.run)), db=database)
        except MySQLError as e:
            played.refused = str(e.args[-1])
            self.refused += 1
        if played.refused and alone:
            self._untouched[case.table] = played
        else:
            self._observe(played)

    def _prepared(self, case: DefinitionCase) -> Played:
        database = f"{self._prefix}{len(self._played)}"
        self._set_up(database, case)
        table = TableId(database, "t")
        before = self._definition(table)
        assert before is not None
        self._played.append(Played(case, table, before, self._rows(before)))
        return self._played[-1]

    def _set_up(self, database: str, case: DefinitionCase) -> None:
        template, names = self._template(case.table)
        self._run(f"CREATE DATABASE {database} CHARACTER SET utf8mb4", f"USE {database}")
        self._run(f"CREATE TABLE t LIKE {template}.t", f"INSERT INTO t ({names}) SELECT {names} FROM {template}.t")
        if _OTHER_TABLES.search(" ".join(case.run)):
            self._run(*OTHERS)

    def _template(self, table: tuple[str, ...]) -> tuple[str, str]:
        """The database that has the table with its rows, and the columns that can be written."""
        if table not in self._templates:
            name = f"{self._prefix}_template{len(self._templates)}"
            self._run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4", f"USE {name}", *table)
            definition = self._definition(TableId(name, "t"))
            assert definition is not None
            assert definition.source.generated is not None
            written = (quote(c.name) for c in definition.columns if c.name not in definition.source.generated)
            self._templates[table] = name, ", ".join(written)
        return self._templates[table]

    def _observe(self, played: Played) -> None:
        played.after = self._definition(played.table)
        if played.after is None:
            return
        played.defaults = self._defaults(played.after)
        with suppress(MySQLError):
            played.rows_after = self._rows(played.after)
        with suppress(MySQLError), self._writer.cursor() as cursor:
            cursor.execute("SET sql_mode = ''")
            cursor.execute(f"USE {played.table.database}")
            cursor.execute(_WRITE.format(key=quote(played.after.key[0])))

    def _run(self, *statements: str) -> None:
        for statement in statements:
            self._cursor.execute(statement)

    def _definition(self, table: TableId) -> Capture | None:
        """None, too, for a table of which there is no copy."""
        try:
            return read_table(self._admin, table)
        except CdcError:
            return None

    def _defaults(self, definition: Capture) -> dict[str, str]:
        shown = read_defaults(self._admin, definition.id)
        mariadb = self._server.flavor == "mariadb"
        return {c.name: catalog_default(c, *shown[c.name], mariadb=mariadb) for c in definition.columns}

    def _rows(self, definition: Capture) -> Rows:
        """A FLOAT as a DOUBLE, because its text has six digits."""
        names = [c.name for c in definition.columns]
        shown = (f"{quote(c.name)}{' * 1e0' if c.type.base == 'float' else ''}" for c in definition.columns)
        self._cursor.execute(f"SELECT {', '.join(shown)} FROM {definition.id.quoted}")
        rows = [dict(zip(names, map(_plain, row), strict=True)) for row in self._cursor.fetchall()]
        return {row[definition.key[0]]: row for row in rows}

    def judge(self) -> list[Verdict]:
        """One verdict for each case that the server did not refuse."""
        by_database: dict[str, list[Fact]] = {p.table.database: [] for p in self._played}
        for fact in read_log(self._server, self._start):
            database = fact.table.database if isinstance(fact, RowsEvent) else getattr(fact, "database", "")
            by_database.get(database, []).append(fact)
        found = [_judged(played, by_database[played.table.database]) for played in self._played]
        return [verdict for verdict in found if verdict is not None]


def _judged(played: Played, facts: list[Fact]) -> Verdict | None:
    """None for a case of which the binlog has no statement: the server refused it, or it changes
    nothing that is replicated."""
    statements = [f for f in facts if isinstance(f, Statement)]
    if not statements:
        return None
    outcome, rows = _predicted(played, statements)
    if not isinstance(outcome, Followed | Emptied):
        kept = isinstance(outcome, Stop) and outcome.cause is Reason.NO_PRIMARY_KEY and played.after is not None
        return Verdict(played.case, outcome.kind, _KEPT if kept else (), getattr(outcome, "reason", ""))
    last = max(i for i, f in enumerate(facts) if isinstance(f, Statement))
    own = [f for f in facts if isinstance(f, RowsEvent) and f.table == played.table]
    maps = [f.map for f in facts[last:] if isinstance(f, RowsEvent) and f.table == played.table]
    wrong = _compared(outcome.after, rows, played, maps[-1] if maps else None)
    if len(statements) == 1 and isinstance(outcome, Followed):
        wrong += other_defaults(_predicted_defaults(outcome, statements[0]), played.defaults)
    written = len(own) > 1
    return Verdict(played.case, outcome.kind, tuple(w for w in wrong if not (written and w.startswith("rows "))))


def _predicted(played: Played, statements: list[Statement]) -> tuple[Outcome, Rows]:
    """The outcomes of all statements, one after the other; the last that is not nothing counts."""
    definition, rows = played.before, played.rows
    result: Outcome = unchanged(definition)
    for statement in statements:
        outcome = _outcome(definition, statement)
        if outcome is None:
            continue
        if not isinstance(outcome, Followed | Emptied):
            return outcome, {}
        rows = _applied(outcome, rows)
        definition = outcome.after
        if outcome.kind is not Kind.NOTHING or result.kind is Kind.NOTHING:
            result = outcome
    return (Emptied(definition), {}) if isinstance(result, Emptied) else (_with(result, definition), rows)


def _outcome(definition: Capture, statement: Statement) -> Outcome | None:
    """What the stream takes it for, and what it is where the table stops."""
    meant = meaning(definition, statement, _EXACT)
    return apply_to(definition, statement) if meant is None or isinstance(meant, CdcError) else meant


def _predicted_defaults(outcome: Followed, statement: Statement) -> dict[str, str]:
    return {
        column.name: predicted_default(column, origin.value, statement.session)
        for column, origin in zip(outcome.after.columns, outcome.origins, strict=True)
        if isinstance(origin, Filled)
    }


def _with(result: Outcome, definition: Capture) -> Followed:
    assert isinstance(result, Followed)
    return Followed(result.before, definition, result.origins)


def _applied(outcome: Followed | Emptied, rows: Rows) -> Rows:
    if isinstance(outcome, Emptied):
        return {}
    columns = outcome.after.columns
    key = outcome.after.key[0]
    found = [
        {
            column.name: _plain(origin.value) if isinstance(origin, Filled) else _converted(row[origin.source], column)
            for column, origin in zip(columns, outcome.origins, strict=True)
        }
        for row in rows.values()
    ]
    return {row[key]: row for row in found}


def _converted(value: Any, column: Column) -> Any:
    if column.type.base == "datetime" and type(value) is dt.date:
        return dt.datetime.combine(value, dt.time())
    return value


def _compared(predicted: Capture, rows: Rows, played: Played, table_map: TableMap | None) -> list[str]:
    if played.after is None:
        return ["the table is gone, or not to be copied"]
    wrong = [
        *contradictions(predicted, played.after),
        *(differences(predicted, table_map) if table_map else ["no row"]),
    ]
    if list(rows) != list(played.rows_after) and sorted(rows) != sorted(played.rows_after):
        wrong.append(f"rows {sorted(played.rows_after)}, not {sorted(rows)}")
    for key in rows.keys() & played.rows_after.keys():
        for name, value in rows[key].items():
            found = played.rows_after[key].get(name)
            same = type(value) is type(found) and value == found
            if not same and not (isinstance(value, int) and isinstance(found, bytes) and value == _comparable(found)):
                wrong.append(f"row {key}: {name} is {found!r}, not {value!r}")
    return wrong


def _plain(value: Any) -> Any:
    """As PyMySQL has it, with zero dates as NULL and instants without their zone."""
    if isinstance(value, str) and value.startswith("0000-00-00"):
        return None
    if isinstance(value, dt.datetime) and value.tzinfo:
        return value.replace(tzinfo=None)
    return value


def _comparable(value: Any) -> Any:
    """A BIT is read as bytes and predicted as a number."""
    return int.from_bytes(value, "big") if isinstance(value, bytes) else value


def _version(text: str) -> int:
    major, minor, patch = re.findall(r"\d+", text)[:3]
    return int(major) * 10_000 + int(minor) * 100 + int(patch)


def summary(verdicts: Sequence[Verdict]) -> str:
    counted = Counter(str(v.kind) for v in verdicts)
    return ", ".join(f"{kind}: {count}" for kind, count in sorted(counted.items()))
