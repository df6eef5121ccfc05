"""Which foreign keys of a table change it when another table changes, and the error of a table
where a server does not log that (rule R10).

They are read from SHOW CREATE TABLE, because MariaDB hides
information_schema.REFERENTIAL_CONSTRAINTS from an account that may only SELECT, and an empty answer
would pass for "no cascades".
"""

from __future__ import annotations

import re

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.tables.source_table import TableId

#: MySQL from here on does foreign keys in the SQL layer and logs what they change
LOGGED_SINCE = (9, 6)
#: MariaDB 11.4 prints a backtick in a constraint's name as it is, so names are not parsed. A line
#: that ends a quoted text is a column's.
_FOREIGN_KEY = re.compile(r"^(.*)FOREIGN KEY \(.*(?<!')(?<!',)$", re.M)
_ACTION = re.compile(r"ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)")


def cascades(create_table: str) -> list[str]:
    """The foreign keys of a SHOW CREATE TABLE that change this table when another one changes, with
    what they do."""
    return [
        f"{match[1].strip()} {' '.join(actions)}"
        for match in _FOREIGN_KEY.finditer(create_table)
        if (actions := _ACTION.findall(match[0]))
    ]


def unlogged_error(table_id: TableId, actions: list[str]) -> CdcError:
    """The error of a table whose foreign keys have these `actions` on a server that logs none."""
    return fail(
        Reason.CASCADES_NOT_LOGGED,
        f"{', '.join(actions)}; what they change in this table is not in the binlog",
        needed="no CASCADE and no SET NULL on a server that does not log them",
        remedy="drop the actions, or accept a copy that is never consistent by tables.overrides[].acceptUnloggedCascades",
        table=str(table_id),
    )
