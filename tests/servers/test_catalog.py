"""Which tables are captured and how they are defined: by the server's own word, hostile names
included (R3, R10)."""

from __future__ import annotations

from typing import Any

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.source_table import TableId
from cdcsync_core.tables.table_selection import TableSelection
from cdcsync_mysql.reading.catalog import as_planned, read_table
from cdcsync_mysql.reading.selected_tables import resolve
from cdcsync_mysql.sessions.connection import Connection, connect, fetch
from support.fixtures import FreshDatabase
from support.servers import Server
from support.source import connected, source_of


def _names(server: Server, include: list[str], exclude: list[str] | None = None) -> list[str]:
    with connected(server) as (connection, _):
        return [str(t) for t in resolve(connection, TableSelection(tuple(include), tuple(exclude or ()))).tables]


def _refusal(server: Server, database: str, name: str, excluded: frozenset[str] = frozenset()) -> CdcError:
    with connected(server) as (connection, _), pytest.raises(CdcError) as refused:
        read_table(connection, TableId(database, name), excluded)
    assert refused.value.table in ("", f"{database}.{name}")
    return refused.value


def test_patterns_match_the_whole_name(any_server: Server, fresh_database: FreshDatabase) -> None:
    d = fresh_database(any_server)
    any_server.run(*(f"CREATE TABLE {t} (id INT PRIMARY KEY)" for t in ("orders", "orders_old", "tmp_x", "Tmp")), db=d)
    assert _names(any_server, [rf"{d}\.orders"]) == [f"{d}.orders"]
    assert _names(any_server, [rf"{d}\..*"], [rf"{d}\.tmp_.*"]) == [f"{d}.Tmp", f"{d}.orders", f"{d}.orders_old"]
    assert _names(any_server, [rf"{d}\.(?i:TMP)", rf"{d}\.orders"]) == [f"{d}.Tmp", f"{d}.orders"]


@pytest.mark.parametrize(
    ("include", "reason"),
    [
        ([r"nowhere\.at_all"], Reason.NO_SUCH_TABLE),
        ([r"mysql\..*"], Reason.NO_SUCH_TABLE),
        ([r"information_schema\.TABLES"], Reason.NO_SUCH_TABLE),
    ],
)
def test_patterns_that_cannot_be_meant(any_mysql: Server, include: list[str], reason: Reason) -> None:
    with pytest.raises(CdcError) as refused:
        _names(any_mysql, include)
    assert refused.value.reason is reason
    assert include[0] in refused.value.found or repr(include[0]) in refused.value.found


def test_what_a_pattern_misses_is_named_and_what_others_match_is_captured(
    mariadb1011: Server, fresh_database: FreshDatabase
) -> None:
    """A literal name is reported as that table; of the other patterns it is only reported that they
    match none."""
    d = fresh_database(mariadb1011)
    mariadb1011.run("CREATE TABLE orders (id INT PRIMARY KEY)", "CREATE VIEW v AS SELECT id FROM orders", db=d)
    include = (rf"{d}\.orders", rf"{d}\.ordres", f"{d}.v", rf"{d}\.none_.*", rf"{d}\.left_out")
    with connected(mariadb1011) as (connection, _):
        found = resolve(connection, TableSelection(include, (rf"{d}\.left_.*",)))
        with pytest.raises(CdcError) as refused:
            resolve(connection, TableSelection(include[1:]))
    with pytest.raises(CdcError) as emptied:
        _names(mariadb1011, [rf"{d}\.ord.*"], [rf"{d}\.orders"])
    assert (emptied.value.table, emptied.value.reason) == ("", Reason.NO_SUCH_TABLE)
    assert found.tables == (TableId(d, "orders"),)
    assert [(e.table, e.reason) for e in found.absent] == [
        (f"{d}.ordres", Reason.NO_SUCH_TABLE),
        (f"{d}.v", Reason.ENGINE_UNSUPPORTED),
    ]
    assert [(e.table, e.reason) for e in found.unmatched] == [("", Reason.NO_SUCH_TABLE)]
    assert "none_" in found.unmatched[0].found
    with pytest.raises(CdcError, match=rf"{d}\.orders does but for its case"):
        _names(mariadb1011, [rf"{d}\.Orders"])
    assert (refused.value.table, refused.value.reason) == (f"{d}.ordres", Reason.NO_SUCH_TABLE)


def test_views_and_sequences_are_no_tables(mariadb1011: Server, fresh_database: FreshDatabase) -> None:
    d = fresh_database(mariadb1011)
    mariadb1011.run(
        "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE VIEW v AS SELECT * FROM t", "CREATE SEQUENCE s", db=d
    )
    assert _names(mariadb1011, [rf"{d}\..*"]) == [f"{d}.t"]
    with pytest.raises(CdcError) as refused:
        _names(mariadb1011, [rf"{d}\.[vs]"])
    assert refused.value.reason is Reason.ENGINE_UNSUPPORTED


HOSTILE = ("a`b", "o'brien", 'quo"te', "per%cent", "back\\slash", "новая", "; DROP TABLE x; --", "..", "sp ace", "%s")


def test_hostile_names(any_server: Server) -> None:
    for name in HOSTILE:
        table = TableId(name, name)
        any_server.run(f"CREATE DATABASE IF NOT EXISTS `{name.replace('`', '``')}`")
        try:
            quoted = name.replace("`", "``")
            any_server.run(f"CREATE TABLE {table.quoted} (`{quoted}` INT PRIMARY KEY, v INT)")
            with connected(any_server) as (connection, _):
                found = read_table(connection, table, frozenset({"v"}))
                assert table in resolve(connection, TableSelection(("(?s).*",))).tables
            assert (found.id, found.key, [c.name for c in found.columns]) == (table, (name,), [name, "v"])
        finally:
            any_server.run(f"DROP DATABASE `{name.replace('`', '``')}`")


def test_one_name_for_two_tables_is_refused(any_server: Server) -> None:
    any_server.run("CREATE DATABASE `n.m`", "CREATE DATABASE n")
    try:
        any_server.run("CREATE TABLE `n.m`.t (id INT PRIMARY KEY)", "CREATE TABLE n.`m.t` (id INT PRIMARY KEY)")
        any_server.run("CREATE TABLE n.other (id INT PRIMARY KEY)")
        with any_server.connect() as connection:
            found = resolve(connection, TableSelection((r"n\..*",)))
        assert found.tables == (TableId("n", "other"),)
        assert [(e.table, e.reason) for e in found.absent] == [("n.m.t", Reason.SPEC_INVALID)]
    finally:
        any_server.run("DROP DATABASE `n.m`", "DROP DATABASE n")


def test_definition(any_server: Server, fresh_database: FreshDatabase) -> None:
    """All columns of the server's row in its order, with types, signs, character sets."""
    d = fresh_database(any_server)
    hidden = "h INT INVISIBLE DEFAULT 7"
    any_server.run(
        "CREATE TABLE t (b VARCHAR(9) CHARACTER SET latin1 NOT NULL, a INT UNSIGNED NOT NULL, e ENUM('x', 'it''s', 'a,b'),"
        f" v INT GENERATED ALWAYS AS (a + 1) VIRTUAL, s INT GENERATED ALWAYS AS (a + 2) STORED, {hidden},"
        " c DECIMAL(20,3), j JSON, PRIMARY KEY (a, b)) CHARACTER SET utf8mb4",
        db=d,
    )
    with connected(any_server) as (connection, _):
        table = read_table(connection, TableId(d, "t"), frozenset({"j"}))
    assert [c.name for c in table.columns] == ["b", "a", "e", "v", "s", "h", "c", "j"]
    assert [c.name for c in table.captured] == ["b", "a", "e", "v", "s", "h", "c"]
    assert table.key == ("a", "b")
    by_name = {c.name: c for c in table.columns}
    assert (by_name["b"].type.charset, by_name["b"].collation, by_name["b"].nullable) == (
        "latin1",
        "latin1_swedish_ci",
        False,
    )
    assert by_name["a"].type.unsigned
    assert by_name["e"].type.members == ("x", "it's", "a,b")
    assert (by_name["c"].type.size, by_name["c"].type.scale, by_name["c"].nullable) == (20, 3, True)
    assert by_name["j"].type.base == ("json" if any_server.flavor == "mysql" else "longtext")


def test_generated_invisible_primary_key(any_mysql: Server, fresh_database: FreshDatabase) -> None:
    """Listed even where the server's global hides it, because the binlog has it (R1)."""
    d = fresh_database(any_mysql)
    with any_mysql.connect(db=d) as raw, raw.cursor() as cursor:
        cursor.execute("SET sql_generate_invisible_primary_key = ON")
        cursor.execute("CREATE TABLE g (a INT)")
    any_mysql.run("SET GLOBAL show_gipk_in_create_table_and_information_schema = OFF")
    try:
        with connected(any_mysql) as (connection, _):
            table = read_table(connection, TableId(d, "g"))
    finally:
        any_mysql.run("SET GLOBAL show_gipk_in_create_table_and_information_schema = ON")
    assert table.key == ("my_row_id",)
    assert [c.name for c in table.columns] == ["my_row_id", "a"]


#: definition, key or reason of refusal
_KEYS: list[tuple[str, tuple[str, ...] | Reason]] = [
    ("a INT NOT NULL, b INT NOT NULL, UNIQUE u (a, b), UNIQUE w (b)", ("b",)),
    ("a INT, b INT NOT NULL, UNIQUE u (a)", Reason.NO_PRIMARY_KEY),
    ("a INT, b INT NOT NULL, UNIQUE u (a, b)", Reason.NO_PRIMARY_KEY),
    ("a INT, KEY k (a)", Reason.NO_PRIMARY_KEY),
    ("a VARCHAR(50) NOT NULL, UNIQUE u (a(10))", Reason.NO_PRIMARY_KEY),
    ("a BLOB NOT NULL, PRIMARY KEY (a(10))", Reason.NO_PRIMARY_KEY),
    ("a FLOAT PRIMARY KEY", Reason.TYPE_UNSUPPORTED),
    ("a DOUBLE NOT NULL, b INT NOT NULL, PRIMARY KEY (b, a)", Reason.TYPE_UNSUPPORTED),
    ("a DOUBLE PRIMARY KEY, b INT NOT NULL UNIQUE", ("b",)),
    ("a INT NOT NULL, b INT NOT NULL, PRIMARY KEY (b DESC, a)", ("b", "a")),
]


def test_choice_of_the_chunk_key(any_server: Server, fresh_database: FreshDatabase) -> None:
    d = fresh_database(any_server)
    for number, (definition, expected) in enumerate(_KEYS):
        any_server.run(f"CREATE TABLE k{number} ({definition})", db=d)
        if isinstance(expected, Reason):
            refusal = _refusal(any_server, d, f"k{number}")
            assert refusal.reason is expected, definition
            assert refusal.remedy
        else:
            with connected(any_server) as (connection, _):
                assert read_table(connection, TableId(d, f"k{number}")).key == expected, definition


#: definition, what the refusal names
_UNFIT = [
    ("c TEXT NOT NULL, PRIMARY KEY (c(10))", "the primary key holds only the first 10 of c"),
    ("c VARCHAR(50) NOT NULL, n INT, UNIQUE u (c(4)), UNIQUE w (n)", "the unique index w may hold NULL in n"),
    ("c VARCHAR(50) NOT NULL, n INT, UNIQUE u (c(4)), UNIQUE w (n)", "the unique index u holds only the first 4 of c"),
    ("n INT", "no primary key and no unique index"),
]


def test_a_refused_key_is_described(any_server: Server, fresh_database: FreshDatabase) -> None:
    """Also what it is not: a table with a prefix as its primary key has a primary key."""
    d = fresh_database(any_server)
    for number, (definition, words) in enumerate(_UNFIT):
        any_server.run(f"CREATE TABLE u{number} ({definition})", db=d)
        refusal = _refusal(any_server, d, f"u{number}")
        assert refusal.reason is Reason.NO_PRIMARY_KEY
        assert words in refusal.found
        assert ("no primary key" in refusal.found) == (definition == "n INT")
        assert "UNIQUE" in refusal.remedy or "PRIMARY KEY" not in definition


def test_hidden_indexes_are_no_keys(any_server: Server, fresh_database: FreshDatabase) -> None:
    """The optimizer does not use them: each split would scan the table."""
    d = fresh_database(any_server)
    hidden = "INVISIBLE" if any_server.flavor == "mysql" else "IGNORED"
    # MySQL promotes the first unique NOT NULL index to the implicit primary key, which must be
    # visible
    any_server.run(f"CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, UNIQUE x (a), UNIQUE y (b) {hidden})", db=d)
    with connected(any_server) as (connection, _):
        assert read_table(connection, TableId(d, "t")).key == ("a",)


def test_long_unique_indexes_are_hashes(any_mariadb: Server, fresh_database: FreshDatabase) -> None:
    d = fresh_database(any_mariadb)
    any_mariadb.run("CREATE TABLE t (a LONGTEXT NOT NULL, UNIQUE (a))", db=d)
    assert _refusal(any_mariadb, d, "t").reason is Reason.NO_PRIMARY_KEY


def test_expression_indexes_are_no_keys(any_mysql: Server, fresh_database: FreshDatabase) -> None:
    d = fresh_database(any_mysql)
    any_mysql.run("CREATE TABLE t (a INT NOT NULL, UNIQUE x ((a + 1)))", db=d)
    assert _refusal(any_mysql, d, "t").reason is Reason.NO_PRIMARY_KEY


def test_excluded_columns(any_server: Server, fresh_database: FreshDatabase) -> None:
    d = fresh_database(any_server)
    any_server.run("CREATE TABLE t (id INT PRIMARY KEY, secret INT)", db=d)
    unknown = _refusal(any_server, d, "t", frozenset({"secret", "typo"}))
    assert (unknown.reason, "typo" in unknown.found) == (Reason.SPEC_INVALID, True)
    assert _refusal(any_server, d, "t", frozenset({"id"})).reason is Reason.SPEC_INVALID


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("CREATE TABLE x (id INT PRIMARY KEY) ENGINE=MyISAM", Reason.ENGINE_UNSUPPORTED),
        ("CREATE TABLE x (id INT PRIMARY KEY) ENGINE=MEMORY", Reason.ENGINE_UNSUPPORTED),
        ("CREATE VIEW x AS SELECT 1 AS id", Reason.ENGINE_UNSUPPORTED),
        ("DO 0", Reason.NO_SUCH_TABLE),
    ],
)
def test_what_has_no_complete_row_events(
    statement: str, reason: Reason, mariadb1011: Server, mysql97_gtid: Server, fresh_database: FreshDatabase
) -> None:
    for server in (mariadb1011, mysql97_gtid):
        d = fresh_database(server)
        server.run(statement, db=d)
        assert _refusal(server, d, "x").reason is reason


@pytest.mark.parametrize(
    "statement", ["CREATE SEQUENCE x", "CREATE TABLE x (id INT PRIMARY KEY) WITH SYSTEM VERSIONING"]
)
def test_what_only_mariadb_has(statement: str, any_mariadb: Server, fresh_database: FreshDatabase) -> None:
    d = fresh_database(any_mariadb)
    any_mariadb.run(statement, db=d)
    assert _refusal(any_mariadb, d, "x").reason is Reason.ENGINE_UNSUPPORTED


def test_an_account_that_may_only_select_sees_the_same(any_server: Server, fresh_database: FreshDatabase) -> None:
    d = fresh_database(any_server)
    generated = "g INT GENERATED ALWAYS AS (p + 1) STORED, v INT GENERATED ALWAYS AS (p) VIRTUAL"
    columns = f"id INT PRIMARY KEY AUTO_INCREMENT, p INT, w TIMESTAMP DEFAULT CURRENT_TIMESTAMP, {generated}"
    any_server.run(f"CREATE TABLE t ({columns}, UNIQUE KEY other (p)) DEFAULT CHARSET latin1", db=d)
    any_server.create_user("reader", "pw", ["SELECT"], on=f"{d}.*")
    with connected(any_server) as (connection, _), connect(source_of(any_server, "reader", "pw")) as reader:
        found = read_table(reader, TableId(d, "t"))
        assert found == read_table(connection, TableId(d, "t"))
        assert found.source.facts == ("latin1", frozenset({"g", "v"}), "id", frozenset({"other"}))
        assert resolve(reader, TableSelection((".*",))).tables == (TableId(d, "t"),)
        assert fetch(reader, "SELECT CURRENT_USER()") == [("reader@%",)]


def test_only_databases_that_may_be_selected_are_listed(any_server: Server, fresh_database: FreshDatabase) -> None:
    databases = [fresh_database(any_server) for _ in range(3)]
    for d in databases:
        any_server.run("CREATE TABLE t (id INT PRIMARY KEY)", db=d)
    listings = "SHOW SESSION STATUS LIKE 'Com_show_tables'"
    with connected(any_server) as (connection, _):
        include = (rf"{databases[1]}\..*", f"{databases[1]}.t")
        assert resolve(connection, TableSelection(include)).tables == (TableId(databases[1], "t"),)
        assert fetch(connection, listings) == [("Com_show_tables", "1")]


def test_a_database_that_the_account_may_not_list_has_no_tables(
    any_server: Server, fresh_database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is among the schemas of the account until its rights on it are revoked."""
    d, other = fresh_database(any_server), fresh_database(any_server)
    for database in (d, other):
        any_server.run("CREATE TABLE t (id INT PRIMARY KEY)", db=database)
    any_server.create_user("lister", "pw", ["SELECT"], on=f"{d}.*")
    any_server.run(f"GRANT SELECT ON {other}.* TO lister")
    statements = []

    def fetch_and_revoke(connection: Connection, sql: str, *args: Any, **more: Any) -> list[tuple[Any, ...]]:
        statements.append(sql)
        rows = fetch(connection, sql, *args, **more)
        if len(statements) == 1:
            any_server.run(f"REVOKE SELECT ON {other}.* FROM lister")
        return rows

    monkeypatch.setattr("cdcsync_mysql.reading.selected_tables.fetch", fetch_and_revoke)
    with connect(source_of(any_server, "lister", "pw")) as reader:
        assert resolve(reader, TableSelection((".*",))).tables == (TableId(d, "t"),)
    assert f"SHOW FULL TABLES FROM `{other}`" in statements


@pytest.mark.parametrize("change", ["MODIFY id INT AUTO_INCREMENT", "ADD UNIQUE (v)"])
def test_a_plan_whose_columns_are_numbered_in_another_way_is_not_used(
    mariadb1011: Server, fresh_database: FreshDatabase, change: str
) -> None:
    """No row shows it; an index changes no row."""
    d = fresh_database(mariadb1011)
    mariadb1011.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", db=d)
    with connected(mariadb1011) as (connection, _):
        planned = read_table(connection, TableId(d, "t"))
        mariadb1011.run(f"ALTER TABLE t {change}", db=d)
        assert as_planned(connection, planned) is change.startswith("ADD")
