"""Deletion vectors as a Delta log names them: descriptors, and the file that a commit's vectors
share. Pure.

Formats: the Delta protocol, "Deletion Vectors". A descriptor says where a vector is: in a file in
the table's folder (`u`), which is a version byte and one frame a vector, or in the Delta log itself
(`i`). Our files lie in `_vectors/`: VACUUM passes by folders with an underscore, and the full one
of delta-rs takes live vector files for dead ones [measured].
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyroaring import BitMap

from cdcsync_spark.sinks.lake.files.deletion_vectors import DeletedRows, framed, serialised

FOLDER = "_vectors"
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

    @property
    def deleted(self) -> DeletedRows:
        """The vector as what reads it needs it."""
        path, inline = "", None
        with suppress(ValueError):  # what is no base 85 names no vector
            path = "" if self.offset is None else self.path
            inline = z85_decoded(self.text)[: self.size] if self.storage == "i" else None
        return DeletedRows(self.id, self.cardinality, self.size, path, self.offset or 0, inline)


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
        self._parts.append(framed(data))
        self._size += len(self._parts[-1])
        return descriptor

    @property
    def path(self) -> str:
        return Descriptor("u", self._text, 0, 0, 0).path

    @property
    def content(self) -> bytes:
        """Empty where no vector was added."""
        return b"".join(self._parts) if len(self._parts) > 1 else b""


def z85(data: bytes) -> str:
    """ZeroMQ's base 85; `data` is filled with zeros to whole words of four bytes."""
    padded = data + b"\0" * (-len(data) % 4)
    return base64.b85encode(padded).translate(_TO_Z85).decode("ascii")


def z85_decoded(text: str) -> bytes:
    """Raises ValueError."""
    return base64.b85decode(text.encode("ascii").translate(_FROM_Z85))
