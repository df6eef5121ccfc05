"""A table in a mapped file, whose pages the kernel drops when memory is needed: the pods of a
stream are small, and a transaction has no bound but its disk.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from cdcsync_spark.binlog.spool import disk_error


def mapped(folder: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.Table:
    """`batches` as a table in a file of `folder` that has no name any more: it goes with the table.
    Raises TransactionTooLarge where the disk is full."""
    path = folder / f"{uuid.uuid4()}.mapped"
    try:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except OSError as error:
        raise disk_error(error, str(folder)) from error
    finally:
        path.unlink(missing_ok=True)
