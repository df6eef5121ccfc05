"""The Avro schemas of a manifest and of a manifest list, as Iceberg's own library writes them for
format version 3. Pure values: a test compares them with files of that library.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def _field(number: int, name: str, kind: Any, doc: str = "", *, required: bool = False) -> Schema:
    described = {"doc": doc} if doc else {}
    if required:
        return {"name": name, "type": kind, **described, "field-id": number}
    return {"name": name, "type": ["null", kind], **described, "default": None, "field-id": number}


def _map(key: int, value: int, kind: str) -> Schema:
    """The schema of a map from column ids, for which Avro's own maps have no keys."""
    fields = [_field(key, "key", "int", required=True), _field(value, "value", kind, required=True)]
    items = {"type": "record", "name": f"k{key}_v{value}", "fields": fields}
    return {"type": "array", "items": items, "logicalType": "map"}


def _list(element: int, kind: str) -> Schema:
    return {"type": "array", "items": kind, "element-id": element}


_DATA_FILE = [
    _field(
        134, "content", "int", "Contents of the file: 0=data, 1=position deletes, 2=equality deletes", required=True
    ),
    _field(100, "file_path", "string", "Location URI with FS scheme", required=True),
    _field(101, "file_format", "string", "File format name: avro, orc, or parquet", required=True),
    _field(
        102,
        "partition",
        {"type": "record", "name": "r102", "fields": []},
        "Partition data tuple, schema based on the partition spec",
        required=True,
    ),
    _field(103, "record_count", "long", "Number of records in the file", required=True),
    _field(104, "file_size_in_bytes", "long", "Total file size in bytes", required=True),
    _field(108, "column_sizes", _map(117, 118, "long"), "Map of column id to total size on disk"),
    _field(109, "value_counts", _map(119, 120, "long"), "Map of column id to total count, including null and NaN"),
    _field(110, "null_value_counts", _map(121, 122, "long"), "Map of column id to null value count"),
    _field(137, "nan_value_counts", _map(138, 139, "long"), "Map of column id to number of NaN values in the column"),
    _field(125, "lower_bounds", _map(126, 127, "bytes"), "Map of column id to lower bound"),
    _field(128, "upper_bounds", _map(129, 130, "bytes"), "Map of column id to upper bound"),
    _field(131, "key_metadata", "bytes", "Encryption key metadata blob"),
    _field(132, "split_offsets", _list(133, "long"), "Splittable offsets"),
    _field(135, "equality_ids", _list(136, "int"), "Equality comparison field IDs"),
    _field(140, "sort_order_id", "int", "Sort order ID"),
    _field(142, "first_row_id", "long", "The first row ID assigned to the first row in the data file"),
    _field(
        143,
        "referenced_data_file",
        "string",
        "Fully qualified location (URI with FS scheme) of a data file that all deletes reference",
    ),
    _field(144, "content_offset", "long", "The offset in the file where the content starts"),
    _field(145, "content_size_in_bytes", "long", "The length of referenced content stored in the file"),
]

MANIFEST_ENTRY: Schema = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        _field(0, "status", "int", required=True),
        _field(1, "snapshot_id", "long"),
        _field(3, "sequence_number", "long"),
        _field(4, "file_sequence_number", "long"),
        _field(2, "data_file", {"type": "record", "name": "r2", "fields": _DATA_FILE}, required=True),
    ],
}

_PARTITION = [
    _field(509, "contains_null", "boolean", "True if any file has a null partition value", required=True),
    _field(518, "contains_nan", "boolean", "True if any file has a nan partition value"),
    _field(510, "lower_bound", "bytes", "Partition lower bound for all files"),
    _field(511, "upper_bound", "bytes", "Partition upper bound for all files"),
]

MANIFEST_FILE: Schema = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _field(500, "manifest_path", "string", "Location URI with FS scheme", required=True),
        _field(501, "manifest_length", "long", "Total file size in bytes", required=True),
        _field(502, "partition_spec_id", "int", "Spec ID used to write", required=True),
        _field(517, "content", "int", "Contents of the manifest: 0=data, 1=deletes", required=True),
        _field(515, "sequence_number", "long", "Sequence number when the manifest was added", required=True),
        _field(516, "min_sequence_number", "long", "Lowest sequence number in the manifest", required=True),
        _field(503, "added_snapshot_id", "long", "Snapshot ID that added the manifest", required=True),
        _field(504, "added_files_count", "int", "Added entry count", required=True),
        _field(505, "existing_files_count", "int", "Existing entry count", required=True),
        _field(506, "deleted_files_count", "int", "Deleted entry count", required=True),
        _field(512, "added_rows_count", "long", "Added rows count", required=True),
        _field(513, "existing_rows_count", "long", "Existing rows count", required=True),
        _field(514, "deleted_rows_count", "long", "Deleted rows count", required=True),
        _field(
            507,
            "partitions",
            {
                "type": "array",
                "items": {"type": "record", "name": "r508", "fields": _PARTITION},
                "element-id": 508,
            },
            "Summary for each partition",
        ),
        _field(519, "key_metadata", "bytes", "Encryption key metadata blob"),
        _field(520, "first_row_id", "long", "Starting row ID to assign to new rows in ADDED data files"),
    ],
}
