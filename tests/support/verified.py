"""`verify` of a small sync, in the test's process."""

from __future__ import annotations

from cdcsync_core.runs.verification import (
    ReaderName,
    TableResult,
    VerificationProgress,
    VerificationStep,
    VerifyConfig,
)
from cdcsync_spark.verify.comparison import open_comparison
from support.key_tables import Writers, table_of_rows
from support.servers import Server
from support.small_sync import SmallSync


def verify(sync: SmallSync, *, timeout: float = 30, reader: ReaderName = ReaderName.CDCSYNC) -> dict[str, TableResult]:
    """Table name without the database -> its result."""
    scratch = sync.folder / "verify"
    scratch.mkdir(exist_ok=True)
    config = VerifyConfig(
        sync.resource.to_dict(),
        str(sync.secrets_dir),
        str(sync.status_file),
        str(sync.lock_file),
        str(scratch),
        timeout=timeout,
        reader=reader,
    )
    reported: list[VerificationProgress | TableResult] = []
    results = open_comparison(config, reported.append).run()
    assert not list(scratch.iterdir()), "scratch files are left"
    rows = {r.table: r.target_rows for r in results}
    estimates = {
        t.table: t.estimate
        for t in reported
        if isinstance(t, VerificationProgress) and t.step is VerificationStep.COMPARING
    }
    assert estimates == {table: rows[table] for table in estimates}
    return {r.table.partition(".")[2]: r for r in results}


def equal_while_written(sync: SmallSync, server: Server) -> None:
    """Compares the table `t` three times while writers write it."""
    table_of_rows(server, sync.database, 3000)
    server.run("INSERT INTO t (id, number) VALUES (-1, 0)", db=sync.database)
    with Writers(server, sync.database):
        sync.copy()
        with sync.running() as stream:
            stream.wait_for(lambda: stream.applier.consistent(stream.tables[f"{sync.database}.t"]))
            for _ in range(3):
                result = verify(sync)["t"]
                assert result.equal, result
