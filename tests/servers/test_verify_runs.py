"""A verification as a run of its own: it reports one result for each table of the run, by the
comparison of `cdcsync verify`, and neither reports nor logs a value of a row."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from cdcsync_core.runs.run import ExitCode, Report, RunConfig, RunKind, TableAssignment
from cdcsync_core.runs.verification import DifferenceKind
from cdcsync_core.runs.verification_status import VerifiedResult, VerifiedStatus
from cdcsync_spark.run.metrics import VARIABLE
from cdcsync_spark.sinks.contract.changes import Commit, Upsert
from support.fixtures import FreshDatabase
from support.servers import Server
from support.small_sync import SmallSync

SECRET = "a value of a row"


def run(sync: SmallSync, *tables: str) -> tuple[int, list[Report], str]:
    """Exit code, reports and log of the driver of a run with these tables."""
    scratch = sync.folder / "scratch"
    resource = sync.resource.model_dump(by_alias=True, mode="json")
    resource["spec"]["verify"] = {"nonce": 3}
    assignments = [TableAssignment(state.capture) for t in tables if (state := sync.target(t).last_commit())]
    assert len(assignments) == len(tables)
    reading, writing = os.pipe()
    config = RunConfig(
        "small-1", 1, RunKind.VERIFY, resource, tuple(assignments), "", str(sync.secrets_dir), str(scratch),
        writing, status_file=str(sync.status_file),
    )  # fmt: skip
    path = sync.folder / "run.json"
    path.write_text(config.to_json())
    command = [sys.executable, "-m", "cdcsync_spark", str(path)]
    environment = os.environ | {VARIABLE: "127.0.0.1:0"}  # as a pod, which serves its metrics
    with subprocess.Popen(
        command, env=environment, pass_fds=[writing], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        os.close(writing)
        with os.fdopen(reading) as reports:
            lines = list(reports)
        assert process.stdout
        log = process.stdout.read()
    return process.returncode, [Report.from_json(line) for line in lines], log


def found(reports: list[Report]) -> dict[str, VerifiedStatus]:
    entries = [entry for report in reports for entry in report.tables]
    return {e["name"].partition(".")[2]: VerifiedStatus.model_validate(e["verified"]) for e in entries}


def tampered(sync: SmallSync, table: str) -> None:
    """Rows 1 and 2 are lost in the target, row 3 has another text, and the state is as before."""
    target = sync.target(table)
    schema = target.open_snapshot().schema
    changed = pa.Table.from_pylist([{"id": 3, "text": SECRET}], schema)
    lost = pa.Table.from_pylist([{"id": 1}, {"id": 2}], pa.schema([schema.field("id")]))
    target.commit(1, lambda s: Commit(replace(s, commit_number=s.commit_number + 1), Upsert(changed, lost)))


def test_a_run_reports_what_verify_finds_and_no_value_of_a_row(
    mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    database = fresh_database(mariadb1011)
    for table in ("equal", "other", "left_out"):
        mariadb1011.run(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, text VARCHAR(40))",
            f"INSERT INTO {table} SELECT seq, '{SECRET}' FROM seq_1_to_3000",
            db=database,
        )
    mariadb1011.run("UPDATE other SET text = 'x' WHERE id = 3", db=database)
    sync = SmallSync(mariadb1011, database, tmp_path)
    sync.copy()
    sync.catch_up()
    tampered(sync, "other")
    sync.write_status()
    code, reports, log = run(sync, "equal", "other")
    assert code == ExitCode.DONE, log
    results = found(reports)
    assert set(results) == {"equal", "other"}
    equal, other = results["equal"], results["other"]
    assert (equal.nonce, equal.result, equal.source_rows, equal.target_rows) == (3, VerifiedResult.EQUAL, 3000, 3000)
    assert equal.differences == 0
    assert equal.position
    assert (other.result, other.missing, other.different, other.extra) == (VerifiedResult.DIFFERENT, 2, 1, 0)
    assert other.target_rows == 2998
    output = log + "".join(report.to_json() for report in reports)
    assert SECRET not in output
    assert "result=Different" in log
    assert DifferenceKind.MISSING.value in log
    assert reports[-1].exit == {"code": 0, "reason": "", "message": "", "remedy": ""}


def test_a_table_that_is_gone_from_the_source_is_not_compared(
    mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    database = fresh_database(mariadb1011)
    mariadb1011.run("CREATE TABLE kept (id INT PRIMARY KEY)", "CREATE TABLE gone (id INT PRIMARY KEY)", db=database)
    sync = SmallSync(mariadb1011, database, tmp_path)
    sync.copy()
    sync.catch_up()
    mariadb1011.run("DROP TABLE gone", db=database)
    code, reports, log = run(sync, "kept", "gone")
    assert code == ExitCode.DONE, log
    results = found(reports)
    assert {t: r.result for t, r in results.items()} == {
        "kept": VerifiedResult.EQUAL,
        "gone": VerifiedResult.NOT_COMPARED,
    }
    assert "not at the source any more" in results["gone"].message
