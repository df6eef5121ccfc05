"""The preflight: all failures at once, each with a remedy that, carried out, fixes it (R1, R6, R9,
R10)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.resource.spec import Spec
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.readiness.preflight import Preflight, preflight
from cdcsync_mysql.readiness.proof import tables_with_unlogged_cascades, verify_nothing_hidden
from cdcsync_mysql.readiness.tablecheck import TableCheck
from cdcsync_mysql.sessions.connection import Source, Tls, connect
from support.fixtures import FreshDatabase, FreshServer
from support.row_metadata import least_metadata
from support.servers import Server
from support.source import connected, source_of

_COM_REGISTER_REPLICA = 0x15
_REPLICA_ID = 3_000_000_001


def _spec(include: Sequence[str], overrides: Sequence[dict[str, Any]] = ()) -> Spec:
    return Spec.model_validate(
        {
            "source": {"host": "127.0.0.1", "credentialsSecretRef": {"name": "x"}},
            "tables": {"include": list(include), "overrides": list(overrides)},
            "sink": {"delta": {"path": "/lake"}},
        }
    )


def _look(server: Server, database: str, user: str = "root", password: str = "", **overrides: Any) -> Preflight:
    changes = [{"table": f"{database}.{name}"} | change for name, change in overrides.items()]
    return preflight(source_of(server, user, password), _spec([rf"{database}\..*"], changes), replica_id=_REPLICA_ID)


def _reasons(errors: Sequence[CdcError]) -> set[Reason]:
    return {e.reason for e in errors}


def _only(found: Preflight) -> TableCheck:
    assert len(found.tables) == 1
    return found.tables[0]


@pytest.fixture
def database(any_server: Server, fresh_database: FreshDatabase) -> str:
    """A database of one plain table `t`."""
    name = fresh_database(any_server)
    any_server.run("CREATE TABLE t (id INT PRIMARY KEY, d DATE, v VARCHAR(9))", db=name)
    return name


def test_documented_grants_suffice(any_server: Server, database: str) -> None:
    grants = ["SELECT", "REPLICATION SLAVE", "REPLICATION CLIENT"]
    if any_server.variant == "mysql97_nogtid":
        grants += ["BACKUP_ADMIN", "XA_RECOVER_ADMIN"]
    any_server.create_user("cdc", "pw", grants)
    found = _look(any_server, database, "cdc", "pw")
    assert found.failures == ()
    table = _only(found)
    assert table.error is None
    assert [(c.name, c.source_type.split("(")[0], c.target_type) for c in table.columns] == [
        ("id", "int", "int32"),
        ("d", "date", "date32[day]"),
        ("v", "varchar", "string"),
    ]
    assert [bool(c.lossy) for c in table.columns] == [False, True, False]
    assert (table.rows, table.splits) == (0, 1)
    assert found.facts is not None
    assert found.facts.tested


@contextmanager
def _globals(server: Server, **values: str) -> Iterator[None]:
    kept = {name: server.query(f"SELECT @@GLOBAL.{name}")[0][0] for name in values}
    server.run(*(f"SET GLOBAL {name} = {value}" for name, value in values.items()))
    try:
        yield
    finally:
        for name, value in kept.items():
            server.query(f"SET GLOBAL {name} = %s", value)


def test_all_failures_at_once_and_their_remedies(any_server: Server, database: str) -> None:
    wrong = {"binlog_format": "'MIXED'", "binlog_row_image": "'MINIMAL'"}
    with _globals(any_server, **wrong):
        found = _look(any_server, database)
        assert _reasons(found.failures) == {
            Reason.BINLOG_FORMAT_NOT_ROW,
            Reason.ROW_IMAGE_NOT_FULL,
        }
        assert len(found.failures) == len(wrong)
        for name in wrong:
            assert any(name in e.found for e in found.failures)
        for error in found.failures:
            any_server.run(error.remedy.split(", and ")[0].replace("SET PERSIST", "SET GLOBAL"))
        assert _look(any_server, database).failures == ()


def test_rows_without_names_are_a_warning_and_what_the_catalog_cannot_show_a_refusal(
    any_server: Server, fresh_database: FreshDatabase
) -> None:
    """R9: members with a backslash; MariaDB's hidden column of a long UNIQUE key."""
    database = fresh_database(any_server)
    hashed = ", v TEXT, UNIQUE (v)" if any_server.flavor == "mariadb" else ""
    any_server.run(
        "CREATE TABLE t (id INT PRIMARY KEY, e ENUM('a', 'b'))",
        "CREATE TABLE odd (id INT PRIMARY KEY, e ENUM('a\\\\b'))",
        f"CREATE TABLE long_key (id INT PRIMARY KEY{hashed})",
        db=database,
    )
    assert _look(any_server, database).failures == ()
    with least_metadata(any_server):
        found = _look(any_server, database)
    assert found.failures == ()
    assert [w for w in found.warnings if "do not name their columns" in w and "FULL" in w]
    refused = {t.id.name: t.error.reason for t in found.tables if t.error}
    names = ["odd"] + (["long_key"] if hashed else [])
    assert refused == dict.fromkeys(names, Reason.ROW_METADATA_NOT_FULL)


def test_each_missing_privilege_names_the_grant_that_fixes_it(any_server: Server, database: str) -> None:
    any_server.create_user("poor", "pw", ["INSERT"], on=f"{database}.t")
    granted: list[str] = []
    for _ in range(8):
        found = _look(any_server, database, "poor", "pw")
        errors = [*found.failures, *(t.error for t in found.tables if t.error)]
        if not errors:
            break
        assert _reasons(errors) == {Reason.PRIVILEGE_MISSING}
        for statement in {s for e in errors for s in e.remedy.split("; ") if s != "or gtid_mode=ON"}:
            assert statement.startswith("GRANT "), statement
            any_server.run(statement)
            granted.append(statement)
    assert errors == [], granted
    assert "GRANT REPLICATION SLAVE ON *.* TO 'poor'@'%'" in granted
    assert f"GRANT SELECT ON `{database}`.`t` TO 'poor'@'%'" in granted


def test_privileges_by_role_count(any_server: Server, database: str) -> None:
    any_server.create_user("actor", "pw", [])
    privileges = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT"
    if any_server.variant == "mysql97_nogtid":
        privileges += ", BACKUP_ADMIN, XA_RECOVER_ADMIN"
    role = (
        "SET DEFAULT ROLE part FOR 'actor'@'%'" if any_server.flavor == "mariadb" else "SET DEFAULT ROLE part TO actor"
    )
    any_server.run(
        "SET sql_log_bin = 0",
        "DROP ROLE IF EXISTS part",
        "CREATE ROLE part",
        f"GRANT {privileges} ON *.* TO part",
        "GRANT part TO 'actor'@'%'",
        role,
    )
    assert _look(any_server, database, "actor", "pw").failures == ()


def test_column_privileges_do_not_suffice(any_server: Server, database: str) -> None:
    """Such an account is shown a part of the columns, and the binlog has them all."""
    any_server.create_user("narrow", "pw", ["REPLICATION SLAVE", "REPLICATION CLIENT"])
    any_server.run("SET sql_log_bin = 0", f"GRANT SELECT (id, v) ON {database}.t TO 'narrow'@'%'")
    error = _only(_look(any_server, database, "narrow", "pw")).error
    assert error is not None
    assert error.reason is Reason.PRIVILEGE_MISSING
    assert error.remedy == f"GRANT SELECT ON `{database}`.`t` TO 'narrow'@'%'"


def test_no_binlog(fresh_server: FreshServer) -> None:
    server = fresh_server("mariadb1011", skip_log_bin=None)
    server.run("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    found = _look(server, "d")
    assert Reason.BINLOG_DISABLED in _reasons(found.failures)
    assert _only(found).error is None, "tables are checked all the same"


def test_what_the_log_of_a_mariadb_leaves_out(fresh_server: FreshServer) -> None:
    """R10: a replica that does not log what it applies, filters, triggers that run unlogged."""
    server = fresh_server("mariadb1011", binlog_ignore_db="scratch", slave_run_triggers_for_rbr="YES")
    server.run("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    names = {e.found.split(":")[0] for e in _look(server, "d").failures}
    assert names == {"binlog_ignore_db", "slave_run_triggers_for_rbr"}
    server.run("CHANGE MASTER 'up' TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 1, MASTER_USER = 'u'")
    found = _look(server, "d")
    assert {e.found.split(":")[0] for e in found.failures} == names | {"log_slave_updates"}
    assert _reasons(found.failures) == {Reason.LOG_INCOMPLETE}


def test_what_the_log_of_a_mysql_leaves_out(fresh_server: FreshServer) -> None:
    """R10, and foreign keys done by InnoDB: their changes are in no row event."""
    server = fresh_server("mysql97_gtid", log_replica_updates=False, binlog_do_db="d", innodb_native_foreign_keys=True)
    server.run("CREATE DATABASE d", *_PARENT_AND_CHILD, db=None)
    server.run("CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = 1, SOURCE_USER = 'u'")
    found = _look(server, "d")
    assert {e.found.split(":")[0] for e in found.failures} == {"binlog_do_db", "log_replica_updates"}
    assert {t.id.name: t.error and t.error.reason for t in found.tables} == {
        "parent": None,
        "child": Reason.CASCADES_NOT_LOGGED,
    }
    with connected(server) as (connection, facts):
        refused = tables_with_unlogged_cascades(connection, facts, [t.id for t in found.tables])
        with pytest.raises(CdcError, match="log_replica_updates"):
            verify_nothing_hidden(source_of(server), connection, facts)
    assert {t.name: e.reason for t, e in refused.items()} == {"child": Reason.CASCADES_NOT_LOGGED}
    _assert_each_table_for_itself(server)


def _assert_each_table_for_itself(server: Server) -> None:
    """A stream that begins finds tables that were dropped, or replaced by a view, or that it may
    not read any more. The binlog has what became of the first two; the last ones are refused."""
    server.run("CREATE DATABASE e", "CREATE TABLE e.hidden (id INT PRIMARY KEY)", "CREATE TABLE e.t (id INT)")
    server.run("CREATE VIEW d.view AS SELECT id FROM e.t", "DROP TABLE e.t")
    server.create_user("reader", "only for tests", grants=("SELECT", "SHOW VIEW"), on="d.*")
    names = ("d.gone", "d.view", "e.hidden", "d.child", "d.parent")
    tables = [TableId(*name.split(".")) for name in names]
    with connected(server) as (_, facts), connect(source_of(server, "reader", "only for tests")) as connection:
        refused = tables_with_unlogged_cascades(connection, facts, tables)
    assert {str(t): (e.reason, e.table) for t, e in refused.items()} == {
        "e.hidden": (Reason.PRIVILEGE_MISSING, "e.hidden"),
        "d.child": (Reason.CASCADES_NOT_LOGGED, "d.child"),
    }


_PARENT_AND_CHILD = (
    "CREATE TABLE d.parent (id INT PRIMARY KEY)",
    "CREATE TABLE d.child (id INT PRIMARY KEY, p INT, CONSTRAINT `a``b` FOREIGN KEY (p) REFERENCES d.parent (id) ON UPDATE CASCADE)",
)


def test_cascades(any_server: Server, fresh_database: FreshDatabase) -> None:
    """R10: never logged by MariaDB; MySQL logs them since 9.6. An account that may only read sees
    the same."""
    d = fresh_database(any_server)
    any_server.run(
        *(s.replace("d.", f"{d}.") for s in _PARENT_AND_CHILD),
        f"CREATE TABLE {d}.noted (id INT PRIMARY KEY COMMENT 'FOREIGN KEY (a) ON DELETE CASCADE')",
        f"CREATE TABLE {d}.restricted (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {d}.parent (id) ON DELETE RESTRICT)",
        f"CREATE TABLE {d}.nulled (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {d}.parent (id) ON DELETE SET NULL)",
    )
    any_server.create_user("reader", "pw", ["SELECT", "REPLICATION SLAVE", "REPLICATION CLIENT"])
    found = _look(any_server, d, "reader", "pw", nulled={"acceptUnloggedCascades": True})
    tables = {t.id.name: t for t in found.tables}
    assert (
        tables["parent"].error is tables["noted"].error is tables["restricted"].error is tables["nulled"].error is None
    )
    child = tables["child"].error
    if any_server.flavor == "mysql":
        assert child is None
        assert not tables["nulled"].unlogged_cascades
        return
    assert child is not None
    assert (child.reason, "ON UPDATE CASCADE" in child.found) == (Reason.CASCADES_NOT_LOGGED, True)
    assert tables["nulled"].unlogged_cascades
    assert any("never consistent" in w for w in found.warnings)


def test_tables_that_cannot_be_captured_do_not_hide_each_other(any_server: Server, database: str) -> None:
    any_server.run(
        "CREATE TABLE keyless (a INT)",
        "CREATE TABLE ancient (id INT PRIMARY KEY) ENGINE=MyISAM",
        "CREATE TABLE inexact (f FLOAT PRIMARY KEY)",
        db=database,
    )
    found = _look(any_server, database, t={"columns": {"exclude": ["nope"]}})
    assert found.failures == ()
    assert {t.id.name: t.error and t.error.reason for t in found.tables} == {
        "keyless": Reason.NO_PRIMARY_KEY,
        "ancient": Reason.ENGINE_UNSUPPORTED,
        "inexact": Reason.TYPE_UNSUPPORTED,
        "t": Reason.SPEC_INVALID,
    }


def test_years_of_two_digits_are_refused(any_mariadb: Server, fresh_database: FreshDatabase) -> None:
    """A SELECT gives 24 and the binlog 2024; MySQL has no such type any more. Without the column
    the table is captured."""
    database = fresh_database(any_mariadb)
    any_mariadb.run(
        "CREATE TABLE t (id INT PRIMARY KEY, a YEAR(2), b YEAR)", "INSERT INTO t VALUES (1, 2024, 2024)", db=database
    )
    assert any_mariadb.query("SELECT a + 0, b + 0 FROM t", db=database) == [(24, 2024)]
    error = _only(_look(any_mariadb, database)).error
    assert error is not None
    assert (error.reason, "column a" in error.found) == (Reason.TYPE_UNSUPPORTED, True)
    assert _only(_look(any_mariadb, database, t={"columns": {"exclude": ["a"]}})).error is None
    any_mariadb.run("ALTER TABLE t MODIFY a YEAR", db=database)
    assert _only(_look(any_mariadb, database)).error is None


def test_prepared_transactions_are_a_warning(any_server: Server, database: str) -> None:
    with any_server.connect(db=database) as raw, raw.cursor() as cursor:
        cursor.execute("XA START 'left'")
        cursor.execute("INSERT INTO t VALUES (1, NULL, NULL)")
        cursor.execute("XA END 'left'")
        cursor.execute("XA PREPARE 'left'")
        try:
            found = _look(any_server, database)
        finally:
            cursor.execute("XA ROLLBACK 'left'")
    assert found.failures == ()
    assert any(w.startswith("XA RECOVER: 1 prepared") for w in found.warnings)
    assert not any(w.startswith("XA RECOVER") for w in _look(any_server, database).warnings)


@pytest.mark.parametrize(("host", "taken"), [(b"someone", True), (b"cdcsync", False)])
def test_replica_id_in_use(host: bytes, taken: bool, any_server: Server, database: str) -> None:
    """Our own dump registers as cdcsync, and ours is ended by its successor."""
    with any_server.connect() as replica:
        request = struct.pack("<IB", _REPLICA_ID, len(host)) + host + struct.pack("<BBHII", 0, 0, 0, 0, 0)
        cast(Any, replica)._execute_command(_COM_REGISTER_REPLICA, request)
        cast(Any, replica)._read_packet()
        found = _look(any_server, database)
    assert _reasons(found.failures) == ({Reason.SERVER_ID_IN_USE} if taken else set())


def test_the_sources_own_server_id(any_server: Server, database: str) -> None:
    own = int(any_server.query("SELECT @@server_id")[0][0])
    found = preflight(source_of(any_server), _spec([rf"{database}\.t"]), replica_id=own)
    assert _reasons(found.failures) == {Reason.SERVER_ID_IN_USE}


def test_durability_is_a_warning(any_server: Server, database: str) -> None:
    with _globals(any_server, sync_binlog="0", innodb_flush_log_at_trx_commit="2"):
        found = _look(any_server, database)
    assert found.failures == ()
    assert {w.split(":")[0] for w in found.warnings} >= {"sync_binlog", "innodb_flush_log_at_trx_commit"}


def test_patterns_and_overrides_without_a_table(any_server: Server, database: str) -> None:
    source = source_of(any_server)
    missing = preflight(source, _spec([rf"{database}\.t", r"no\.where"]))
    assert missing.failures == (), "a table that is named and missing is one table's failure"
    assert {str(t.id): t.error.reason for t in missing.tables if t.error} == {"no.where": Reason.NO_SUCH_TABLE}
    assert _reasons(preflight(source, _spec([r"no\.w.*"])).failures) == {Reason.NO_SUCH_TABLE}
    misspelt = preflight(source, _spec([rf"{database}\.t"], [{"table": f"{database}.T_"}]))
    assert misspelt.failures == ()
    assert any(f"{database}.T_ is not captured" in w for w in misspelt.warnings)


def test_a_server_that_cannot_be_reached(tmp_path: Path) -> None:
    (tmp_path / "u").write_text("u")
    absent = Source("127.0.0.1", 1, tmp_path / "u", tmp_path / "u", Tls("disabled"))
    found = preflight(absent, _spec([r"a\.b"]))
    assert (found.facts, _reasons(found.failures)) == (None, {Reason.SOURCE_UNREACHABLE})


def test_a_wrong_password(any_server: Server, database: str) -> None:
    found = _look(any_server, database, "cdc", "wrong-secret")
    assert _reasons(found.failures) == {Reason.AUTHENTICATION_FAILED}
    assert "wrong-secret" not in repr(found)


def test_the_preflight_changes_nothing(any_server: Server, database: str) -> None:
    before = any_server.binlog_status()
    _look(any_server, database)
    assert any_server.binlog_status() == before
