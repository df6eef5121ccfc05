"""One large Delta table in a process of its own, by the kind of its key.

`python large_table.py fill FOLDER KEY ROWS` makes it; `python large_table.py stream FOLDER KEY ROWS
RESULT` builds its key index, as a stream's start does, and commits batches of uniform changes with
a step of maintenance after each; RESULT gets the figures as JSON.

Keys are `integer`, `binary` (16 bytes) or `text` (32 characters); those of the last two are spread
at random, and so in no order of the files.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.position import FilePosition
from cdcsync_core.state import TableState
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.sinks.contract.changes import Append, Commit, Staged, Upsert
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.sinkcase import SYNC, WATERMARK, batch, first_state, make_table

KEYS = {"integer": "bigint(20)", "binary": "varbinary(16)", "text": "varchar(32)"}
FILE_ROWS, _PIECE = 1_000_000, 131_072
CHANGES, COMMITS = 10_000, 30
Numbers = npt.NDArray[np.int64]


class LargeTable:
    """Rows of a key of one kind, the key made of the row's number."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.capture = make_table({"id": KEYS[kind], "v": "int(11)", "s": "varchar(24)"}, ["id"])

    def rows(self, numbers: Numbers, version: int) -> pa.Table:
        columns = [
            self.keys(numbers),
            pa.array(np.full(len(numbers), version, np.int32)),
            pa.array(numbers).cast(pa.string()),
        ]
        return pa.table(columns, schema=captured_schema(self.capture))

    def keys(self, numbers: Numbers) -> pa.Array:
        if self.kind == "integer":
            return pa.array(numbers)
        words = np.stack([_spread(numbers.astype(np.uint64)), _spread(~numbers.astype(np.uint64))], axis=1).tobytes()
        data, size = (words, 16) if self.kind == "binary" else (words.hex().encode(), 32)
        ends = np.arange(0, size * (len(numbers) + 1), size, dtype=np.int32)
        kind = captured_schema(self.capture).field("id").type
        return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _spread(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Different words for different words."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        words = (words ^ words >> np.uint64(shift)) * np.uint64(factor)
    return words


def target_in(folder: Path, table: LargeTable) -> DeltaTarget:
    return DeltaSink(open_store(str(folder)), SYNC).target(table.capture.id)


def fill(folder: Path, table: LargeTable, rows: int) -> None:
    """Files of a million rows, by the product's own writer."""
    target = target_in(folder, table)
    target.prepare(first_state(table.capture))

    def staged(start: int) -> Staged:
        end = min(start + FILE_ROWS, rows)
        pieces = (table.rows(np.arange(at, min(at + _PIECE, end)), 0) for at in range(start, end, _PIECE))
        return target.stage(table.capture, (b for piece in pieces for b in piece.to_batches()), "wave")

    with ThreadPoolExecutor(2) as pool:
        files = [file for made in pool.map(staged, range(0, rows, FILE_ROWS)) for file in made]

    def build(found: TableState) -> Commit:
        return Commit(found.after_wave([Split()], FilePosition(WATERMARK), WATERMARK, rows, 0), Append(tuple(files)))

    target.commit(1, build)


def stream(folder: Path, table: LargeTable, rows: int) -> dict[str, float]:
    """Seconds: of the index with the first commit, of a later commit and of the maintenance after
    it, as medians, and CPU seconds; every batch changes rows all over the table."""
    random, maintained = np.random.default_rng(1), 0.0
    took: list[float] = []
    worked: list[float] = []
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        writer = target_in(folder, table).writer(Path(scratch))
        for number in range(1, COMMITS + 2):
            changed = np.unique(random.integers(0, rows, CHANGES))
            change = Upsert(table.rows(changed, number), pa.table({"id": table.keys(changed[:0])}))
            begun, cpu = time.perf_counter(), time.process_time()
            writer.commit(1, batch(number, change))
            took.append(time.perf_counter() - begun)
            worked.append(time.process_time() - cpu)
            begun = time.perf_counter()
            writer.maintain()
            maintained += time.perf_counter() - begun
        writer.close()
    return {
        "index": took[0],
        "index CPU": worked[0],
        "commit": statistics.median(took[1:]),
        "commit CPU": statistics.median(worked[1:]),
        "slowest": max(took[1:]),
        "maintenance": maintained / COMMITS,
    }


if __name__ == "__main__":
    act, where, kind, count, *result = sys.argv[1:]
    if act == "fill":
        fill(Path(where), LargeTable(kind), int(count))
    else:
        Path(*result).write_text(json.dumps(stream(Path(where), LargeTable(kind), int(count))))
