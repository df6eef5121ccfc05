"""A table in a mapped file, whose pages the kernel drops when memory is needed: the pods of a
stream are small, and a transaction has no bound but its disk.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from cdcsync_spark.binlog.assembly.spool import disk_error


def mapped(folder: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.Table:
    """`batches` as a table in a file of `folder` that never has a name: it goes with the table, and
    with a process that dies. Raises TransactionTooLarge where the disk is full."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            with pa.ipc.new_file(file, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            file.flush()
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return pa.ipc.open_file(pa.py_buffer(content)).read_all()
    except OSError as error:
        raise disk_error(error, str(folder)) from error
