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

Record = Mapping[str, Any]
_MAGIC, _SYNC_BYTES = b"Obj\1", 16
#: of the header
_MOST_KEYS = 1000
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
    #: bytes of the records
    size: int


def read_container(content: bytes, most_bytes: int) -> Container:
    """Raises one of `BROKEN` for what is no container file, or unpacks to more bytes; so does the
    decoding of its records."""
    source = _Source(content)
    if source.take(len(_MAGIC)) != _MAGIC:
        raise ValueError("no Avro container file")
    metadata = {key: value.decode() for key, value in source.pairs()}
    sync = source.take(_SYNC_BYTES)
    written = json.loads(metadata["avro.schema"])
    _refuse_empty_items(written)
    schema, codec = fastavro.parse_schema(written), metadata.get("avro.codec", "null")
    blocks: list[tuple[bytes, int]] = []
    left = most_bytes
    while not source.ended:
        count, packed = source.long(), source.sized()
        block = _unpacked(packed, codec, left)
        left -= len(block)
        if source.take(_SYNC_BYTES) != sync:
            raise ValueError("a block without its end")
        blocks.append((block, count))
    records = (record for block, count in blocks for record in _records(block, schema, count))
    return Container(metadata, records, most_bytes - left)


def _records(block: bytes, schema: Any, count: int) -> Iterator[dict[str, Any]]:
    reading = io.BytesIO(block)
    if count < 0 or count > len(block):
        raise ValueError(f"{count} records in {len(block)} bytes")
    for _ in range(count):
        record = fastavro.schemaless_reader(reading, schema, None)
        if not isinstance(record, dict):
            raise TypeError("a record that is none")
        yield record
    if reading.read(1):
        raise ValueError("bytes after the last record")


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


def _refuse_empty_items(schema: Any) -> None:
    """An array of items that take no byte may have any length."""
    if isinstance(schema, list):
        for each in schema:
            _refuse_empty_items(each)
    elif isinstance(schema, dict):
        for each in schema.get("fields", ()):
            _refuse_empty_items(each["type"])
        if isinstance(schema.get("type"), dict | list):
            _refuse_empty_items(schema["type"])
        if "items" in schema:
            _refuse_empty_items(schema["items"])
            if not _takes_bytes(schema["items"]):
                raise ValueError("an array of items without bytes")


def _takes_bytes(schema: Any) -> bool:
    """Names of other types are not followed: no schema of Iceberg's has any in an array."""
    if isinstance(schema, list):
        return bool(schema)
    if not isinstance(schema, dict):
        return schema in {"boolean", "int", "long", "float", "double", "bytes", "string"}
    if schema.get("type") == "record":
        return any(_takes_bytes(field["type"]) for field in schema["fields"])
    return schema.get("type") in {"array", "map"} or _takes_bytes(schema.get("type"))


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
