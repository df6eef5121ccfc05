"""What a table's definition as the server shows it says against the one that was predicted.

Why it is right: everything that was predicted is compared. What was left unknown, and the default
collation of a character set, which each server has of its own, is no prediction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column


def contradictions(predicted: Capture, found: Capture) -> list[str]:
    """Empty where the server has what was predicted."""
    wrong = []
    if (predicted.key, predicted.key_index or found.key_index) != (found.key, found.key_index):
        wrong.append(f"the key {', '.join(found.key)}, not {', '.join(predicted.key)}")
    mine, theirs = predicted.columns, found.columns
    if [c.name for c in mine] != [c.name for c in theirs]:
        return [*wrong, f"the columns {_names(theirs)}, not {_names(mine)}"]
    for expected, shown in zip(mine, theirs, strict=True):
        wrong += _of_column(expected, shown)
    return [*wrong, *_of_facts(predicted, found)]


def other_defaults(predicted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Defaults by column, in comparable form; one that is not there any more is no contradiction
    here."""
    return [
        f"the default of {name}: {found[name]}, not {default}"
        for name, default in predicted.items()
        if name in found and found[name] != default
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


def _of_facts(predicted: Capture, found: Capture) -> Iterator[str]:
    mine, theirs = predicted.source, found.source
    known = mine.generated is not None
    facts = {
        "the default character set": (mine.charset, theirs.charset, ""),
        "the generated columns": (mine.generated, theirs.generated, None),
        # both are read from the catalog by one query, so either both are known or none
        "the numbered column": (mine.auto_increment if known else None, theirs.auto_increment, None),
        "the unique indexes": (mine.unique, theirs.unique, None),
    }
    for name, (expected, shown, unknown) in facts.items():
        if expected not in (unknown, shown):
            yield f"{name}: {_fact(shown)}, not {_fact(expected)}"


def _fact(value: str | frozenset[str] | None) -> str:
    return value or "none" if isinstance(value, str) else ", ".join(sorted(value or ())) or "none"
