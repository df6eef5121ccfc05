"""How a stop says that a table's rows are not as the source's catalog describes them.

Why it exists: a resnapshot reads the catalog again, so it either cures such a stop or never will;
of a statement that stopped the table, the next one may have the same words and be another one. The
words are here, because the controller knows a stop by its message alone.
"""

from __future__ import annotations

#: of rows in the binlog, at the end of what was found
UNANNOUNCED = "without a statement in the binlog that changed them"
#: of rows that a snapshot reads, at its beginning
RESULT_HAS = "the result has"


def is_of_definition(found: str) -> bool:
    """Whether what was found is of the rows themselves, not of a statement."""
    return found.endswith(UNANNOUNCED) or f": {RESULT_HAS} " in found
