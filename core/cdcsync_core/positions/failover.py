"""What another server must prove before a table goes on there: pure rules.

Theory of operation. A failover leaves a server that has the same rows and another binlog. GTIDs
name its transactions, so our position, a set of them, has a meaning there. Three things may be
wrong with it, and each is asked for:

- *A lost tail.* Transactions that we applied and the new server never had are what our set has
  beyond its `gtid_executed`. Nothing can take them back out of a copy: the tables that they touched
  have diverged, the others go on without them.
- *A gap.* What the server purged must be within our set.
- *Another history under the same names.* A transaction that was written on the replica itself may
  stand between ours, and a server that was reset gives our GTIDs to other transactions. So the
  server is asked for the last transactions of ours once more, by a dump from our set without them
  (`WitnessQuestion`): they must have been committed at the same time, and nothing that we lack may
  change the table before them.

A server that only lacks transactions may be one that never had anything to do with ours. So a table
has diverged only where the commit times prove that the server has the same history; a resnapshot
that no user requested would else replace the copy by the rows of any server that answers.

A position on MariaDB is a place, and a place means nothing there; its last transactions are named
by GTIDs as well. With one domain they are numbered one after the other, so the question is a dump
from before one of them (`numbered_question`): it has to begin with that one, committed in the same
second, and the server lists which servers' transactions come before: none that our binlog did not
have. A server that refuses to begin there has not all of ours, or no longer.

Rows of a snapshot may contain more than the position has: all up to its high watermark. The stream
has not read these transactions, so it is not known which of them changed the table, and each that
is lost counts as one that did (`snapshot_ends`). Those that are there come behind the position, in
the order of the server, and are applied over the rows.

Order matters only there: what we lack and the old server wrote stands behind ours, and a replica
keeps the order of changes of one row. A transaction of the replica itself has no place in our
order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.lineage import BinlogId
from cdcsync_core.positions.mariadb_gtid import MariaDbGtid, MariaDbGtidPos
from cdcsync_core.positions.position import Anchor, FilePosition, GtidPosition, Position, Watermark
from cdcsync_core.positions.watermark import HighMark
from cdcsync_core.positions.witness import Witness

_NO_TIMES = "no transaction's commit time is recorded, because none was read since the table was copied"
_ONE_OF_OURS = "one of the last transactions, by which the server's binlog is known to lead on from ours"


_DIVERGED_AT = re.compile(r"(?:^|: )the source is now the server of (\w+:[^\s:]+): ")


@dataclass(frozen=True)
class Copied:
    """What is known of a table's copy; `table` is `database.table`. `touched` covers the GTIDs of
    its own transactions (None: any of its position may be); `high` is what its snapshot may have
    read, None where the stream has passed all of it."""

    table: str
    position: Position
    touched: GtidSet | None
    high: Watermark | None = None

    @property
    def unread(self) -> GtidSet:
        """What the snapshot may have read and the position lacks, as far as it has GTIDs."""
        if not isinstance(self.high, HighMark):
            return GtidSet()
        position = self.position
        passed = position.passed if isinstance(position, FilePosition) else position.gtids
        return self.high.gtids.subtract(passed)

    @property
    def gtids(self) -> GtidSet:
        """All that the rows may contain; on MariaDB the last ones."""
        return self.position.gtids.union(self.unread)


@dataclass(frozen=True)
class WitnessQuestion:
    """Asks for the transactions `awaited`, of which `witness` is the first, by a dump from `after`;
    `kept` are both together, `older` the witnesses before it."""

    after: GtidSet
    awaited: GtidSet
    witness: Witness
    older: tuple[Witness, ...] = ()

    @property
    def kept(self) -> GtidSet:
        return self.after.union(self.awaited)


@dataclass(frozen=True)
class WitnessAnswer:
    """What the dump had. `committed` is when the witness was, None where it did not come; `missing`
    is what did not come of the others. `between` are the tables that transactions which we lack
    changed before the last one of ours, which is `last` and ends at `end`. `before`: on MariaDB,
    the last GTIDs of all servers before the witness."""

    committed: int | None
    missing: GtidSet
    between: frozenset[str]
    last: Witness | None = None
    end: Anchor | None = None
    before: MariaDbGtidPos | None = None


@dataclass(frozen=True)
class Unproved:
    """The table cannot go on there; `found` and `needed` as in an error. `lacking`: by what
    the server has not, and a replica may still get."""

    found: str
    needed: str
    lacking: bool = False


@dataclass(frozen=True)
class Diverged:
    """The copy has rows that the server may not have; only a resnapshot helps."""

    divergence: str


@dataclass(frozen=True)
class MovedPosition:
    """The table goes on from `position`; `cut` is what it had and the server has not, which never
    touched it."""

    position: Position
    cut: GtidSet = field(default_factory=GtidSet)


def found_diverged(binlog: BinlogId, why: Diverged) -> str:
    """What was found on the server of `binlog`, for an error."""
    return f"the source is now the server of {binlog}: {why.divergence}"


def diverged_at(message: str) -> BinlogId:
    """The binlog of that server, by the error's message; empty for another error."""
    match = _DIVERGED_AT.search(message)
    return match[1] if match else ""


def question(copied: Copied, executed: GtidSet, purged: GtidSet) -> WitnessQuestion | Unproved:
    """What to ask a server that executed and purged these transactions."""
    position = copied.position
    if not isinstance(position, GtidPosition):
        return Unproved("a position by file and offset, which means nothing on another server", "GTIDs")
    in_place = position.gtids.intersection(executed)
    if not in_place.covers(purged):
        return Unproved(
            f"gtid_purged has transactions that the copy lacks: {purged.subtract(in_place)}", "none of them"
        )
    return _question(position, in_place, purged)


def _question(position: GtidPosition, in_place: GtidSet, purged: GtidSet) -> WitnessQuestion | Unproved:
    """Asks from the newest witness that is there. It is known how many transactions of other
    sources (servers, or tags of one) came since, so that they are among as many last ones of each.
    Earlier ones are asked for with them, but for those that the server has purged, the witness not
    among them."""
    there = [i for i, w in enumerate(position.witnesses) if w.gtid in in_place]
    if not there:
        return Unproved(
            "the server has none of the transactions whose commit times are recorded"
            if position.witnesses
            else _NO_TIMES,
            _ONE_OF_OURS,
            lacking=bool(position.witnesses),
        )
    witness = position.witnesses[there[0]]
    others = position.gtids.count(without=witness.gtid.source) - witness.others
    if others < 0:
        return Unproved(
            f"the copy lacks transactions of other servers that it had at {witness.gtid}", "all that it had then"
        )
    of_others = position.gtids.last(others, without=witness.gtid.source).intersection(in_place)
    awaited = in_place.since(witness.gtid).union(of_others.subtract(purged))
    after = in_place.subtract(awaited)
    if not after.covers(purged):
        return Unproved(
            f"the server purged {witness.gtid} from its binlog",
            "the last transactions of ours in its binlog",
            lacking=bool(there[0]),
        )
    return WitnessQuestion(after, awaited, witness, position.witnesses[there[0] + 1 :])


def not_numbered(position: FilePosition) -> Unproved | None:
    """Why no other MariaDB can be asked; None where one can."""
    if len(position.gtid_pos.gtids) > 1:
        return Unproved(
            f"the copy has transactions of several domains ({position.gtid_pos}), whose order differs by server",
            "one gtid_domain_id",
        )
    if not position.witnesses:
        return Unproved(f"{_NO_TIMES}, or another server wrote only one since", _ONE_OF_OURS)
    if position.others is None:
        return Unproved(
            "it is not recorded which servers wrote before the last transactions",
            "a run of the stream on the server before, which records it",
        )
    return None


def numbered_question(position: FilePosition, witness: Witness, last: int) -> WitnessQuestion:
    """On MariaDB: the transactions from `witness` to number `last` of its server."""
    source, first, oldest = witness.gtid.source, witness.gtid.number, position.witnesses[-1].gtid.number
    after = GtidSet({source: [(oldest, first - 1)]} if oldest < first else {})
    older = position.witnesses[position.witnesses.index(witness) + 1 :]
    return WitnessQuestion(after, GtidSet({source: [(first, last)]}), witness, older)


def judge(copied: Copied, asked: WitnessQuestion, answer: WitnessAnswer) -> MovedPosition | Unproved | Diverged:
    """Whether the table goes on there."""
    name = asked.witness.gtid
    if answer.committed is None or answer.missing or answer.last is None or answer.end is None:
        return Unproved(
            f"the server's binlog does not send {name if answer.committed is None else answer.missing}",
            "every transaction of ours that is asked for",
        )
    if answer.committed != asked.witness.committed:
        return Unproved(
            f"{name} was committed at {answer.committed} there, and at {asked.witness.committed} (microseconds since"
            " 1970) on the server before: other transactions have the same GTIDs",
            "the same transaction",
        )
    if answer.before is not None and (unlike := _unlike(copied.position, asked.witness.gtid, answer.before)):
        return unlike
    tail = copied.position.gtids.subtract(asked.kept)
    diverged = _divergence(copied, tail)
    if diverged is not None:
        return diverged
    if copied.table in answer.between:
        return Unproved(
            "transactions that the server before never had change the table before the last one of ours",
            "changes of the table in the order in which they were copied",
        )
    older = (asked.witness, *asked.older) if answer.last != asked.witness else asked.older
    return MovedPosition(copied.position.moved(asked.kept, answer.end, (answer.last, *older)), tail)


def _unlike(position: Position, witness: Gtid, before: MariaDbGtidPos) -> Unproved | None:
    """On MariaDB, an errant transaction stays in the list of what comes before: one of a server, or
    with a number, that our own binlog did not have there."""
    assert isinstance(position, FilePosition)
    assert position.others is not None
    ours = {*position.others.gtids, MariaDbGtid.of(Gtid(witness.source, witness.number - 1))}
    foreign = MariaDbGtidPos(tuple(g for g in before.gtids if g not in ours))
    if not foreign:
        return None
    return Unproved(
        f"the server's binlog has {foreign} before {witness}, which the server before did not have there",
        "the transactions of the server before, in their order, and no others",
    )


def snapshot_ends(copied: Copied) -> tuple[Witness, ...] | Diverged:
    """What else to ask a server that leads on from the position of a table that is catching up: the
    last transactions of what its snapshot may have read, on MySQL of each source."""
    last = copied.unread.last(1)
    ends = copied.high.ends if isinstance(copied.high, HighMark) else ()
    asked = tuple(end for end in ends if end.gtid in last)
    if not isinstance(copied.high, HighMark) or len(asked) < last.count():
        return Diverged(
            "the table is still catching up after its snapshot, and of its end no transaction's commit time is recorded"
        )
    return asked


def judge_ends(ends: tuple[Witness, ...], lacking: GtidSet, committed: Mapping[Gtid, int]) -> Diverged | None:
    """Why a table that is catching up cannot go on there; None where it can. `lacking` is what the
    server has not of what the snapshot may have read, `committed` when it has the `ends`."""
    absent = lacking.with_gtids(end.gtid for end in ends if end.gtid not in committed)
    if absent:
        return Diverged(f"the server lacks transactions that the table's snapshot may have read: {absent}")
    for end in ends:
        if committed[end.gtid] != end.committed:
            return Diverged(
                f"{end.gtid}, which the table's snapshot may have read, was committed at {committed[end.gtid]} there,"
                f" and at {end.committed} (microseconds since 1970) on the server before: other transactions have the"
                " same GTIDs"
            )
    return None


def _divergence(copied: Copied, tail: GtidSet) -> Diverged | None:
    """On a server that has the same history but for `tail`."""
    touching = tail if copied.touched is None else tail.intersection(copied.touched)
    return Diverged(f"the server lacks transactions that the table was changed by: {touching}") if touching else None
