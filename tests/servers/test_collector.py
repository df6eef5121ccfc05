"""Nothing grows while the collector is off: what a reader leaves in cycles does not depend on how
much it has read."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_spark.binlog.settings import ReaderSettings
from support.dump import log_end
from support.fixtures import FreshDatabase, usually_on
from support.servers import Server
from support.source import connected, source_of

pytestmark = pytest.mark.server

_TRANSACTIONS = 4_000

#: reads `sys.argv[2]` transactions in batches of some 100, and counts what the collector finds at
#: the end
_READER = """
import gc, json, pickle, sys
from pathlib import Path
from cdcsync_spark.engine.collector import QuietCollector
from cdcsync_spark.binlog.reader import BinlogReader

settings, wanted = pickle.loads(Path(sys.argv[1]).read_bytes()), int(sys.argv[2])
collector = QuietCollector(clock=lambda: 0.0)
reader = BinlogReader(settings)
reader.start()
rows = batches = 0
while rows < wanted:
    batch = reader.next_batch()
    collector.between_batches()
    if batch is None:
        continue
    if batch.fatal:
        raise batch.fatal
    rows += sum(part.rows for part in batch.tables)
    batches += 1
while reader.next_batch() is not None:  # until the reader waits at the end of the binlog, with nothing in its hands
    pass
assert not gc.isenabled()
del batch
print(json.dumps({"batches": batches, "found": gc.collect(), "alive": len(gc.get_objects())}))
reader.stop()
"""


@usually_on("mariadb1011")
def test_what_is_left_for_the_collector_does_not_grow_with_the_binlog(
    any_server: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    database = fresh_database(any_server)
    any_server.run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", db=database)
    table, start = TableId(database, "t"), log_end(any_server)
    with connected(any_server) as (connection, facts):
        definition = read_table(connection, table)
    settings = ReaderSettings(
        source_of(any_server), facts.lineage, 3_000_000_009, {table: definition}, start, {}, 1.0, 80_000, tmp_path
    )
    (tmp_path / "settings").write_bytes(pickle.dumps(settings))
    _write(any_server, database, range(_TRANSACTIONS // 8))
    few = _read(tmp_path / "settings", _TRANSACTIONS // 8)
    _write(any_server, database, range(_TRANSACTIONS // 8, _TRANSACTIONS))
    many = _read(tmp_path / "settings", _TRANSACTIONS)
    assert many["batches"] >= 4 * few["batches"]
    assert many["found"] <= few["found"] + 100, f"garbage in cycles grows with what was read: {few}, {many}"
    assert many["alive"] <= few["alive"] + 1_000, f"what is alive grows with what was read: {few}, {many}"


def _write(server: Server, database: str, keys: range) -> None:
    with server.connect(db=database) as writer, writer.cursor() as cursor:
        for key in keys:
            cursor.execute(f"INSERT INTO t VALUES ({key}, 'v{key}')")
            writer.commit()


def _read(settings: Path, wanted: int) -> dict[str, int]:
    command = [sys.executable, "-c", _READER, str(settings), str(wanted)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert process.returncode == 0, process.stderr
    found: dict[str, int] = json.loads(process.stdout)
    return found
