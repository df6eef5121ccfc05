"""One table's fault is that table's: in planning, in reading, in what was asked for it. The others
are read and stream (R5)."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cdcsync_core.runs.run import ExitCode
from cdcsync_operator.cli.main import cli
from support.fixtures import FreshDatabase, usually_on
from support.servers import Server
from support.sync_process import Gate, Sync
from support.table_status import assert_equal, entry, fill, name_of, streaming

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
_CHUNK = 50


def fill_dates(server: Server, database: str, table: str) -> None:
    """The 51st key, which begins the second split, is a date that no key may hold."""
    days = ", ".join(f"('19{50 + i // 28:02d}-01-{1 + i % 28:02d}')" for i in range(_CHUNK))
    server.run(
        f"CREATE TABLE {table} (k DATE PRIMARY KEY)",
        "SET SESSION sql_mode = ''",
        f"INSERT INTO {table} VALUES {days}, ('2020-00-00'), ('2021-01-01')",
        db=database,
    )


@pytest.fixture
def sync(any_server: Server, fresh_database: FreshDatabase, tmp_path: Path) -> Iterator[Sync]:
    """A sync of the tables `a` and `c` of a database of its own; a test adds what has the fault."""
    database = fresh_database(any_server)
    fill(any_server, database, "a", "c")
    spec = {"snapshot": {"chunkSize": _CHUNK}}
    with Sync(any_server, [rf"{database}\..*"], tmp_path / "sync", spec=spec) as found:
        found.database = database  # type: ignore[attr-defined]
        yield found


@usually_on()
def test_tables_that_change_or_vanish_while_they_are_read_stop_no_other(sync: Sync) -> None:
    """R9: a split of another definition is not used. The driver stands still after LOW, before its
    first SELECT."""
    sync.write_manifest(schemaChange={"behavior": "fail"})
    fill(sync.server, name_of(sync, "b").partition(".")[0], "b")
    sync.start("forever", gate=Gate("low-taken", action="stop"))
    sync.wait_fired()
    sync.server.run(f"ALTER TABLE {name_of(sync, 'b')} ADD COLUMN n INT", f"DROP TABLE {name_of(sync, 'c')}")
    sync.signal("driver", signal.SIGCONT)
    seen = sync.wait_for(lambda s: streaming(s) == 1 and entry(s, name_of(sync, "c")).get("phase") != "Snapshotting")
    changed, gone = entry(seen, name_of(sync, "b")), entry(seen, name_of(sync, "c"))
    assert (changed["phase"], changed["reason"]) == ("Failed", "SchemaChangeRefused")
    assert gone.get("reason", "NoSuchTable") == "NoSuchTable", "it was never read: nothing is left of it to be shown"
    sync.server.run(f"INSERT INTO {name_of(sync, 'a')} VALUES (9001, 'later')")
    sync.write_manifest(resnapshot=[{"table": name_of(sync, "b"), "nonce": 1}])
    sync.wait_for(lambda s: streaming(s) == 2)
    assert sync.terminate() == ExitCode.DONE
    sync.run_to_completion()
    assert_equal(sync, "a")
    assert_equal(sync, "b")


def test_a_plan_is_shown_of_the_tables_that_can_be_planned(sync: Sync) -> None:
    fill_dates(sync.server, name_of(sync, "b").partition(".")[0], "b")
    shown = CliRunner().invoke(cli, ["plan", "-f", str(sync.manifest), "-o", "json"])
    assert shown.exit_code == ExitCode.USER_MUST_ACT
    tables = {t["name"]: len(t["splits"]) for t in json.loads(shown.stdout)["tables"]}
    assert tables == {name_of(sync, "a"): 3, name_of(sync, "c"): 3}
    assert "2020-00-00" in shown.stderr


@contextmanager
def locked(sync: Sync, table: str) -> Iterator[None]:
    """Has another session lock the table until the block ends."""
    with sync.server.connect(db=sync.database) as session, session.cursor() as cursor:  # type: ignore[attr-defined]
        cursor.execute(f"LOCK TABLES {table} WRITE")
        yield


def is_busy(status: dict[str, Any], name: str) -> bool:
    found = entry(status, name)
    return (found.get("phase"), found.get("reason"), "(1205)" in found.get("message", "")) == (
        "Failed",
        "TableBusy",
        True,
    )


def rows(sync: Sync, table: str) -> int:
    return sync.target(name_of(sync, table)).num_rows


@usually_on("mariadb1011")
def test_tables_that_cannot_be_planned_or_read_or_are_gone_stop_no_other(sync: Sync) -> None:
    """`bad` cannot be planned, `busy` is locked before it is read and goes on by itself when the
    lock goes, `c` is dropped and asked for again while `d` is read for the first time. Each has its
    reason under its name; what is written later reaches the others, too."""
    bad, busy, gone, new = (name_of(sync, table) for table in ("bad", "busy", "c", "d"))
    fill_dates(sync.server, sync.database, "bad")  # type: ignore[attr-defined]
    fill(sync.server, sync.database, "busy")  # type: ignore[attr-defined]
    with locked(sync, "busy"):
        sync.start("forever")
        seen = sync.wait_for(
            lambda s: streaming(s) == 2 and is_busy(s, busy) and entry(s, bad).get("phase") == "Failed"
        )
        assert seen["restarts"]["consecutive"] == 0
        assert (entry(seen, bad)["phase"], entry(seen, bad)["reason"]) == ("Failed", "TypeUnsupported")
        assert "2020-00-00" in entry(seen, bad)["message"]
        for good in ("a", "c"):
            assert entry(seen, name_of(sync, good))["message"] == ""
        assert seen["tables"]["failed"] == 2
        sync.server.run(f"INSERT INTO {name_of(sync, 'a')} VALUES (9001, 'later')")
        sync.wait_until(lambda: rows(sync, "a") == 121, "what is written later")
    sync.wait_for(lambda s: entry(s, busy).get("phase") == "Streaming")
    for table in ("a", "busy", "c"):
        assert_equal(sync, table)
    _drop_and_ask_again(sync, gone, new)
    assert sync.terminate() == ExitCode.DONE
    _run_again_beside(sync, bad)


def _drop_and_ask_again(sync: Sync, gone: str, new: str) -> None:
    """Neither those that stream stop, nor the one that is read for the first time meanwhile."""
    sync.server.run(f"DROP TABLE {gone}")
    sync.wait_for(lambda s: entry(s, gone).get("phase") not in ("Streaming", "CatchingUp"))
    fill(sync.server, sync.database, "d")  # type: ignore[attr-defined]
    sync.write_manifest(resnapshot=[{"table": gone, "nonce": 1}])
    seen = sync.wait_for(lambda s: entry(s, new).get("phase") == "Streaming" and streaming(s) == 3)
    assert (entry(seen, gone)["phase"], entry(seen, gone)["reason"]) == ("Unassigned", "NoSuchTable")
    assert seen["restarts"]["consecutive"] == 0


def _run_again_beside(sync: Sync, bad: str) -> None:
    """A run that ends when it has caught up names the fault of the table that it could not read."""
    sync.server.run(f"INSERT INTO {name_of(sync, 'a')} VALUES (9002, 'again')")
    sync.start("caught-up")
    assert sync.wait() == ExitCode.USER_MUST_ACT
    for table in ("a", "busy", "d"):
        assert_equal(sync, table)
    output = sync.output(2).read_text()
    assert "2020-00-00" in output
    assert f"{bad}: " in output


@usually_on()
def test_a_table_that_is_locked_while_it_is_read_holds_back_no_other(sync: Sync) -> None:
    """The driver stands still after LOW, before its first SELECT."""
    bad = name_of(sync, "b")
    fill(sync.server, sync.database, "b")  # type: ignore[attr-defined]
    sync.write_manifest(snapshot={"maxSplitSeconds": 10})  # the driver waits half of it for the lock, several times
    sync.start("forever", gate=Gate("low-taken", action="stop"))
    sync.wait_fired()
    with locked(sync, "b"):
        sync.signal("driver", signal.SIGCONT)
        seen = sync.wait_for(lambda s: streaming(s) == 2 and is_busy(s, bad))
        assert seen["restarts"]["consecutive"] == 0
    sync.wait_for(lambda s: streaming(s) == 3)
    for table in ("a", "b", "c"):
        assert_equal(sync, table)


@usually_on()
def test_a_table_that_is_locked_when_it_is_resnapshotted_holds_back_no_other(sync: Sync) -> None:
    """The stream goes on. A verification names the table and compares the others."""
    bad = name_of(sync, "b")
    fill(sync.server, sync.database, "b")  # type: ignore[attr-defined]
    sync.start("forever")
    sync.wait_for(lambda s: streaming(s) == 3)
    with locked(sync, "b"):
        sync.write_manifest(resnapshot=[{"table": bad, "nonce": 1}])
        sync.server.run(f"INSERT INTO {name_of(sync, 'a')} VALUES (9001, 'later')")
        sync.wait_for(lambda s: is_busy(s, bad) and streaming(s) == 2)
        sync.wait_until(lambda: rows(sync, "a") == 121, "what is written later")
        verified = sync.command("verify", "-o", "json", timeout=400)
        assert "TableBusy" in verified.stdout, verified.stdout + verified.stderr
    sync.wait_for(lambda s: streaming(s) == 3 and entry(s, bad).get("nonce") == 1)
    for table in ("a", "b", "c"):
        assert_equal(sync, table)
