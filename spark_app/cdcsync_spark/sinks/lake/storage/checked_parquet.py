"""Parquet files as Arrow reads them from a store, checked on the way for what would take more
memory than there is.

Why it is right: every byte that Arrow gets passes here first, the footer that says where the pages
are included, so what is checked is what is read, whatever a store answers another time.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_core.remedies import RESNAPSHOT
from cdcsync_spark.memory import memory_limit
from cdcsync_spark.sinks.lake.storage.parquet_pages import (
    STREAMED_ROWS,
    Chunk,
    Most,
    PageWatch,
    TooHeavy,
    chunk_width,
)
from cdcsync_spark.sinks.lake.storage.read_only import ReadOnlyFiles

#: the parts of this process's memory that a page, and the pages of a row group, may have; and the
#: footer, which takes many times its size once it is parsed
_PAGE, _GROUP, _FOOTER = 4, 2, 64
#: what a file ends with: the size of its footer, and a magic number
_END = struct.Struct("<I4s")
_MAGIC = b"PAR1"


@cache
def most() -> Most:
    memory = memory_limit()
    return Most(memory // _PAGE, memory // _GROUP)


def checked(files: pafs.FileSystem, streamed: bool = False) -> pafs.FileSystem:
    """The same files for Parquet's reader, which gets SinkConflict for what takes too much;
    `streamed` for one that holds a page of each column at a time, and no whole row groups."""
    return pafs.PyFileSystem(_CheckedFiles(files, replace(most(), streamed=streamed)))


def refuse_heavy_pages(path: str, content: bytes, footer: pq.FileMetaData, leaves: Iterable[int]) -> None:
    """The same of these columns of a file that is in memory, but for the texts of dictionaries,
    which the reader weighs with the rows of each batch. Raises SinkConflict, and ValueError for
    pages that cannot be followed."""
    watch = PageWatch(_chunks(footer, len(content), leaves), most(), lambda *_: 0)
    try:
        watch.take(0, memoryview(content))
    except TooHeavy as heavy:
        raise _too_heavy(path, heavy) from None


class _CheckedFiles(ReadOnlyFiles):
    """Arrow keeps a footer that it has read, so the chunks of each file are kept, too."""

    def __init__(self, files: pafs.FileSystem, bounds: Most) -> None:
        self._files, self._bounds = files, bounds
        self._chunks: dict[str, list[Chunk]] = {}

    def open_input_file(self, path: str) -> pa.NativeFile:
        opened = _CheckedFile(path, self._files.open_input_file(path), self._bounds, self._chunks)
        return pa.PythonFile(opened, mode="r")

    def normalize_path(self, path: str) -> str:
        return str(self._files.normalize_path(path))

    def get_type_name(self) -> str:
        return "checked"

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        return list(self._files.get_file_info(paths))


class _CheckedFile:
    """An open file, as Arrow takes one of Python."""

    def __init__(self, path: str, file: pa.NativeFile, bounds: Most, chunks: dict[str, list[Chunk]]) -> None:
        self._path, self._file, self._bounds, self._chunks = path, file, bounds, chunks
        self._size = int(file.size())
        self._footer_at = self._size
        self._watch = self._watching() if path in chunks else None

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def close(self) -> None:
        self._file.close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def read(self, size: int | None = None) -> bytes:
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int | None = None) -> pa.Buffer:
        start = self._file.tell()
        data = self._file.read_buffer(size)
        with self._refusing():
            self._check(start, memoryview(data).cast("B"))
        return data

    def _check(self, start: int, data: memoryview) -> None:
        end = start + len(data)
        if end >= self._size - _END.size:
            self._take_end(start, data)
        elif self._watch is not None:
            self._watch.take(start, data)
        else:
            raise ValueError("its pages are asked for before its footer")

    def _take_end(self, start: int, data: memoryview) -> None:
        """The footer is at the end, or in a read of its own once its size is known."""
        if self._watch is not None:
            return
        if start + len(data) == self._size and len(data) >= _END.size:
            length, magic = _END.unpack_from(data, len(data) - _END.size)
            if magic != _MAGIC:
                return  # Arrow refuses it
            if length > memory_limit() // _FOOTER:
                raise TooHeavy(f"its footer has {length} bytes")
            self._footer_at = self._size - _END.size - length
        if start <= self._footer_at < self._size - _END.size:
            footer = bytes(data[self._footer_at - start : self._size - _END.size - start])
            self._chunks[self._path] = _chunks_by(footer, self._size)
            self._watch = self._watching()

    def _watching(self) -> PageWatch:
        return PageWatch(self._chunks[self._path], self._bounds, self._spelled)

    def _spelled(self, chunk: Chunk, content: bytes) -> int:
        """The size by another reading of the footer, which is not kept; the content is what Arrow
        gets."""
        at = self._file.tell()
        footer = pq.read_metadata(self._file)
        self._file.seek(at)
        sizes = _spelled_out(footer, chunk, content)
        return max(sizes, default=0) if self._bounds.streamed else sum(sizes)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except TooHeavy as heavy:
            raise _too_heavy(self._path, heavy) from None
        except ValueError as broken:
            raise _unreadable(self._path, broken) from None


def _chunks_by(footer: bytes, size: int) -> list[Chunk]:
    """Raises ValueError."""
    content = _MAGIC + footer + _END.pack(len(footer), _MAGIC)
    metadata = pq.read_metadata(pa.BufferReader(content))
    return _chunks(metadata, size, range(metadata.num_columns))


def _chunks(footer: pq.FileMetaData, size: int, leaves: Iterable[int]) -> list[Chunk]:
    """As Arrow finds their bytes. Raises ValueError for one that is not within the file."""
    columns = [(n, footer.schema.column(n)) for n in leaves]
    widths = {n: chunk_width(column.physical_type, column.length) for n, column in columns}
    chunks = []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for n, leaf in columns:
            column = group.column(n)
            start = column.data_page_offset
            if column.has_dictionary_page and 0 < column.dictionary_page_offset < start:
                start = column.dictionary_page_offset
            end = start + column.total_compressed_size
            if not 0 <= start <= end <= size - _END.size:
                raise ValueError(f"a column of row group {number} is said to be at bytes {start} to {end}")
            texts, levels = leaf.physical_type == "BYTE_ARRAY", _levels(leaf)
            chunks.append(Chunk(number, start, end, column.num_values, widths[n], n, column.compression, texts, levels))
    return chunks


def _levels(leaf: pq.ColumnSchema) -> int:
    return (leaf.max_repetition_level > 0) + (leaf.max_definition_level > 0)


def _spelled_out(footer: pq.FileMetaData, chunk: Chunk, content: bytes) -> Iterator[int]:
    """The bytes of each `STREAMED_ROWS` values of a chunk, which is read with its texts as numbers
    of a dictionary."""
    column = footer.schema.column(chunk.column).path
    file = pa.PythonFile(_FileEnd(chunk.start, content), mode="r")
    with pq.ParquetFile(file, metadata=footer, read_dictionary=[column], pre_buffer=False) as numbered:
        for batch in numbered.iter_batches(
            STREAMED_ROWS, row_groups=[chunk.group], columns=[column], use_threads=False
        ):
            yield sum(map(spelled_out, batch.columns))


class _FileEnd(io.RawIOBase):
    """A file of which only the bytes from `start` on are there."""

    def __init__(self, start: int, content: bytes) -> None:
        self._start, self._content, self._at = start, content, start

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = (
            offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._start + len(self._content)}[whence]
        )
        return self._at

    def read(self, size: int = -1) -> bytes:
        first = self._at - self._start
        if first < 0 or size < 0:
            raise OSError("bytes outside of the part that is there")
        content = self._content[first : first + size]
        self._at += len(content)
        return content


def spelled_out(array: pa.Array) -> int:
    """The bytes of an array once its texts are no numbers of a dictionary any more."""
    if pa.types.is_dictionary(array.type):
        lengths = pc.binary_length(array.dictionary).take(array.indices)
        return array.indices.nbytes + int(pc.sum(lengths).as_py() or 0)
    if pa.types.is_map(array.type):
        return spelled_out(array.keys) + spelled_out(array.items)
    if pa.types.is_list(array.type):
        return spelled_out(array.values)
    if pa.types.is_struct(array.type):
        return sum(map(spelled_out, array.flatten()))
    return int(array.nbytes)


def _too_heavy(path: str, heavy: TooHeavy) -> CdcError:
    bounds = most()
    return fail(
        Reason.SINK_CONFLICT,
        f"the file {quoted(path)} takes too much memory: {heavy}",
        needed=f"pages of at most {bounds.page} bytes, and row groups of {bounds.group}, parts of the driver's memory",
        remedy="raise spec.driver.memory, or spec.stream.driver.memory; or, where another program wrote that, restore "
        f"the file, or {RESNAPSHOT}, {RUN_AGAIN}",
    )


def _unreadable(path: str, broken: ValueError) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"the file {quoted(path)} cannot be read: {broken}",
        needed="a Parquet file",
        remedy=f"restore it; or {RESNAPSHOT}, {RUN_AGAIN}",
    )
