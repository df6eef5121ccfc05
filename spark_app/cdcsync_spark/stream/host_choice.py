"""Which of several hosts the stream goes on with, when its tables are on another server than the
one that was reached.

Why it is right: nothing is moved here. The host is chosen by what each server lacks of what the
tables have; whether its binlog leads on from theirs is proved afterwards, table by table
(`failover`). A server that the sync has left, an old primary that came back, is not taken again
while it lacks something: without it the run ends, and is tried again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

from cdcsync_core.errors import CdcError, PermanentError, Reason, fail
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.state import TableState
from cdcsync_mysql.positions.history import gtid_sets
from cdcsync_mysql.readiness.failover_check import still_replicates
from cdcsync_mysql.readiness.left_out import read_left_out
from cdcsync_mysql.readiness.proof import SourceSession, may_lead_on, open_session
from cdcsync_mysql.server import ServerFacts, global_variables
from cdcsync_mysql.sessions.connection import Connection, Source, fetch_dicts
from cdcsync_mysql.sessions.hosts import ASKED_SECONDS, is_demoted, is_stalled
from cdcsync_spark.run.context import RunContext


@dataclass(frozen=True)
class Offer:
    """One host: whether its server lacks transactions of ours, whether a table was moved away from
    it, whether it may still get or apply as a replica what it lacks, whether it is one that does
    not apply, and whether a table is on another server."""

    source: Source
    facts: ServerFacts
    lacking: bool
    left: bool
    replicates: bool
    stalled: bool
    elsewhere: bool

    @property
    def rank(self) -> tuple[bool, ...]:
        """The least is taken; a replica that lacks some may never get a lost tail. A server that
        all tables are on needs no proof, which a table that was just read could not make."""
        left = self.lacking and self.left
        return (self.lacking, left, self.replicates, self.stalled, self.left, self.elsewhere)


def choose_host(context: RunContext) -> None:
    """The context goes on with the host that fits best, the one that was reached where all tables
    are on its server. Raises SourceUnreachable where none fits."""
    states = list(_states(context))
    if all(state.identity.lineage.accepts(context.facts.log) for state in states):
        return
    offers: list[Offer] = []
    refusals: list[str] = []
    for source in _hosts(context):
        try:
            with open_session(source, max_seconds=ASKED_SECONDS, read_timeout=ASKED_SECONDS) as session:
                offers.append(_offer(session, states))
        except CdcError as e:
            refusals.append(f"{source.host}: {e.found}")
    best = min(offers, key=lambda offer: offer.rank, default=None)
    if best is None or (best.lacking and best.left):
        refusals += [f"{o.source.host} lacks transactions of the server that it was left for" for o in offers]
        raise _none_fits(refusals)
    if best.source.host != context.source.host:
        context.go_to(best.source, best.facts)


def _states(context: RunContext) -> Iterator[TableState]:
    """The tables that have a position. One whose target cannot be read is refused where it is
    opened, and keeps no other from a host."""
    for assignment in context.config.tables:
        with suppress(PermanentError):
            state = context.sink.target(assignment.table.id).last_commit()
            if state is not None and state.position is not None:
                yield state


def _hosts(context: RunContext) -> list[Source]:
    """The one that was reached, then the others in their order."""
    others = context.others.hosts if context.others else ()
    return [context.source, *(context.source.of_hosts(host) for host in others)]


def _offer(session: SourceSession, states: Collection[TableState]) -> Offer:
    """Raises CdcError for a server that no table can be moved to."""
    connection, facts = session.unproved(), session.facts
    lineages = [state.identity.lineage for state in states]
    if not all(lineage.accepts(facts.log) or may_lead_on(facts, lineage) for lineage in lineages):
        raise fail(Reason.SPEC_INVALID, f"{facts.log} cannot be proved to lead on", needed="GTIDs")
    if is_demoted(connection, fetch_dicts):
        raise fail(Reason.SOURCE_UNREACHABLE, "it is read-only and no replica", needed="a server that gets changes")
    left_out = read_left_out(connection, facts).of(
        s.capture.id for s in states if not s.identity.lineage.accepts(facts.log)
    )
    if left_out:
        raise fail(Reason.SOURCE_UNREACHABLE, left_out, needed="a server that leaves out no change of the tables")
    lacking = _lacks(connection, facts, states)
    return Offer(
        session.source,
        facts,
        lacking,
        left=any(facts.log in lineage.binlogs[:-1] for lineage in lineages),
        replicates=lacking and still_replicates(connection),
        stalled=is_stalled(connection, fetch_dicts),
        elsewhere=not all(lineage.accepts(facts.log) for lineage in lineages),
    )


def _lacks(connection: Connection, facts: ServerFacts, states: Collection[TableState]) -> bool:
    """Whether the server lacks transactions of one of the tables."""
    copied = [state.copied.gtids for state in states]
    if facts.flavor == "mysql":
        executed, _ = gtid_sets(connection)
        return not all(map(executed.covers, copied))
    text = global_variables(connection, "gtid_binlog_state").get("gtid_binlog_state", "")
    there = {(gtid.domain, gtid.server): gtid.sequence for gtid in MariaDbGtidPos.parse(text).gtids}
    newest = [gtid for gtids in copied for gtid in MariaDbGtidPos.last_of(gtids).gtids]
    return any(there.get((gtid.domain, gtid.server), 0) < gtid.sequence for gtid in newest)


def _none_fits(refusals: list[str]) -> CdcError:
    return fail(
        Reason.SOURCE_UNREACHABLE,
        "; ".join(refusals),
        needed="a server of spec.source.hosts that has what was copied, or that the sync never left",
        remedy="start the server that the tables are on; to give it up, name another one alone as spec.source.host",
    )
