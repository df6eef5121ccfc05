"""Which rows of a data file are deleted: Delta's deletion vectors, in bytes and in descriptors.
Pure.

Formats: the Delta protocol, "Deletion Vectors" and its appendix "Deletion Vector Format". A vector
is a set of row numbers (from 0, in the physical order of the file) as a portable
`RoaringBitmapArray`: a magic number, then 64-bit roaring maps by their upper half. A file has fewer
than 2^32 rows, so there is one map, number 0. Vectors of one commit share a file: a version byte,
and per vector its size, its bytes and their CRC-32, big endian. A descriptor says where a vector
is: in such a file in the table's folder (`u`), or in the Delta log itself (`i`).

What is read is checked for size, magic, checksum and cardinality: a vector that was cut or mixed up
stops the table, because its rows would rise again. Our files lie in `_vectors/`: VACUUM passes by
folders with an underscore, and the full one of delta-rs takes live vector files for dead ones
[measured].
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyroaring import BitMap

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.remedies import RESNAPSHOT

#: reads `size` bytes at `offset` of the file at a path relative to the table
ReadRange = Callable[[str, int, int], bytes]

FOLDER = "_vectors"
_PORTABLE = 1681511377
_ARRAY_HEAD = struct.Struct("<iqi")
_EMPTY_ARRAY = struct.pack("<iq", _PORTABLE, 0)
_SIZE = struct.Struct(">i")
_CRC = struct.Struct(">I")
_FILE_VERSION = b"\x01"
_RFC1924 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85 = bytes.maketrans(_RFC1924, _Z85)
_FROM_Z85 = bytes.maketrans(_Z85, _RFC1924)
_UUID_TEXT = 20


@dataclass(frozen=True)
class Descriptor:
    """A vector's place, as `add` and `remove` actions carry it; `size` in bytes, `cardinality` in
    rows."""

    storage: str
    text: str
    offset: int | None
    size: int
    cardinality: int

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Descriptor:
        """Raises KeyError or TypeError for what is no descriptor."""
        texts = (data["storageType"], data["pathOrInlineDv"])
        numbers = (data["sizeInBytes"], data["cardinality"], data.get("offset") or 0)
        if not all(isinstance(t, str) for t in texts) or not all(isinstance(n, int) and n >= 0 for n in numbers):
            raise TypeError("a deletion vector of other types")
        return cls(*texts, data.get("offset"), *numbers[:2])

    def to_dict(self) -> dict[str, Any]:
        offset = {} if self.offset is None else {"offset": self.offset}
        return {
            "storageType": self.storage,
            "pathOrInlineDv": self.text,
            **offset,
            "sizeInBytes": self.size,
            "cardinality": self.cardinality,
        }

    @property
    def id(self) -> str:
        """Unique among the deletion vectors of a table."""
        return f"{self.storage}{self.text}@{self.offset}"

    @property
    def path(self) -> str:
        """The file of a `u` descriptor, relative to the table; empty for others."""
        return _file_path(self.text) if self.storage == "u" else ""


@lru_cache(1024)
def _file_path(text: str) -> str:
    """Vectors of one commit share a file, so the same text comes many times."""
    prefix, name = text[:-_UUID_TEXT], uuid.UUID(bytes=z85_decoded(text[-_UUID_TEXT:]))
    return f"{prefix}/deletion_vector_{name}.bin" if prefix else f"deletion_vector_{name}.bin"


class VectorFile:
    """The vectors of one commit, gathered to one file with the name `name`."""

    def __init__(self, name: uuid.UUID) -> None:
        self._text = FOLDER + z85(name.bytes)
        self._parts = [_FILE_VERSION]
        self._size = len(_FILE_VERSION)

    def add(self, rows: BitMap) -> Descriptor:
        """Appends a vector; `rows` is compressed in place."""
        rows.run_optimize()
        data = serialised(rows)
        descriptor = Descriptor("u", self._text, self._size, len(data), len(rows))
        self._parts += [_SIZE.pack(len(data)), data, _CRC.pack(zlib.crc32(data))]
        self._size += len(data) + _SIZE.size + _CRC.size
        return descriptor

    @property
    def path(self) -> str:
        return Descriptor("u", self._text, 0, 0, 0).path

    @property
    def content(self) -> bytes:
        """Empty where no vector was added."""
        return b"".join(self._parts) if len(self._parts) > 1 else b""


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


def load(descriptor: Descriptor, read: ReadRange) -> BitMap:
    """The deleted rows; raises `SinkConflict` for a vector that is not what its descriptor says."""
    try:
        rows = deserialised(_bytes_of(descriptor, read))
    except (ValueError, struct.error) as broken:
        raise _unreadable(descriptor, str(broken)) from None
    if len(rows) != descriptor.cardinality:
        raise _unreadable(descriptor, f"{len(rows)} rows")
    return rows


def _bytes_of(descriptor: Descriptor, read: ReadRange) -> bytes:
    if descriptor.storage == "i":
        return z85_decoded(descriptor.text)[: descriptor.size]
    if descriptor.storage != "u" or descriptor.offset is None:
        raise ValueError("another kind of storage")
    framed = read(descriptor.path, descriptor.offset, descriptor.size + _SIZE.size + _CRC.size)
    data = framed[_SIZE.size : -_CRC.size]
    if len(data) != descriptor.size or _SIZE.unpack_from(framed) != (descriptor.size,):
        raise ValueError(f"{len(data)} bytes")
    if _CRC.unpack(framed[-_CRC.size :]) != (zlib.crc32(data),):
        raise ValueError("another checksum")
    return data


def z85(data: bytes) -> str:
    """ZeroMQ's base 85; `data` is filled with zeros to whole words of four bytes."""
    padded = data + b"\0" * (-len(data) % 4)
    return base64.b85encode(padded).translate(_TO_Z85).decode("ascii")


def z85_decoded(text: str) -> bytes:
    """Raises ValueError."""
    return base64.b85decode(text.encode("ascii").translate(_FROM_Z85))


def _unreadable(descriptor: Descriptor, found: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"the deletion vector {descriptor.to_dict()} has {found}",
        needed="a whole deletion vector in the table's folder",
        remedy=f"{RESNAPSHOT}; or restore the file, {RUN_AGAIN}",
    )
