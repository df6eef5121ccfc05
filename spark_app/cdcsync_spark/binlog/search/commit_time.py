"""When a transaction of a server's binlog was committed, which distinguishes it from another one of
the same GTID.

The dump begins just before the transaction, is one of no replica, which ends no other one, and is
left as soon as the answer has come.
"""

from __future__ import annotations

from cdcsync_core.positions.failover import WitnessQuestion
from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.witness import Witness
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.dump.behind_gtid import stretch_behind
from cdcsync_spark.binlog.search.other_server import own_transactions


def commit_time(source: Source, server: ServerFacts, gtid: Gtid, executed: GtidSet) -> int | None:
    """Microseconds since 1970; None where the binlog has it not, or on MariaDB not behind the one
    of the number before. `executed` is what the server has, where it is a MySQL. Raises CdcError as
    `ask` and `stretch_behind`."""
    if server.flavor == "mariadb":
        return _of_number(source, server, gtid)
    awaited = GtidSet().with_gtids([gtid])
    question = WitnessQuestion(executed.subtract(awaited), awaited, Witness(gtid, 0, 0))
    return own_transactions(source, server, question, ()).committed


def _of_number(source: Source, server: ServerFacts, gtid: Gtid) -> int | None:
    if gtid.number < 2:
        return None
    stretch = stretch_behind(source, server, Gtid(gtid.source, gtid.number - 1), upto=gtid.number)
    if isinstance(stretch, str) or stretch.first is None or stretch.first.gtid != gtid:
        return None
    return stretch.first.at
