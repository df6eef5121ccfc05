"""A consistent view on a connection, with its position, as near as the server says it.

- MariaDB names the place of a view itself. It is exact, but for XA COMMITs, which are in the binlog
  before the engine has them.
- MySQL does not. The position is taken before the view, in the shortest way: the view may have
  transactions after it, up to HIGH, which is taken behind it. Without GTIDs a place may cover an XA
  COMMIT that no view sees yet, as on MariaDB.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.mariadb_gtid import UNKNOWN
from cdcsync_core.positions.position import FilePosition, GtidPosition, LogOffset, Position
from cdcsync_mysql.positions.history import gtid_pos_at
from cdcsync_mysql.positions.watermark import high, log_status_place, open_snapshot
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Connection, fetch


@dataclass(frozen=True)
class View:
    """All that `position` covers is in the view, but for XA COMMITs after the floor that was given;
    nothing behind `high` is."""

    position: Position
    high: LogOffset


def open_view(connection: Connection, facts: ServerFacts, floor: Position) -> View:
    """Begins a transaction that reads one state of all tables. `floor` is a low watermark that was
    taken before (R1). The position of a place does not say when its file was begun."""
    if isinstance(floor, GtidPosition):
        executed = GtidSet.parse(str(fetch(connection, "SELECT @@GLOBAL.gtid_executed")[0][0]))
        _begin(connection)
        return View(replace(floor, gtids=executed), high(connection, facts))
    if facts.flavor == "mariadb":
        place = open_snapshot(connection, facts)
        return View(FilePosition(place, gtid_pos_at(connection, place) or UNKNOWN), place)
    place = log_status_place(connection, facts)
    _begin(connection)
    return View(FilePosition(place), high(connection, facts))


def _begin(connection: Connection) -> None:
    # REPEATABLE READ by the session profile; under READ COMMITTED the clause does nothing
    fetch(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
