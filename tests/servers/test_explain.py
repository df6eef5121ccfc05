"""`cdcsync explain` on real servers: what it says of a migration is what the stream then does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.runs.run import ExitCode
from support.fixtures import FreshDatabase
from support.servers import Server
from support.sync_process import Sync

#: the runs follow each other, so one limit holds for all of them
_SECONDS = 1200
pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(2 * _SECONDS)]

TABLES = ("added", "filled", "widened", "narrowed", "emptied", "dropped", "untouched")
MIGRATION = """
ALTER TABLE added ADD note VARCHAR(20);
ALTER TABLE filled ADD n INT NOT NULL DEFAULT 7;
ALTER TABLE widened MODIFY v BIGINT;
-- the values are cut, so that a resnapshot reads them
ALTER TABLE narrowed MODIFY s VARCHAR(2);
TRUNCATE TABLE emptied;
CREATE TABLE fresh (id INT PRIMARY KEY);
CREATE INDEX i ON untouched (v);
"""
#: a table that is dropped stops, until the catalog has shown that no pattern matches it any more
_GONE = ("Failed", "Unassigned")
DROP = "DROP TABLE dropped;\n"
EXPECTED = {
    "added": "metadata",
    "filled": "rewrite",
    "widened": "rewrite",
    "narrowed": "resnapshot",
    "emptied": "empty",
    "fresh": "new",
    "dropped": "stop",
}


def run_script(server: Server, database: str, script: str) -> None:
    lines = "\n".join(line for line in script.splitlines() if not line.startswith("--"))
    server.run("SET sql_mode = ''", *(s for s in map(str.strip, lines.split(";")) if s), db=database)


def explained(sync: Sync, database: str, *options: str) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "-m", "cdcsync_operator", "explain", "-f", str(sync.manifest)]
    given = [*command, "--database", database, "-o", "json", *options]
    done = subprocess.run(given, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["effects"]


@pytest.mark.long
@pytest.mark.parametrize("variant", ["mariadb1011", "mysql97_gtid"])
def test_the_stream_does_what_was_explained(
    request: pytest.FixtureRequest, variant: str, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(variant)
    database = fresh_database(server)
    for table in TABLES:
        server.run(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, s VARCHAR(20))",
            f"INSERT INTO {table} VALUES (1, 1, 'one'), (2, 2, 'two')",
            db=database,
        )
    folder = tmp_path / "migrations"
    folder.mkdir()
    (folder / "V1__change.sql").write_text(MIGRATION)
    (folder / "V2__drop.sql").write_text(DROP)
    with Sync(server, [rf"{database}\..*"], tmp_path / "sync") as sync:
        sync.run_to_completion("snapshot")
        code, effects = explained(sync, database, "--migrations", str(folder))
        assert code == ExitCode.USER_MUST_ACT
        assert {e["table"].removeprefix(f"{database}."): e["effect"] for e in effects} == EXPECTED
        assert {e["rows"] for e in effects if e["effect"] != "new"} == {2}
        assert [Path(e["script"]).name for e in effects if e["effect"] == "stop"] == ["V2__drop.sql"]
        code, _ = explained(sync, database, "ALTER TABLE added ADD more INT")
        assert code == ExitCode.DONE

        run_script(server, database, MIGRATION + DROP)
        sync.start()
        status = sync.wait_for(lambda s: _settled(s, database), timeout=_SECONDS)
    tables = {t["name"].removeprefix(f"{database}."): t for t in status["tableStatus"]}
    resnapshotted = {name for name, t in tables.items() if t.get("resnapshot")}
    stopped = {name for name, t in tables.items() if t["phase"] in _GONE}
    assert resnapshotted == {name for name, effect in EXPECTED.items() if effect == "resnapshot"}
    assert stopped == {name for name, effect in EXPECTED.items() if effect == "stop"}
    assert tables.keys() == {*TABLES, "fresh"}


def _settled(status: dict[str, Any], database: str) -> bool:
    phases = {t["name"].removeprefix(f"{database}."): t["phase"] for t in status.get("tableStatus", ())}
    streaming = {name for name, phase in phases.items() if phase == "Streaming"}
    return streaming == {*TABLES, "fresh"} - {"dropped"} and phases.get("dropped") in _GONE
