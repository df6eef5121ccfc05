"""Whether the rows of a snapshot differ in a declared key, in bounded memory.

Why it is right: the whole table is one split, so all of its rows pass. Their keys are kept in
scratch space with a code each (`key_codes`), and the codes are sorted: rows of one key are
neighbours. Codes that are hashes may meet; then the keys themselves are compared.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.errors import Reason, fail
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.declared_key import two_rows_read
from cdcsync_spark.sinks.lake.keys.key_codes import KeyCodec
from cdcsync_spark.sinks.lake.keys.key_runs import BLOCK, Run, merged, sorted_runs
from cdcsync_spark.sinks.lake.keys.scratch import IN_MEMORY, Scratch, read_whole

#: a run numbers its rows in 32 bits
_MOST_ROWS = 2**32
_COUNT = "_cdc_count"


def once_a_key(
    table: Capture, batches: Iterable[pa.RecordBatch], *, in_memory: int = IN_MEMORY, block: int = BLOCK
) -> Iterator[pa.RecordBatch]:
    """The same batches of the whole table; behind the last one raises KeyNotUnique where two rows
    have one declared key."""
    if not table.declared:
        yield from batches
        return
    codec = KeyCodec.of(table, int.from_bytes(np.random.default_rng().bytes(8), "little"))
    with tempfile.TemporaryDirectory(prefix="cdcsync-keys-") as folder:
        scratch, rows = Scratch(Path(folder), in_memory), 0
        with scratch.writing(scattered=False) as codes, scratch.writing() as stored:
            writer: pa.ipc.RecordBatchFileWriter | None = None
            for batch in batches:
                keys = batch.select(list(table.key))
                writer = writer or pa.ipc.new_file(stored.file, keys.schema)
                writer.write_batch(keys)
                codes.file.write(codec.codes(keys).data)
                rows += batch.num_rows
                yield batch
            if writer is not None:
                writer.close()
        if writer is not None:
            _refuse_many(table, rows)
            all_codes, keys_read = np.frombuffer(codes.content, np.uint64), pa.ipc.open_file(stored.content).read_all()
            pieces = (read_whole(all_codes[at : at + block]) for at in range(0, rows, block))
            runs = sorted_runs(pieces, 0, scratch, block)
            _refuse_twice(table, runs, keys_read, scratch, block, exact=codec.exact)


def _refuse_twice(
    table: Capture, runs: list[Run], keys: pa.Table, scratch: Scratch, block: int, *, exact: bool
) -> None:
    """Keys whose codes only meet are a few at most, and are compared with those that come."""
    if len(runs) == 1 and runs[0].rows is None:
        return  # the codes ascend, none of them twice
    run = merged(runs, lambda hits: np.ones(len(hits.query), bool), scratch, block)
    assert run.rows is not None
    meeting = np.empty(0, np.int64)
    for start in range(0, len(run), block):
        codes = read_whole(run.codes[start : start + block + 1])
        first = start + np.flatnonzero(codes[1:] == codes[:-1])
        if not len(first):
            continue
        at = np.union1d(first, first + 1)
        meeting = np.union1d(meeting, run.rows[at].astype(np.int64))
        twice = _twice(keys.take(pa.array(meeting)))
        if twice is not None:
            raise two_rows_read(table, twice)
        assert not exact, "equal codes are equal keys"


def _twice(keys: pa.Table) -> list[object] | None:
    """The values of a key that two of the rows have."""
    counted = keys.append_column(_COUNT, pa.array(np.ones(keys.num_rows, np.int64)))
    counts = counted.group_by(keys.column_names).aggregate([(_COUNT, "sum")])
    doubled = counts.filter(pc.greater(counts[f"{_COUNT}_sum"], 1))
    return [doubled[name][0].as_py() for name in keys.column_names] if doubled.num_rows else None


def _refuse_many(table: Capture, rows: int) -> None:
    if rows > _MOST_ROWS:
        raise fail(
            Reason.TYPE_UNSUPPORTED,
            f"{rows} rows with a declared key",
            needed=f"at most {_MOST_ROWS}, which can be compared with each other",
            remedy="add a primary key",
            table=str(table.id),
        )
