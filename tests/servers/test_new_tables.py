"""Tables that come and go on the source while a sync runs: seen in the binlog, read while
the stream goes on, or reported at their names (R5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.runs.run import ExitCode
from cdcsync_operator.decision.runs.preflights import PREFLIGHT_EVERY
from support.fixtures import FreshDatabase, usually_on
from support.servers import Server
from support.sync_process import Sync
from support.table_status import assert_equal, entry, fill, name_of, streaming

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
#: the catalog is asked so often where nothing is seen in the binlog
_SOON = PREFLIGHT_EVERY * 0.9


@pytest.fixture
def sync(any_server: Server, fresh_database: FreshDatabase, tmp_path: Path) -> Iterator[Sync]:
    """A sync of the table `a` of a database of its own."""
    database = fresh_database(any_server)
    fill(any_server, database, "a")
    with Sync(any_server, [rf"{database}\..*"], tmp_path / "sync") as found:
        found.database = database  # type: ignore[attr-defined]
        yield found


def condition(status: dict[str, Any], kind: str) -> tuple[str, str]:
    return next(((c["status"], c["reason"]) for c in status.get("conditions", []) if c["type"] == kind), ("", ""))


@pytest.mark.long
@usually_on("mariadb1011")
def test_new_tables_join_the_sync_while_it_runs(sync: Sync, fresh_database: FreshDatabase) -> None:
    """Made with rows, made empty, renamed into the patterns; one without a key is reported, and
    nothing stops."""
    server, database = sync.server, name_of(sync, "").rstrip(".")
    elsewhere = fresh_database(server)
    sync.start("forever")
    sync.wait_for(lambda s: streaming(s) == 1)
    fill(server, elsewhere, "moved")
    fill(server, database, "b")
    server.run(
        f"CREATE TABLE {database}.vacant (id INT PRIMARY KEY, word VARCHAR(20) NOT NULL)",
        f"CREATE TABLE {database}.keyless (id INT)",
        f"RENAME TABLE {elsewhere}.moved TO {database}.moved",
    )
    sync.wait_for(lambda s: entry(s, f"{database}.moved"), timeout=_SOON)
    seen = sync.wait_for(lambda s: streaming(s) == 4 and condition(s, "Ready")[0] == "True", timeout=800)
    assert (entry(seen, f"{database}.keyless")["phase"], entry(seen, f"{database}.keyless")["reason"]) == (
        "Unassigned",
        "NoPrimaryKey",
    )
    assert condition(seen, "Stalled")[0] == "False"
    assert seen["restarts"]["consecutive"] == 0
    for table in ("a", "b", "vacant", "moved"):
        server.run(
            f"INSERT INTO {table} VALUES (9001, 'later')", f"UPDATE {table} SET word = 'x' WHERE id = 7", db=database
        )
    assert sync.terminate() == ExitCode.DONE
    server.run(f"DROP TABLE {database}.moved")
    sync.run_to_completion()
    for table in ("a", "b", "vacant"):
        assert_equal(sync, table)
    gone = entry(sync.status(), f"{database}.moved")
    assert (gone["phase"], gone["reason"]) == ("Unassigned", "NoSuchTable")


@pytest.mark.long
@usually_on("mysql97_gtid")
def test_a_table_is_dropped_while_it_runs_and_a_named_one_is_made_later(sync: Sync) -> None:
    """A named table that is missing fails alone; it is captured when it is created. `run` ends well
    once nothing is missing."""
    server, database = sync.server, name_of(sync, "").rstrip(".")
    fill(server, database, "b")
    sync.write_manifest(tables={"include": [rf"{database}\.a", rf"{database}\.late", rf"{database}\.b.*"]})
    sync.start("forever")
    seen = sync.wait_for(lambda s: streaming(s) == 2)
    late = entry(seen, f"{database}.late")
    assert (late["phase"], late["reason"]) == ("Failed", "NoSuchTable")
    fill(server, database, "late")
    server.run(f"DROP TABLE {database}.b")
    sync.wait_for(lambda s: entry(s, f"{database}.late")["phase"] != "Failed", timeout=_SOON)
    sync.wait_for(lambda s: streaming(s) == 2 and condition(s, "Ready")[0] == "True", timeout=800)
    assert sync.terminate() == ExitCode.DONE
    sync.run_to_completion()
    for table in ("a", "late"):
        assert_equal(sync, table)
    assert entry(sync.status(), f"{database}.b")["phase"] == "Unassigned"
