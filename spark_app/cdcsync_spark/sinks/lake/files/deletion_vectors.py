"""Which rows of a data file are deleted: a deletion vector's bytes, which Delta and Iceberg share,
and where a table has them.

A vector is a set of row numbers (from 0, in the physical order of the file) as a portable
`RoaringBitmapArray`: a magic number, then 64-bit roaring maps by their upper half. A file has fewer
than 2^32 rows, so there is one map, number 0. In a file of vectors each is framed: its size, its
bytes and their CRC-32, big endian. Formats: the Delta protocol, "Deletion Vector Format"; Iceberg's
Puffin, "deletion-vector-v1", whose blob is one frame byte for byte.

What is read is checked for size, magic, checksum and cardinality: a vector that was cut or mixed up
stops the table, because its rows would rise again.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from pyroaring import BitMap

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.remedies import RESNAPSHOT
from cdcsync_spark.sinks.lake.files.position_deletes import positions

#: reads `size` bytes at `offset` of the file at a path relative to the table
ReadRange = Callable[[str, int, int], bytes]

_PORTABLE = 1681511377
_ARRAY_HEAD = struct.Struct("<iqi")
_EMPTY_ARRAY = struct.pack("<iq", _PORTABLE, 0)
_SIZE = struct.Struct(">i")
_CRC = struct.Struct(">I")
#: what a frame has more than its vector
FRAME_BYTES = _SIZE.size + _CRC.size


@dataclass(frozen=True)
class DeletedRows:
    """The deletion vector of a file: `id` differs from that of every other vector of the table,
    `count` is of rows, `size` of the vector's bytes. Its frame begins at `offset` of the file
    `path` (relative to the table), unless the metadata itself has the vector: `inline`. With the
    whole path of the `data_file` that file has positions of its rows, and no vector. One without
    all of these is stored in a way that we do not read."""

    id: str
    count: int
    size: int
    path: str = ""
    offset: int = 0
    inline: bytes | None = None
    data_file: str = ""


def framed(vector: bytes) -> bytes:
    """A vector as files of vectors hold it."""
    return _SIZE.pack(len(vector)) + vector + _CRC.pack(zlib.crc32(vector))


def serialised(rows: BitMap) -> bytes:
    return _ARRAY_HEAD.pack(_PORTABLE, 1, 0) + bytes(rows.serialize())


def deserialised(data: bytes) -> BitMap:
    """Raises ValueError for what is not one portable array of row numbers below 2^32; an empty one
    has no maps."""
    if data[: len(_EMPTY_ARRAY)] == _EMPTY_ARRAY:
        return BitMap()
    magic, count, number = _ARRAY_HEAD.unpack_from(data) if len(data) > _ARRAY_HEAD.size else (0, 0, 0)
    if (magic, count, number) != (_PORTABLE, 1, 0):
        raise ValueError(f"magic {magic}, {count} maps, the first for {number}")
    return BitMap.deserialize(data[_ARRAY_HEAD.size :])


def load(deleted: DeletedRows, read: ReadRange) -> BitMap:
    """The deleted rows; raises `SinkConflict` for a vector that is not what the metadata says."""
    try:
        rows = _positions(deleted, read) if deleted.data_file else deserialised(_bytes_of(deleted, read))
    except (ValueError, struct.error) as broken:
        raise _unreadable(deleted, str(broken)) from None
    if len(rows) != deleted.count:
        raise _unreadable(deleted, f"{len(rows)} rows")
    return rows


def deleted_rows(deleted: DeletedRows | None, read: ReadRange) -> BitMap:
    """The same for a file that may have none."""
    return BitMap() if deleted is None else load(deleted, read)


def _positions(deleted: DeletedRows, read: ReadRange) -> BitMap:
    return positions(deleted.path, read(deleted.path, 0, deleted.size), deleted.data_file, deleted.count)


def _bytes_of(deleted: DeletedRows, read: ReadRange) -> bytes:
    if deleted.inline is not None:
        return deleted.inline
    if not deleted.path:
        raise ValueError("another kind of storage")
    frame = read(deleted.path, deleted.offset, deleted.size + FRAME_BYTES)
    data = frame[_SIZE.size : -_CRC.size]
    if len(data) != deleted.size or _SIZE.unpack_from(frame) != (deleted.size,):
        raise ValueError(f"{len(data)} bytes")
    if _CRC.unpack(frame[-_CRC.size :]) != (zlib.crc32(data),):
        raise ValueError("another checksum")
    return data


def _unreadable(deleted: DeletedRows, problem: str) -> CdcError:
    file = f" in {deleted.path}" if deleted.path else ""
    kind = "position delete file" if deleted.data_file else "deletion vector"
    return fail(
        Reason.SINK_CONFLICT,
        f"the {kind} {deleted.id!r} of {deleted.count} rows{file} has {problem}",
        needed=f"a whole {kind} in the table's folder",
        remedy=f"{RESNAPSHOT}; or restore the file, {RUN_AGAIN}",
    )
