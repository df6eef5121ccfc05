"""Scratch space: files whose pages the system may drop at will, mapped into memory.

A file loses its name when it is written: it ends with the process, however that ends. The folder is
a run's and goes with it.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from mmap import MADV_RANDOM, MADV_WILLNEED, PAGESIZE
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

#: values that a column may have in memory
IN_MEMORY = 64 * 1024
_ALIGNED = 64

_LIBC = ctypes.CDLL(None)
_LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

#: blocks of several columns
Blocks = Iterable[tuple[npt.NDArray[Any], ...]]
Columns = tuple[npt.NDArray[Any], ...]
_Result = TypeVar("_Result")
_Array = TypeVar("_Array", bound=npt.NDArray[Any])
#: work that may rest between its steps, and what it ends with
Steps = Generator[None, None, _Result]


def finished(steps: Steps[_Result]) -> _Result:
    """All steps, one after the other."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: _Result = ended.value
            return result


@dataclass(frozen=True)
class Scratch:
    """A folder on a local disk for what must not fill the memory: columns of more than `in_memory`
    values."""

    folder: Path
    in_memory: int = IN_MEMORY

    def written(self, blocks: Blocks, kinds: Sequence[npt.DTypeLike]) -> Columns:
        """The columns, of types `kinds`, that come in `blocks`: memory-mapped if the first has more
        than `in_memory` values."""
        return finished(self.writing_columns(blocks, kinds))

    def writing_columns(self, blocks: Blocks, kinds: Sequence[npt.DTypeLike]) -> Steps[Columns]:
        """`written`, a block at a step."""
        blocks, few, count = iter(blocks), [], 0
        for block in blocks:
            few.append(block)
            count += len(block[0])
            if count > self.in_memory:
                break
            yield
        else:
            columns = zip(*few, strict=True) if few else ((),) * len(kinds)
            return tuple(
                np.concatenate([np.empty(0, kind), *column]) for kind, column in zip(kinds, columns, strict=True)
            )
        with ExitStack() as stack:
            files = [stack.enter_context(self.writing()) for _ in kinds]
            while few:
                _append_block(files, few.pop(0))
            for block in blocks:
                _append_block(files, block)
                yield
        return tuple(np.frombuffer(file.content, kind) for file, kind in zip(files, kinds, strict=True))

    @property
    def read_bytes(self) -> int:
        """Contents of so many bytes are read, not mapped: a process may have 65,530 maps, and each
        table has small files."""
        return self.in_memory * np.uint64().nbytes

    @contextmanager
    def writing(self, *, scattered: bool = True) -> Iterator[Written]:
        """A new file; when the block ends it is mapped, or read if it is small, and has neither a
        name nor a descriptor any more. `scattered`: what will be read of it is here and there."""
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix="index-") as file:
            written = Written(file)
            yield written
            size = file.tell()
            file.seek(0)
            if size <= self.read_bytes:
                written.content = pa.py_buffer(file.read())
                return
            with pa.memory_map(file.name) as mapped:
                written.content = mapped.read_buffer()
            if scattered:
                # or megabytes may be read around a page that is needed, in the place of others
                _advise(written.content.address, size, MADV_RANDOM)

    def table(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], in_memory_bytes: int) -> pa.Table:
        """`batches`, memory-mapped if they have more than `in_memory_bytes`."""
        batches, few, size = iter(batches), [], 0
        for batch in batches:
            few.append(batch)
            size += batch.nbytes
            if size > in_memory_bytes:
                break
        else:
            return pa.Table.from_batches(few, schema)
        with self.writing(scattered=False) as written, pa.ipc.new_file(written.file, schema) as writer:
            while few:
                writer.write_batch(few.pop(0))
            for batch in batches:
                writer.write_batch(batch)
        return pa.ipc.open_file(written.content).read_all()

    def move(self, small: Sequence[Movable]) -> None:
        """Contents that were read, into one file."""
        with self.writing() as written:
            starts = [_append(written.file, one.content) for one in small]
        for one, start in zip(small, starts, strict=True):
            one.move(written.content.slice(start, one.content.size))


class Movable(Protocol):
    """What rests on a content that is elsewhere after `move`."""

    content: pa.Buffer

    def move(self, content: pa.Buffer) -> None: ...


def _append(file: IO[bytes], content: pa.Buffer) -> int:
    """Where it begins: Arrow's buffers are aligned."""
    file.write(bytes(-file.tell() % _ALIGNED))
    start = file.tell()
    file.write(content)
    return start


@dataclass
class Written:
    """A scratch file: `file` to write to, then `content` to read from."""

    file: IO[bytes]
    content: Any = None


def _append_block(files: Sequence[Written], block: Columns) -> None:
    for file, values in zip(files, block, strict=True):
        file.file.write(np.ascontiguousarray(values).data)


def read_ahead(addresses: npt.NDArray[np.int64], size: npt.NDArray[np.int64] | int) -> None:
    """Has the system read the first and the last page of the `size` bytes at each of `addresses`,
    all side by side: a page that is not in memory when it is needed is waited for alone."""
    if not len(addresses):
        return
    pages = np.unique(np.concatenate([addresses // PAGESIZE, (addresses + (size - 1)) // PAGESIZE]))
    ends = np.append(np.flatnonzero(np.diff(pages) > 1), len(pages) - 1)
    begins = np.append(0, ends[:-1] + 1)
    for first, last in zip(pages[begins].tolist(), pages[ends].tolist(), strict=True):
        _advise(first * PAGESIZE, (last - first + 1) * PAGESIZE, MADV_WILLNEED)


def read_whole(values: _Array) -> _Array:
    """The same values, one after the other in scratch space, which the system is asked to read."""
    if len(values):
        start = address_of(values)
        _advise(start, (len(values) - 1) * values.strides[0] + values.itemsize, MADV_WILLNEED)
    return values


def address_of(values: npt.NDArray[Any]) -> int:
    return int(values.__array_interface__["data"][0])


def _advise(address: int, size: int, advice: int) -> None:
    """Advice, no more: where the system cannot take it, pages are read when they are needed."""
    start = address // PAGESIZE * PAGESIZE
    _LIBC.madvise(start, address + size - start, advice)
