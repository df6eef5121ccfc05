"""MySQL's generated invisible primary key (`sql_generate_invisible_primary_key`) is a key: a table
that was made without one is copied and followed by it, rows that look the same included."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.fixtures import FreshDatabase
from support.servers import Server
from support.stepwise import Stepwise

pytestmark = pytest.mark.server

_KEY = "my_row_id"


def test_a_table_that_was_made_without_a_key(
    mysql97_gtid: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """The key is hidden from `SELECT *`, and in every row of the binlog."""
    server, database = mysql97_gtid, fresh_database(mysql97_gtid)
    server.run(
        "SET SESSION sql_generate_invisible_primary_key = ON",
        "CREATE TABLE bag (word VARCHAR(20))",
        "INSERT INTO bag VALUES ('same'), ('same'), ('same'), (NULL)",
        db=database,
    )
    copy = Stepwise(server, database, tmp_path)
    copy.snapshot("bag")
    server.run(
        "INSERT INTO bag VALUES ('same'), ('new')",
        f"UPDATE bag SET word = 'other' WHERE {_KEY} = 2",
        f"UPDATE bag SET {_KEY} = 100 WHERE {_KEY} = 3",
        f"DELETE FROM bag WHERE {_KEY} = 1",
        db=database,
    )
    assert copy.follow()["bag"].error is None
    rows = copy.targets["bag"].open_snapshot().scan().read_all().to_pylist()
    assert {row[_KEY]: row["word"] for row in rows} == {2: "other", 100: "same", 4: None, 5: "same", 6: "new"}
    assert not copy.difference("bag")
