"""The columns of a table as AWS Glue shows them, from its metadata. Pure.

Engines read those of the metadata. These are what Glue's own pages, and rights on columns, know of
a table; they have the form that Iceberg's `GlueCatalog` gives them.
"""

from __future__ import annotations

from typing import Any

from cdcsync_spark.sinks.iceberg.catalog.port import Json

#: Iceberg's type -> Glue's, where it has another name
_NAMES = {"long": "bigint", "time": "string", "uuid": "string", "timestamptz": "timestamp"}


def glue_columns(metadata: Json) -> list[dict[str, Any]]:
    """The columns of the current schema."""
    schemas = {schema["schema-id"]: schema for schema in metadata["schemas"]}
    return [_column(each) for each in schemas[metadata["current-schema-id"]]["fields"]]


def _column(described: Json) -> dict[str, Any]:
    parameters = {
        "iceberg.field.id": str(described["id"]),
        "iceberg.field.optional": str(not described["required"]).lower(),
        "iceberg.field.current": "true",
    }
    return {"Name": described["name"], "Type": _type(described["type"]), "Parameters": parameters}


def _type(described: Any) -> str:
    if not isinstance(described, dict):
        name = str(described)
        return "binary" if name.startswith("fixed") else _NAMES.get(name, name.replace(" ", ""))
    if described["type"] == "list":
        return f"array<{_type(described['element'])}>"
    if described["type"] == "map":
        return f"map<{_type(described['key'])},{_type(described['value'])}>"
    inside = ",".join(f"{each['name']}:{_type(each['type'])}" for each in described["fields"])
    return f"struct<{inside}>"
