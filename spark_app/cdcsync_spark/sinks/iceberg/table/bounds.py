"""Bounds of columns in the binary form of Iceberg's manifests ("Binary single-value
serialization"). Pure."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from cdcsync_spark.sinks.iceberg.table.schema import TableSchema
from cdcsync_spark.sinks.lake.files.bounds import BoundKind, ColumnBounds, FileBounds

Pairs = list[dict[str, Any]]
_EPOCH = dt.date(1970, 1, 1)
_INT, _LONG = struct.Struct("<i"), struct.Struct("<q")


def column_metrics(bounds: FileBounds | None, rows: int, schema: TableSchema) -> dict[str, Pairs | None]:
    """What a manifest says of a file's columns, by their ids; nothing where nothing was
    gathered."""
    if bounds is None:
        return {}
    fields = {name: f for name, f in schema.by_name.items() if isinstance(f["type"], str) and name in bounds.nulls}
    lows, highs = dict[int, bytes](), dict[int, bytes]()
    for name, bound in bounds.columns.items():
        if name in fields:
            number, kind = fields[name]["id"], fields[name]["type"]
            lows[number], highs[number] = _binary(bound, bound.low, kind), _binary(bound, bound.high, kind)
    return {
        "value_counts": pairs({f["id"]: rows for f in fields.values()}),
        "null_value_counts": pairs({f["id"]: bounds.nulls[name] for name, f in fields.items()}),
        "lower_bounds": pairs(lows),
        "upper_bounds": pairs(highs),
    }


def pairs(values: Mapping[int, Any]) -> Pairs:
    """A map by column ids, as a manifest has it."""
    return [{"key": number, "value": value} for number, value in values.items()]


def _binary(bounds: ColumnBounds, value: Any, kind: str) -> bytes:
    if bounds.kind is BoundKind.TEXT:
        return str(value).encode()
    if bounds.kind is BoundKind.DECIMAL:
        return _decimal(value, int(kind.rstrip(")").split(",")[1]))
    if bounds.kind is BoundKind.DATE:
        return _INT.pack((value - _EPOCH).days)
    return _INT.pack(value) if kind == "int" else _LONG.pack(value)


def _decimal(value: Decimal, scale: int) -> bytes:
    """The unscaled value in the fewest bytes of two's complement, big endian."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits))) * 10 ** (exponent + scale) * (-1 if sign else 1)
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)


def file_bounds(file: Mapping[str, Any], schema: TableSchema) -> FileBounds:
    """The bounds that `column_metrics` has written. Raises, as parsers do, for others."""
    nulls, lows, highs = (_by_id(file.get(name)) for name in ("null_value_counts", "lower_bounds", "upper_bounds"))
    columns = {
        field["name"]: ColumnBounds(
            kind, _value(lows[field["id"]], field["type"]), _value(highs[field["id"]], field["type"])
        )
        for field in schema.fields
        if (kind := _kind(field["type"])) and field["id"] in lows.keys() & highs.keys()
    }
    return FileBounds({f["name"]: nulls[f["id"]] for f in schema.fields if f["id"] in nulls}, columns)


def _by_id(pairs: Pairs | None) -> dict[int, Any]:
    return {pair["key"]: pair["value"] for pair in pairs or ()}


_KINDS = {
    "int": BoundKind.INTEGER,
    "long": BoundKind.INTEGER,
    "date": BoundKind.DATE,
    "timestamptz": BoundKind.INSTANT,
    "timestamp": BoundKind.LOCAL_TIME,
    "string": BoundKind.TEXT,
}


def _kind(kind: Any) -> BoundKind | None:
    if not isinstance(kind, str):
        return None
    return BoundKind.DECIMAL if kind.startswith("decimal") else _KINDS.get(kind)


def _value(encoded: bytes, kind: str) -> Any:
    if kind == "string":
        return encoded.decode()
    if kind.startswith("decimal"):
        unscaled, scale = int.from_bytes(encoded, "big", signed=True), int(kind.rstrip(")").split(",")[1])
        return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
    number = int((_INT if len(encoded) == _INT.size else _LONG).unpack(encoded)[0])  # a long may have been an int
    return _EPOCH + dt.timedelta(days=number) if kind == "date" else number
