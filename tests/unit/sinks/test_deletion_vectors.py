"""Deletion vectors byte by byte, and what is refused: a vector that was cut or mixed up would let
deleted rows rise again."""

from __future__ import annotations

import struct
import uuid
import zlib
from dataclasses import replace

import pytest
from pyroaring import BitMap

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_spark.sinks.delta.table.vector_files import Descriptor, VectorFile, z85, z85_decoded
from cdcsync_spark.sinks.lake.files.deletion_vectors import deserialised, load, serialised

NAME = uuid.UUID("0b5d7e04-d3b5-4081-8b72-9254d1ff943f")


def reader(file: VectorFile):  # type: ignore[no-untyped-def]
    def read(path: str, offset: int, size: int) -> bytes:
        assert path == f"_vectors/deletion_vector_{NAME}.bin"
        return file.content[offset : offset + size]

    return read


def test_the_array_is_a_magic_number_a_count_and_the_map_of_number_zero() -> None:
    # 1681511377 little endian; one map, 64 bits; its number, 32 bits; then roaring's portable form
    head = bytes.fromhex("d1d33964") + bytes.fromhex("0100000000000000") + bytes(4)
    assert serialised(BitMap([1, 3])) == head + bytes(BitMap([1, 3]).serialize())
    assert deserialised(serialised(BitMap([1, 3, 70_000]))) == BitMap([1, 3, 70_000])
    # no map, and so no number of one: 12 bytes
    assert deserialised(struct.pack("<iq", 1681511377, 0)) == BitMap()
    assert deserialised(struct.pack("<iqi", 1681511377, 0, 0) + b"\0") == BitMap()


def test_a_file_is_a_version_and_framed_vectors() -> None:
    file = VectorFile(NAME)
    assert file.content == b""
    first, second = file.add(BitMap([0])), file.add(BitMap(range(100_000)))
    data = serialised(BitMap([0]))
    framed = struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    assert file.content.startswith(b"\x01" + framed)
    assert (first.offset, first.size, first.cardinality) == (1, len(data), 1)
    assert second.offset == 1 + len(framed)
    assert load(first.deleted, reader(file)) == BitMap([0])
    assert load(second.deleted, reader(file)) == BitMap(range(100_000))
    assert Descriptor.from_dict(first.to_dict()) == first
    assert first.id != second.id


def test_a_vector_in_the_log_itself() -> None:
    data = serialised(BitMap([5]))
    inline = Descriptor("i", z85(data), None, len(data), 1)
    assert load(inline.deleted, lambda *_: b"") == BitMap([5])
    assert Descriptor.from_dict(inline.to_dict()) == inline
    assert inline.path == ""


def test_base_85_is_zeromqs() -> None:
    """The test vector of ZeroMQ's RFC 32."""
    assert z85(bytes.fromhex("864fd26fb559f75b")) == "HelloWorld"
    assert z85_decoded("HelloWorld") == bytes.fromhex("864fd26fb559f75b")


def test_other_programs_files_lie_beside_the_data_or_under_a_prefix() -> None:
    text = z85(NAME.bytes)
    assert Descriptor("u", text, 1, 1, 1).path == f"deletion_vector_{NAME}.bin"
    assert Descriptor("u", f"ab{text}", 1, 1, 1).path == f"ab/deletion_vector_{NAME}.bin"


@pytest.mark.parametrize("damage", ["cut", "flipped", "size", "cardinality", "storage", "magic"])
def test_a_damaged_vector_is_refused(damage: str) -> None:
    file = VectorFile(NAME)
    good = file.add(BitMap([1, 2, 3]))
    content = bytearray(file.content)
    descriptor = good
    match damage:
        case "cut":
            del content[-1]
        case "flipped":
            content[-6] ^= 1
        case "size":
            content[4] ^= 1
        case "cardinality":
            descriptor = replace(good, cardinality=4)
        case "storage":
            descriptor = replace(good, storage="p")
        case _:
            data = b"\0" + serialised(BitMap([1]))[1:]
            descriptor = Descriptor("i", z85(data), None, len(data), 1)
    with pytest.raises(PermanentError, match="deletion vector") as refused:
        load(descriptor.deleted, lambda path, offset, size: bytes(content[offset : offset + size]))
    assert refused.value.reason is Reason.SINK_CONFLICT
