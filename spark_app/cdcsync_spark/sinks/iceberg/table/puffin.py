"""A deletion vector as a Puffin file of its own.

One vector a file: of files with several, DuckDB gives wrong rows and Polars refuses them
[measured]. The vector's frame is the blob byte for byte (`sinks.lake.deletion_vectors`); formats:
Iceberg's Puffin specification, "deletion-vector-v1".
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

from pyroaring import BitMap

from cdcsync_spark.sinks.lake.files.deletion_vectors import framed, serialised

_MAGIC = b"PFA1"
#: the length of the footer's JSON, and flags: it is not compressed
_FOOTER = struct.Struct("<ii")
#: the field id of a row's position in its file
_POSITION = 2147483645
#: until the commit that names the file
_UNKNOWN = -1


@dataclass(frozen=True)
class Puffin:
    """A file's `content`; its blob's place, as the manifest names it."""

    content: bytes
    offset: int
    size: int


def vector_file(data_file: str, rows: BitMap) -> Puffin:
    """The vector of the deleted `rows` of a data file, by its full path. `rows` is compressed in
    place."""
    rows.run_optimize()
    blob = framed(serialised(rows))
    described = {
        "type": "deletion-vector-v1",
        "fields": [_POSITION],
        "snapshot-id": _UNKNOWN,
        "sequence-number": _UNKNOWN,
        "offset": len(_MAGIC),
        "length": len(blob),
        "properties": {"referenced-data-file": data_file, "cardinality": str(len(rows))},
    }
    footer = json.dumps({"blobs": [described]}, ensure_ascii=False, separators=(",", ":")).encode()
    parts = [_MAGIC, blob, _MAGIC, footer, _FOOTER.pack(len(footer), 0), _MAGIC]
    return Puffin(b"".join(parts), len(_MAGIC), len(blob))
