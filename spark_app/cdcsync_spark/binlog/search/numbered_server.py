"""Asks another MariaDB for the transactions of ours by which its binlog is proved to lead on from
ours; the rules are `positions.failover`."""

from __future__ import annotations

from cdcsync_core.positions.failover import Unproved, WitnessAnswer, WitnessQuestion, numbered_question
from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.position import Anchor, FilePosition
from cdcsync_core.positions.witness import Witness
from cdcsync_mysql.positions.logfile import file_created_at
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.dump.behind_gtid import DumpedStretch, stretch_behind


def ask_numbered(
    source: Source, server: ServerFacts, position: FilePosition
) -> tuple[WitnessQuestion, WitnessAnswer] | Unproved:
    """The question about the newest witness that the server has, and its answer. Raises CdcError as
    `stretch_behind`."""
    refusal, newest = "", position.witnesses[0].gtid
    for witness in position.witnesses:
        stretch = stretch_behind(source, server, _before(witness), newest.number)
        if isinstance(stretch, str):
            refusal = stretch
        elif stretch.first is not None and stretch.last is not None and stretch.first.gtid == witness.gtid:
            return _answered(source, server, position, witness, stretch)
        elif not isinstance(stretch_behind(source, server, witness.gtid, upto=0), str):
            return _not_next(witness, stretch)
        else:
            refusal = f"{witness.gtid} is not behind {_before(witness)}"
    return Unproved(
        f"the server has none of the transactions whose commit times are recorded ({refusal})",
        "one of the last transactions, by which the server's binlog is known to lead on from ours",
        lacking=True,
    )


def _before(witness: Witness) -> Gtid:
    return Gtid(witness.gtid.source, witness.gtid.number - 1)


def _not_next(witness: Witness, stretch: DumpedStretch) -> Unproved:
    """The server knows the transaction, and its binlog has another one, or none, in its place."""
    there = f"has {stretch.first.gtid}" if stretch.first else "has nothing"
    return Unproved(
        f"the server's binlog {there} behind {_before(witness)}, where the server before had {witness.gtid}",
        "the transactions of the server before, in their order (log_slave_updates=ON, and no own writes of a replica)",
    )


def _answered(
    source: Source, server: ServerFacts, position: FilePosition, witness: Witness, stretch: DumpedStretch
) -> tuple[WitnessQuestion, WitnessAnswer]:
    assert stretch.first is not None
    assert stretch.last is not None
    asked = numbered_question(position, witness, stretch.last.gtid.number)
    last = Witness(stretch.last.gtid, stretch.last.at, 0)
    place = Anchor(stretch.last.end, file_created_at(source, stretch.last.end.file, server.log))
    return asked, WitnessAnswer(stretch.first.at, GtidSet(), frozenset(), last, place, stretch.before)
