"""Bytes of a statement that are no characters of its session's set matter where they stand in a
name, or in a value of a captured table, and nowhere else (R9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdcsync_core.errors import Reason
from cdcsync_spark.binlog.schema.steps import FollowPolicy
from support.fixtures import FreshDatabase
from support.servers import Server
from support.stepwise import Stepwise

TABLES = (
    *(f"CREATE TABLE {t} (id INT PRIMARY KEY, v INT)" for t in ("a", "b")),
    *(f"INSERT INTO {t} VALUES (1, 10)" for t in ("a", "b")),
)
#: `other` is not captured
OF_ANOTHER_DATABASE = (
    b"/* caf\xe9 */ CREATE TABLE other.z (id INT PRIMARY KEY)",
    b"CREATE TABLE other.z2 (id INT PRIMARY KEY, v VARBINARY(4) DEFAULT _binary'\xff\xfe')",
    b"ALTER TABLE other.z ADD v VARBINARY(4) DEFAULT _binary'\xff\\'\xfe', ADD KEY (id)",
    b"-- \xe9 it's\nDROP TABLE other.z # \xe9",
    b"/* \xe3\x81 */ RENAME TABLE other.z2 TO other.z",
)
OF_THE_TABLE = (
    b"/* caf\xe9 */ ALTER TABLE a ADD c INT DEFAULT 5 /* \xff */",
    b"CREATE INDEX i ON a (v) # caf\xe9",
)
VALUE_OF_THE_TABLE = b"ALTER TABLE a ADD d VARBINARY(4) DEFAULT _binary'\xff\xfe'"


def _run(server: Server, database: str, *statements: bytes) -> None:
    with server.connect(db=database) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)  # type: ignore[arg-type]


@pytest.mark.parametrize("variant", ["mariadb1011", "mysql97_gtid"])
def test_bytes_that_are_no_text(
    request: pytest.FixtureRequest, variant: str, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(variant)
    database, other = fresh_database(server), fresh_database(server).encode()
    server.run(*TABLES, db=database)
    copy = Stepwise(server, database, tmp_path, policy=FollowPolicy(follow=True))
    for name in ("a", "b"):
        copy.snapshot(name)
    _run(server, database, *(s.replace(b"other", other) for s in OF_ANOTHER_DATABASE), *OF_THE_TABLE)
    _run(server, database, b"INSERT INTO a VALUES (2, 20, 6)")
    assert [table.error for table in copy.follow().values()] == [None, None]
    assert not copy.difference("a")
    assert not copy.difference("b")
    assert copy.targets["a"].open_snapshot().schema.names == ["id", "v", "c"]
    _run(server, database, VALUE_OF_THE_TABLE, b"INSERT INTO b VALUES (2, 20)")
    tables = copy.follow()
    error = tables["a"].error
    assert error is not None
    assert error.reason is Reason.SCHEMA_CHANGE_REFUSED
    assert "a literal whose bytes are no characters" in error.found
    assert tables["b"].error is None
    assert not copy.difference("b")
