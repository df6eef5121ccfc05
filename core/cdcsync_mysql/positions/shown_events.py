"""The events of a binlog file as SHOW BINLOG EVENTS shows them, one at a time.

A result of several events ends in an error where one of them is longer than `max_allowed_packet`
(error 1220): a row of 10 MB that is updated is one of 20 MB. An event that is shown alone is in the
way of no other. Source: MariaDB source, `mysql_show_binlog_events`.
"""

from __future__ import annotations

from typing import NamedTuple

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.position import LogOffset
from cdcsync_mysql.sessions.connection import Connection, fetch

#: no event begins at the offset, or one that is longer than max_allowed_packet
_NOT_SHOWN = 1220


class ShownEvent(NamedTuple):
    """`end` is the offset behind the event; MariaDB may show 0 for one within a transaction."""

    kind: str
    begin: int
    end: int
    info: str


def shown_event(connection: Connection, at: LogOffset) -> ShownEvent | None:
    """The event that begins at an offset; None at the file's end. Raises CdcError, for which
    `is_not_shown` holds where no event begins there."""
    rows = fetch(connection, f"SHOW BINLOG EVENTS IN %s FROM {at.offset} LIMIT 1", (at.file,))
    if not rows:
        return None
    _, begin, kind, _, end, info = rows[0]
    return ShownEvent(str(kind), int(begin), int(end), str(info))


def is_not_shown(error: CdcError) -> bool:
    """Whether the server shows no event there."""
    return error.__cause__ is not None and error.__cause__.args[:1] == (_NOT_SHOWN,)


def is_boundary(connection: Connection, at: LogOffset) -> bool:
    """Whether the file ends at an offset, or an event of at most `max_allowed_packet` begins there,
    as each does that may follow a transaction."""
    try:
        shown_event(connection, at)
    except CdcError as e:
        if is_not_shown(e):
            return False
        raise
    return True
