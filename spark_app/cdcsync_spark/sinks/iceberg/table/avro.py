"""Avro container files as Iceberg's manifests are: records that were encoded before are put
together to one block, and what another program wrote is read within bounds.

Why it exists: a manifest is written again with each commit, and most of its records stay; so a
record is encoded once and kept as bytes. fastavro encodes and decodes the records; the container is
ours, because a block of another program may unpack to more than there is memory for.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException

from cdcsync_core.peer_json import parse_json

Record = Mapping[str, Any]
_MAGIC, _SYNC_BYTES = b"Obj\1", 16
#: of the header
_MOST_KEYS = 1000
#: bytes of a file's schema once it is parsed
_SCHEMA_BYTES = 2**24
#: bytes in memory of a field, of an item of a list, and of what is kept of a record, without texts
_FIELD, _ITEM, _RECORD = 100, 500, 1024
#: bytes of a record that is decoded in any memory
_LEAST_RECORD = 2**16
_VALUES = ("boolean", "int", "long", "float", "double", "bytes", "string")
#: of a record in a list: a manifest list has four
_ITEM_FIELDS = 4
#: what decoding raises for bytes that are no such file
BROKEN = (
    *(ValueError, EOFError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError),
    *(struct.error, zlib.error, SchemaParseException),
)


class Encoder:
    """Records of one schema as bytes."""

    def __init__(self, schema: Record) -> None:
        self.text = json.dumps(schema)
        self._parsed = fastavro.parse_schema(json.loads(self.text))

    def encoded(self, record: Record) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self._parsed, record)
        return out.getvalue()

    def decoded(self, content: bytes) -> dict[str, Any]:
        """The record of which `content` was encoded."""
        record = fastavro.schemaless_reader(io.BytesIO(content), self._parsed, None)
        assert isinstance(record, dict)
        return record

    def container(self, metadata: Mapping[str, str], records: Sequence[bytes]) -> bytes:
        """A file with the records, which were encoded by this schema."""
        deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
        block = deflate.compress(b"".join(records)) + deflate.flush()
        pairs = {"avro.schema": self.text, "avro.codec": "deflate", **metadata}
        header = b"".join(_bytes(key.encode()) + _bytes(value.encode()) for key, value in pairs.items())
        sync = os.urandom(_SYNC_BYTES)
        blocks = [_long(len(records)), _bytes(block), sync] if records else []
        return b"".join([_MAGIC, _long(len(pairs)), header, b"\0", sync, *blocks])


@dataclass(frozen=True)
class Container:
    """What a file holds: its metadata, and its records, which are decoded one at a time: one takes
    many times its bytes."""

    metadata: Mapping[str, str]
    records: Iterator[dict[str, Any]]
    #: bytes of the records, and of what is kept of each
    size: int


def read_container(content: bytes, most_bytes: int) -> Container:
    """Raises one of `BROKEN` for what is no container file, or takes more bytes of memory; so does
    the decoding of its records."""
    source = _Source(content)
    if source.take(len(_MAGIC)) != _MAGIC:
        raise ValueError("no Avro container file")
    metadata = {key: value.decode() for key, value in source.pairs()}
    sync = source.take(_SYNC_BYTES)
    written = parse_json(metadata["avro.schema"], most=_SCHEMA_BYTES)
    _refuse_items(written)
    schema, codec = fastavro.parse_schema(written), metadata.get("avro.codec", "null")
    blocks: list[tuple[bytes, int]] = []
    left = most_bytes
    while not source.ended:
        count, packed = source.long(), source.sized()
        block = _unpacked(packed, codec, left)
        if source.take(_SYNC_BYTES) != sync:
            raise ValueError("a block without its end")
        if count < 0 or count > len(block):
            raise ValueError(f"{count} records in {len(block)} bytes")
        left -= len(block) + _RECORD * count
        blocks.append((block, count))
    if left < 0:
        raise too_heavy(most_bytes)
    longest = max(most_bytes // (2 * _ITEM), _LEAST_RECORD)
    records = (record for block, count in blocks for record in _records(block, schema, count, longest))
    return Container(metadata, records, most_bytes - left)


def _records(block: bytes, schema: Any, count: int, longest: int) -> Iterator[dict[str, Any]]:
    """The decoder sees no more than two times `longest` bytes of one."""
    at, window = 0, _Window(block, longest)
    for _ in range(count):
        record, at = window.record(schema, at)
        if not isinstance(record, dict):
            raise TypeError("a record that is none")
        yield record
    if at < len(block):
        raise ValueError("bytes after the last record")


class _Window:
    """The part of a block that a decoder may read."""

    def __init__(self, block: bytes, longest: int) -> None:
        self._block, self._longest = block, longest
        self._start, self._reading = 0, io.BytesIO(block[: 2 * longest])

    def record(self, schema: Any, at: int) -> tuple[Any, int]:
        """The record that begins at `at`, and where it ends."""
        if at - self._start > self._longest:
            self._start, self._reading = at, io.BytesIO(self._block[at : at + 2 * self._longest])
        record = fastavro.schemaless_reader(self._reading, schema, None)
        return record, self._start + self._reading.tell()


def weight(value: Any) -> int:
    """About the bytes of memory that a record or a list takes, texts left out."""
    if isinstance(value, dict):
        return _FIELD * (1 + len(value)) + sum(weight(v) for v in value.values() if isinstance(v, dict | list))
    return _FIELD + _ITEM * len(value)


def too_heavy(most_bytes: int) -> ValueError:
    return ValueError(
        f"more than {most_bytes} bytes of memory: spec.driver.memory, or spec.stream.driver.memory, raises that"
    )


def _unpacked(packed: bytes, codec: str, most: int) -> bytes:
    if codec == "null":
        block = packed
    elif codec == "deflate":
        unpacking = zlib.decompressobj(-15)
        block = unpacking.decompress(packed, most + 1)
    else:
        raise ValueError(f"the codec {codec[:40]!r}, needed deflate or null")
    if len(block) > most:
        raise ValueError(f"more than {most} bytes once it is unpacked")
    return block


def _refuse_items(schema: Any) -> None:
    """An array of items that take no byte may have any length, and one of arrays, or of records of
    many fields, may take any memory for a byte."""
    if isinstance(schema, list):
        for each in schema:
            _refuse_items(each)
    elif isinstance(schema, dict):
        if schema.get("type") == "map":
            raise ValueError("a map, which Iceberg has as an array of records")
        for each in schema.get("fields", ()):
            _refuse_items(each["type"])
        if isinstance(schema.get("type"), dict | list):
            _refuse_items(schema["type"])
        if "items" in schema and not _is_item(schema["items"]):
            raise ValueError("an array of other items than values, or records of a few")


def _is_item(schema: Any) -> bool:
    """Whether it takes bytes, and few values. Names of other types are not followed: no schema of
    Iceberg's has any in an array."""
    if isinstance(schema, dict) and schema.get("type") == "record":
        fields = schema["fields"]
        return 0 < len(fields) <= _ITEM_FIELDS and all(_is_value(field["type"]) for field in fields)
    return _is_value(schema)


def _is_value(schema: Any) -> bool:
    if isinstance(schema, list):
        return bool(schema) and all(each == "null" or _is_value(each) for each in schema)
    if isinstance(schema, dict):
        return schema.get("type") in _VALUES
    return schema in _VALUES


class _Source:
    """The bytes of a file, from its beginning."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    @property
    def ended(self) -> bool:
        return self._at >= len(self._content)

    def take(self, size: int) -> bytes:
        taken = self._content[self._at : self._at + size] if size >= 0 else b""
        if len(taken) != size:
            raise EOFError("the file ends early")
        self._at += size
        return taken

    def long(self) -> int:
        value = shift = 0
        while shift < 70:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise ValueError("a number of more than 10 bytes")

    def sized(self) -> bytes:
        return self.take(self.long())

    def pairs(self) -> Iterator[tuple[str, bytes]]:
        left = _MOST_KEYS
        while count := self.long():
            if count < 0:
                self.long()  # the bytes of these pairs
            left -= abs(count)
            if left < 0:
                raise ValueError(f"more than {_MOST_KEYS} keys")
            for _ in range(abs(count)):
                yield self.sized().decode(), self.sized()


def _long(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value
