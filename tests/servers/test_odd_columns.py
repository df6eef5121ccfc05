"""Hidden columns, generated columns, old formats and odd types, copied and followed: what the
snapshot reads and what every kind of row change writes come out as the source's rows (R1, R9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.positions.position import FilePosition
from cdcsync_mysql.readiness.preflight import preflight
from cdcsync_mysql.sessions.version import parse_version
from support.compare import compare, source_rows
from support.dump import changes, definition, log_end
from support.fixtures import FreshDatabase, variants
from support.servers import Server
from support.small_sync import SmallSync
from support.sync_process import Sync
from support.table_status import entry
from support.verified import verify

pytestmark = pytest.mark.server

#: MariaDB from here on leaves generated columns out of most images
_GENERATED_LEFT_OUT = (11, 8)


@dataclass(frozen=True)
class Odd:
    """A table of `id INT PRIMARY KEY, n INT` and `columns`; into those named by `into` go `values`,
    where `{i}` is the row's number. `generated` are columns that are left out where the server does
    not log them; `alter` changes the table while it streams; `settings` are the server's when it is
    made."""

    name: str
    columns: str
    into: str = ""
    values: str = ""
    flavor: str = ""
    since: tuple[int, ...] = ()
    generated: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    alter: str = ""
    settings: str = ""

    def of(self, server: Server) -> bool:
        return self.flavor in ("", server.flavor) and parse_version(server.version) >= self.since

    def left_out(self, server: Server) -> list[str]:
        left = server.flavor == "mariadb" and parse_version(server.version) >= _GENERATED_LEFT_OUT
        return [*self.excluded, *(self.generated if left else ())]

    def insert(self, *rows: int, verb: str = "INSERT", after: str = "") -> str:
        columns = ", ".join(filter(None, ["id", "n", self.into]))
        values = [", ".join(filter(None, [str(i), str(i * 10), self.values.replace("{i}", str(i))])) for i in rows]
        return f"{verb} INTO {self.name} ({columns}) VALUES {', '.join(f'({v})' for v in values)}{after}"

    def changes(self) -> list[str]:
        """Every kind: inserts, updates, changes of the key, replaced rows, deletes."""
        t = self.name
        return [
            self.insert(11, 12, 13),
            f"UPDATE {t} SET n = n + 1 WHERE id IN (1, 2, 11)",
            f"UPDATE {t} SET id = id + 100 WHERE id IN (3, 12)",
            self.insert(4, 21, verb="REPLACE"),
            self.insert(5, after=" ON DUPLICATE KEY UPDATE n = 55"),
            f"DELETE FROM {t} WHERE id IN (6, 13)",
            f"UPDATE {t} SET id = 6 WHERE id = 7",
            f"UPDATE {t} SET n = NULL WHERE id = 8",
        ]


ODD = (
    Odd("plain", "b TEXT", "b", "'b{i}'"),
    Odd("long_unique", "b TEXT, UNIQUE (b)", "b", "'b{i}'", "mariadb"),
    Odd(
        "long_uniques",
        "b TEXT NOT NULL, g INT AS (n * 2) VIRTUAL, c VARCHAR(3000), UNIQUE (b), UNIQUE (c, b), UNIQUE (b) USING HASH",
        "b, c",
        "'b{i}', IF({i} % 2, NULL, 'c{i}')",
        "mariadb",
        generated=("g",),
    ),
    Odd("hash_key", "b INT, UNIQUE (b) USING HASH", "b", "{i}", "mariadb"),
    Odd("its_name", "DB_ROW_HASH_1 BIGINT UNSIGNED, b TEXT, UNIQUE (b)", "DB_ROW_HASH_1, b", "{i}, 'b{i}'", "mariadb"),
    Odd("becomes_unique", "b TEXT", "b", "'b{i}'", "mariadb", alter="ADD UNIQUE (b)"),
    Odd("no_more_unique", "b TEXT, UNIQUE u (b)", "b", "'b{i}'", "mariadb", alter="ADD c INT DEFAULT 7, DROP INDEX u"),
    Odd(
        "computed",
        "v INT AS (n * 2) VIRTUAL, b VARCHAR(9), s INT AS (n * 3) STORED, KEY (v)",
        "b",
        "'b{i}'",
        generated=("v", "s"),
    ),
    Odd(
        "computed_unique",
        "s BIGINT AS (id * 7) STORED, b BLOB, v VARCHAR(20) AS (CONCAT('v', id)) VIRTUAL, UNIQUE (s)",
        "b",
        "'b{i}'",
        generated=("s", "v"),
    ),
    Odd("computed_not_copied", "v INT AS (n * 2) VIRTUAL, b VARCHAR(9)", "b", "'b{i}'", excluded=("v",)),
    Odd("not_copied", "s TEXT, b VARCHAR(9), d DECIMAL(20,5)", "s, b, d", "'s{i}', 'b{i}', {i}", excluded=("s", "d")),
    Odd("unseen", "w INT INVISIBLE DEFAULT 4, b VARCHAR(9)", "b, w", "'b{i}', {i}"),
    Odd("functional", "b JSON, KEY ((n * 2)), KEY ((CAST(b AS UNSIGNED ARRAY)))", "b", "'[1, {i}]'", "mysql"),
    Odd("vectors", "b TEXT, v VECTOR(2), c CHAR(9)", "b, v, c", "'b{i}', TO_VECTOR('[1, {i}]'), 'c'", "mysql"),
    Odd(
        "mariadb_vectors",
        "b TEXT, v VECTOR(2) NOT NULL, c CHAR(9), VECTOR INDEX (v)",
        "b, v, c",
        "'b{i}', VEC_FromText('[1, {i}]'), 'c'",
        "mariadb",
        since=(11, 8),
    ),
    Odd(
        "old_times",
        "a TIME(3), b DATETIME(1), c TIMESTAMP(6) NULL, d TIME, e DATETIME, f TIMESTAMP NULL, g TIME(6), h DATETIME(5)",
        "a, b, c, d, e, f, g, h",
        "'-{i}:02:03.456', '2020-01-{i} 03:04:05.6', '2021-01-02 03:04:05.678901', '838:59:59', '0000-00-00',"
        " '2020-01-02 03:04:0{i}', '-00:00:00.0000{i}', '9999-12-31 23:59:59.99999'",
        "mariadb",
        alter="ADD w TIME(3)",
        settings="mysql56_temporal_format = OFF",
    ),
    Odd("compressed", "b TEXT COMPRESSED, c VARCHAR(900) COMPRESSED", "b, c", "REPEAT('b', {i}), 'c'", "mariadb"),
    Odd("addresses", "u UUID, f INET4, s INET6", "u, f, s", "UUID(), '10.0.0.{i}', '::{i}'", "mariadb"),
    Odd("labels", "e ENUM('a','b'), s SET('x','y'), b BIT(9)", "e, s, b", "1 + {i} % 2, {i} % 4, {i}"),
    Odd("shapes", "p POINT, g GEOMETRY", "p, g", "POINT(1, {i}), POINT(0, 0)"),
    Odd("documents", "j JSON", "j", """'{"a": {i}}'"""),
)


@variants("mariadb1011", "mysql97_gtid", also=("mariadb114", "mariadb118"))
def test_odd_columns_are_copied_and_followed(
    variant: str, request: pytest.FixtureRequest, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(variant)
    database, odd = fresh_database(server), [o for o in ODD if o.of(server)]
    _create(server, database, odd)
    left_out = {o.name: o.left_out(server) for o in odd if o.left_out(server)}
    sync = SmallSync(server, database, tmp_path, follow=True, excluded=left_out)
    assert _refused(sync) == {}
    sync.copy()
    start = log_end(server)
    server.run("SET sql_mode = ''", *(s for o in odd for s in o.changes()), db=database)
    for o in odd:
        _assert_both_decoders_agree(server, database, o, start)
    server.run(*(f"ALTER TABLE {o.name} {o.alter}" for o in odd if o.alter), db=database)
    server.run(*(f"UPDATE {o.name} SET n = -1 WHERE id < 3" for o in odd), db=database)
    server.run(*(o.insert(31) for o in odd), *(f"DELETE FROM {o.name} WHERE id = 11" for o in odd), db=database)
    sync.catch_up()
    for o in odd:
        _assert_copied(sync, o.name)
    assert {name: r.differences or r.error or r.skipped for name, r in verify(sync).items() if not r.equal} == {}


def _create(server: Server, database: str, odd: Sequence[Odd]) -> None:
    for o in odd:
        server.run(
            *([f"SET GLOBAL {o.settings}"] if o.settings else []),
            f"CREATE TABLE {o.name} (id INT PRIMARY KEY, n INT, {o.columns})",
            *([f"SET GLOBAL {o.settings.partition(' ')[0]} = DEFAULT"] if o.settings else []),
            "SET sql_mode = ''",
            o.insert(*range(1, 10)),
            db=database,
        )


def _refused(sync: SmallSync) -> dict[str, Reason]:
    found = preflight(sync.source, sync.resource.spec)
    return {t.id.name: t.error.reason for t in found.tables if t.error}


def _assert_both_decoders_agree(server: Server, database: str, odd: Odd, start: FilePosition) -> None:
    table = definition(server, database, odd.name, excluded=frozenset(odd.left_out(server)))
    assert changes(server, table, start).images > 0


def _assert_copied(sync: SmallSync, table: str) -> None:
    target = sync.target(table).open_snapshot().scan().read_all()
    # vectors are compared by `verify`
    printed = pa.schema([f for f in target.schema if not pa.types.is_list(f.type)])
    source = source_rows(sync.server, sync.database, table, printed)
    difference = compare(table, source, target, ["id"])
    assert not difference, str(difference)


def test_generated_columns_are_refused_where_the_server_leaves_them_out(
    mariadb118: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """Before a row is read; with the remedy the table is captured."""
    database = fresh_database(mariadb118)
    computed = next(o for o in ODD if o.name == "computed")
    _create(mariadb118, database, [computed])
    sync = SmallSync(mariadb118, database, tmp_path / "all")
    found = preflight(sync.source, sync.resource.spec)
    error = found.tables[0].error
    assert error is not None
    assert error.reason is Reason.ROW_IMAGE_NOT_FULL
    assert "generated columns v, s" in error.found
    assert (
        error.remedy
        == f"leave them out: tables.overrides: [{{table: {database}.computed, columns: {{exclude: [v, s]}}}}]"
    )
    with pytest.raises(CdcError, match="generated columns v, s"):
        _follow(sync, "UPDATE computed SET n = 0")
    remedied = SmallSync(mariadb118, database, tmp_path / "some", excluded={"computed": ["v", "s"]})
    assert _refused(remedied) == {}
    _follow(remedied, "UPDATE computed SET n = 1")
    _assert_copied(remedied, "computed")


@pytest.mark.parametrize("columns", ["b TEXT, UNIQUE (b)", "b TEXT, g INT AS (n) VIRTUAL"])
def test_old_times_beside_columns_that_are_left_out_are_refused(
    columns: str, mariadb118: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """The images that lack columns are cut without a catalog. Rebuilt, the table streams; without
    such columns it always did."""
    database = fresh_database(mariadb118)
    odd = Odd("old", f"{columns}, t TIME(3), d DATETIME", "b, t, d", "'b{i}', '1:2:3.456', '2020-01-01'")
    plain = replace(odd, name="plain", columns="b TEXT, t TIME(3), d DATETIME")
    settings = "mysql56_temporal_format = OFF"
    _create(mariadb118, database, [replace(odd, settings=settings), replace(plain, settings=settings)])
    sync = SmallSync(mariadb118, database, tmp_path, excluded={"old": ["g"]} if "AS" in columns else {})
    found = preflight(sync.source, sync.resource.spec)
    assert [t.error and t.error.reason for t in found.tables] == [Reason.TYPE_UNSUPPORTED, None]
    error = found.tables[0].error
    assert error is not None
    assert "the columns t, d" in error.found
    mariadb118.run(*error.remedy.split("; "))
    assert _refused(sync) == {}
    _follow(sync, "UPDATE old SET n = 1")
    _assert_copied(sync, "old")


def _follow(sync: SmallSync, statement: str) -> None:
    sync.copy()
    sync.server.run(statement, db=sync.database)
    sync.catch_up()


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_generated_column_that_is_added_stops_its_table_until_it_is_left_out(
    mariadb118: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """Once, with the reason that a resnapshot does not cure."""
    database = fresh_database(mariadb118)
    name = f"{database}.t"
    create = "CREATE TABLE {} (id INT PRIMARY KEY, n INT)"
    mariadb118.run(create.format("other"), create.format("t"), "INSERT INTO t VALUES (1, 1), (2, 2)", db=database)
    with Sync(mariadb118, [rf"{database}\..*"], tmp_path / "sync") as sync:
        sync.start("forever")
        sync.wait_for(lambda s: s.get("tables", {}).get("streaming") == 2)
        mariadb118.run("ALTER TABLE t ADD g INT AS (n * 2) VIRTUAL", "UPDATE t SET n = 5 WHERE id = 1", db=database)
        failed = entry(sync.wait_for(lambda s: entry(s, name).get("phase") == "Failed"), name)
        assert failed["reason"] == "RowImageNotFull"
        assert f"{{table: {name}, columns: {{exclude: [g]}}}}" in failed["message"]
        sync.write_manifest(tables={"overrides": [{"table": name, "columns": {"exclude": ["g"]}}]})
        sync.wait_for(lambda s: s.get("tables", {}).get("streaming") == 2)
        mariadb118.run("UPDATE t SET n = 6 WHERE id = 2", db=database)
        expected = [{"id": 1, "n": 5}, {"id": 2, "n": 6}]
        sync.wait_until(lambda: sync.target(name).sort_by("id").to_pylist() == expected, "the updated row")
