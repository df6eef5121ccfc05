"""Which tables belong to an online schema changer and stand beside the table that it changes.

Why it exists: gh-ost and pt-online-schema-change fill a table beside the captured one and exchange
the two by a RENAME. A pattern like `shop\\..*` matches what they make, and each would be read, join
the stream and leave it again while the migration loads the source already.

Why it is right: a table is left out only while the table that it belongs to is there and matches,
and it is shown with the reason, so nothing is left out unseen. One that `include` names literally,
or that the sync has already, is captured. Pure.
"""

from __future__ import annotations

from collections.abc import Collection

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.tables.table_selection import TableSelection

#: gh-ost: the new table, changelog, checkpoints, the previous one; the other: new and previous
_SUFFIXES = ("_gho", "_ghc", "_ghk", "_del", "_new", "_old")


def side_table_error(selection: TableSelection, name: str, matching: Collection[str]) -> CdcError | None:
    """Why the table `name` is not captured beside the `matching` ones; None for one that is."""
    owner = _owner(name, matching)
    if owner is None or selection.names(name):
        return None
    return fail(
        Reason.SIDE_TABLE,
        f"by its name a table that an online schema changer made beside {owner}",
        needed="a name of another form, or the literal name in spec.tables.include",
        remedy=f"none if it is one; else add {name} to spec.tables.include",
        table=name,
    )


def _owner(name: str, matching: Collection[str]) -> str | None:
    """pt-online-schema-change puts more underscores in front where a name is taken."""
    database, _, table = name.partition(".")
    suffix = next((s for s in _SUFFIXES if table.endswith(s)), None)
    if suffix is None:
        return None
    bare = table.removesuffix(suffix)
    underscores = len(bare) - len(bare.lstrip("_"))
    owners = (f"{database}.{bare[count:]}" for count in range(1, underscores + 1))
    return next((owner for owner in owners if owner in matching), None)
