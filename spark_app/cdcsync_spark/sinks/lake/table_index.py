"""The key index of one table, brought to a version of it whenever a batch needs it.

It follows the versions, whatever program wrote them, and is dropped after an error of a commit. To
build it may take minutes, so the reading of files ends when the writer is closed: a process does
not end before its thread pools do.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

from cdcsync_spark.logs import get_logger
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.sinks.contract.writer import Closed
from cdcsync_spark.sinks.lake.files.live_file import LiveFile
from cdcsync_spark.sinks.lake.files.snapshot import key_batches
from cdcsync_spark.sinks.lake.format import TableVersion
from cdcsync_spark.sinks.lake.keys.key_index import FileVersion, KeyIndex
from cdcsync_spark.sinks.lake.table_folder import TableFolder

#: bytes of files from which the reading of the keys is announced
_LARGE_BYTES = 16 * 2**20

_log = get_logger()


class TableIndex:
    """`current` is the index as of the last use; None before the first, and after `forget`.
    `scratch` is a folder on a local disk."""

    def __init__(self, folder: TableFolder, scratch: Path) -> None:
        self.current: KeyIndex | None = None
        self._folder = folder
        self._name = str(folder.table)
        self.scratch = scratch
        self._closing = threading.Event()

    def forget(self) -> None:
        self.current = None

    def close(self) -> None:
        """From now on nothing is read into the index. What was read of one that is not whole is
        forgotten with the error."""
        self._closing.set()

    def refuse_closed(self) -> None:
        if self._closing.is_set():
            raise Closed

    def synced(self, version: TableVersion) -> KeyIndex:
        """The index at `version`, which has a state."""
        assert version.state is not None
        table, files = version.state.capture, self._folder.lake.files()
        if self.current is None or not self.current.serves(table):
            self.current = KeyIndex(table, self.scratch, secrets.randbits(64))
            self._announce(version)
        read_keys = partial(key_batches, files, table=captured_schema(table), key=table.key, ids=version.field_ids)
        begun = time.monotonic()
        read = self.current.sync({name: self._version(file, read_keys) for name, file in version.files.items()})
        if read:
            seconds = round(time.monotonic() - begun, 3)
            _log.info("read keys into the index", table=self._name, files=read, seconds=seconds)
        return self.current

    def _announce(self, version: TableVersion) -> None:
        """A run that ends while the keys of a large table are read shows it by the end of its
        log."""
        size = sum(file.size for file in version.files.values())
        if size >= _LARGE_BYTES:
            _log.info("reading keys into the index", table=self._name, files=len(version.files), bytes=size)

    def _version(self, file: LiveFile, read_keys: Callable[[str], Iterable[pa.RecordBatch]]) -> FileVersion:
        """What costs something is left to the reading: each batch asks for all files."""
        return FileVersion(
            file.deleted.id if file.deleted else "",
            lambda: self._until_closed(partial(read_keys, f"{self._folder.folder}/{file.path}")),
            lambda: self._folder.deleted(file),
        )

    def _until_closed(self, read: Callable[[], Iterable[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        self.refuse_closed()
        for batch in read():
            yield batch
            self.refuse_closed()
