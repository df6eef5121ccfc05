"""What a table's definition as the server shows it says against the one that was predicted.

Why it is right: everything that was predicted is compared. What was left unknown, and the default
collation of a character set, which each server has of its own, is no prediction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column


def contradictions(predicted: Capture, catalog: Capture) -> list[str]:
    """Empty where the server has what was predicted."""
    wrong = []
    if (predicted.key, predicted.key_index or catalog.key_index) != (catalog.key, catalog.key_index):
        wrong.append(f"the key {', '.join(catalog.key)}, not {', '.join(predicted.key)}")
    columns, shown_columns = predicted.columns, catalog.columns
    if [c.name for c in columns] != [c.name for c in shown_columns]:
        return [*wrong, f"the columns {_names(shown_columns)}, not {_names(columns)}"]
    for expected, shown in zip(columns, shown_columns, strict=True):
        wrong += _of_column(expected, shown)
    return [*wrong, *_of_facts(predicted, catalog)]


def other_defaults(predicted: Mapping[str, str], defaults: Mapping[str, str]) -> list[str]:
    """Defaults by column, in comparable form; one that is not there any more is no contradiction
    here."""
    return [
        f"the default of {name}: {defaults[name]}, not {default}"
        for name, default in predicted.items()
        if name in defaults and defaults[name] != default
    ]


def _names(columns: tuple[Column, ...]) -> str:
    return ", ".join(c.name for c in columns)


def _of_column(expected: Column, shown: Column) -> Iterator[str]:
    if expected.type != shown.type:
        charsets = (f" {shown.type.charset}", f" {expected.type.charset}") if shown.type.charset else ("", "")
        yield f"{shown.name} {shown.type.declared}{charsets[0]}, not {expected.type.declared}{charsets[1]}"
    if expected.nullable != shown.nullable:
        yield f"{shown.name} {'NULL' if shown.nullable else 'NOT NULL'}"
    if expected.collation and expected.collation != shown.collation:
        yield f"{shown.name} in the collation {shown.collation}, not {expected.collation}"


def _of_facts(predicted: Capture, catalog: Capture) -> Iterator[str]:
    source, in_catalog = predicted.source, catalog.source
    has_generated = source.generated is not None
    facts = {
        "the default character set": (source.charset, in_catalog.charset, ""),
        "the generated columns": (source.generated, in_catalog.generated, None),
        # both are read from the catalog by one query, so either both are known or none
        "the numbered column": (source.auto_increment if has_generated else None, in_catalog.auto_increment, None),
        "the unique indexes": (source.unique, in_catalog.unique, None),
    }
    for name, (expected, shown, unknown) in facts.items():
        if expected not in (unknown, shown):
            yield f"{name}: {_fact(shown)}, not {_fact(expected)}"


def _fact(value: str | frozenset[str] | None) -> str:
    return value or "none" if isinstance(value, str) else ", ".join(sorted(value or ())) or "none"
