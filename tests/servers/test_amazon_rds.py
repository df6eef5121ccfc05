"""Amazon RDS, imitated: its tables, its statements, the rights that its master user can give, and
remedies that work there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from cdcsync_core.errors import Reason
from cdcsync_core.resource.spec import Spec
from cdcsync_mysql.checks import Level
from cdcsync_mysql.readiness.preflight import Preflight, _outlives, preflight
from cdcsync_mysql.readiness.servercheck import check_server, read_server
from cdcsync_mysql.server import log_retention_seconds, read_facts
from cdcsync_mysql.sessions.connection import connect
from support.fixtures import FreshDatabase
from support.servers import Server
from support.source import connected, source_of

both = pytest.mark.parametrize("variant", ["mariadb1011", "mysql97_gtid"])
#: what the user's guide grants to an account that replicates
GRANTS = ["SELECT", "REPLICATION SLAVE", "REPLICATION CLIENT"]


@contextmanager
def _rds(server: Server, hours: int | None) -> Iterator[None]:
    """The tables of RDS in the schema `mysql`."""
    server.run(
        "SET sql_log_bin = 0",
        "CREATE TABLE mysql.rds_configuration (name VARCHAR(100) NOT NULL, value VARCHAR(100), description VARCHAR(300))",
        f"INSERT INTO mysql.rds_configuration VALUES ('binlog retention hours', {hours or 'NULL'}, 'see the guide')",
        "CREATE TABLE mysql.rds_heartbeat2 (id INT PRIMARY KEY, value BIGINT)",
    )
    try:
        yield
    finally:
        server.run("SET sql_log_bin = 0", "DROP TABLE mysql.rds_configuration", "DROP TABLE mysql.rds_heartbeat2")


def _check(server: Server, database: str) -> Preflight:
    server.create_user("rds", "pw", GRANTS)
    spec: dict[str, Any] = {
        "source": {"host": "127.0.0.1", "credentialsSecretRef": {"name": "x"}},
        "tables": {"include": [rf"{database}\..*"]},
        "sink": {"delta": {"path": "/lake"}},
    }
    return preflight(source_of(server, "rds", "pw"), Spec.model_validate(spec))


@contextmanager
def _with_global(server: Server, name: str, value: str) -> Iterator[None]:
    [(before,)] = server.query(f"SELECT @@GLOBAL.{name}")
    server.run(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        server.run(f"SET GLOBAL {name} = '{before}'")


@pytest.fixture
def server(variant: str, request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(variant)
    return found


@pytest.fixture
def database(server: Server, fresh_database: FreshDatabase) -> str:
    name = fresh_database(server)
    server.run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", db=name)
    return name


@both
def test_the_documented_grants_suffice(server: Server, database: str) -> None:
    with _rds(server, 24):
        found = _check(server, database)
    assert found.failures == ()
    assert not any("retention" in w for w in found.warnings)


@both
def test_remedies_name_the_parameter_group(server: Server, database: str) -> None:
    """No account may SET PERSIST or SET GLOBAL there."""
    with _rds(server, 24), _with_global(server, "binlog_row_image", "'MINIMAL'"):
        [failure] = _check(server, database).failures
    assert failure.reason is Reason.ROW_IMAGE_NOT_FULL
    assert failure.remedy == "set binlog_row_image = FULL in the DB parameter group"


@pytest.mark.parametrize("variant", ["mysql97_nogtid"])
def test_without_gtids_the_remedy_is_gtids(server: Server, database: str) -> None:
    """BACKUP_ADMIN is not among the rights that the master user can give."""
    with _rds(server, 24):
        [failure] = _check(server, database).failures
    assert failure.reason is Reason.PRIVILEGE_MISSING
    assert "gtid_mode = ON" in failure.remedy
    assert "BACKUP_ADMIN" not in failure.remedy


@both
@pytest.mark.parametrize(("hours", "seconds"), [(None, 300), (24, 86400)])
def test_the_retention_is_that_of_rds(server: Server, database: str, hours: int | None, seconds: int) -> None:
    """RDS purges a file as soon as possible by default, whatever binlog_expire_logs_seconds is."""
    with _rds(server, hours):
        with connected(server) as (connection, _):
            assert log_retention_seconds(connection) == seconds
        warnings = _check(server, database).warnings
    assert any("rds_set_configuration('binlog retention hours'" in w for w in warnings) is (hours is None)
    with connected(server) as (connection, _):
        assert log_retention_seconds(connection) != seconds


@both
@pytest.mark.parametrize("seen", [False, True])
def test_the_tables_of_rds_must_be_seen(server: Server, database: str, seen: bool) -> None:
    """An account with rights on its database alone: RDS is then known by where its program lies."""
    server.create_user("rds", "pw", ["SELECT"], on=f"{database}.*")
    server.run("SET sql_log_bin = 0", "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'rds'@'%'")
    with _rds(server, 24):
        for table in ("rds_configuration", "rds_heartbeat2") if seen else ():
            server.run("SET sql_log_bin = 0", f"GRANT SELECT ON mysql.{table} TO 'rds'@'%'")
        source = source_of(server, "rds", "pw")
        with connect(source) as connection:
            seen_by_account = read_server(source, connection, read_facts(connection), 0)
            found = check_server(replace(seen_by_account, rds=True))
    warned = {c.name: c.remedy for c in found if c.level is Level.WARN}
    for name in ("binlog retention hours", "mysql.rds_heartbeat2"):
        assert (name in warned) is not seen
        assert seen or "GRANT SELECT ON mysql.rds_" in warned[name]


def test_a_snapshot_that_outlives_the_binlog_of_rds() -> None:
    [check] = _outlives(300.0, 1000.0, rds=True)
    assert check.reason is Reason.SNAPSHOT_OUTLIVES_BINLOG
    assert "rds_set_configuration" in check.remedy
