"""A target that keeps events gets its content from a staged copy: the copy is written until it is
complete, then it is published, and from then on the target takes events itself.

Why it is right: whose turn it is follows from the target's own record, the first that is read (R4).
One that is published goes on by itself; else the copy of the record's generation is the truth. A
resnapshot's `Replace` only writes the new record, which is not consistent: it claims the copy, and
ends the streams before (R8). A copy that was written by a run that another one has overtaken is of
no effect: the publication is a commit of the target, which refuses a lower epoch. Where the copy
that a record waits for is gone, nothing but another resnapshot goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from cdcsync_core.errors import CdcError, TransientError
from cdcsync_core.state import TableState
from cdcsync_spark.logs import get_logger
from cdcsync_spark.sinks.contract.changes import (
    AdvancePosition,
    Append,
    Build,
    Commit,
    Emit,
    Evolve,
    Replace,
    Upsert,
)
from cdcsync_spark.sinks.contract.checks import refuse_superseded
from cdcsync_spark.sinks.contract.writer import Warming, Writer, WriterStatus

_log = get_logger()
#: what is committed to the copy, or to the target once it is published
CHANGES = frozenset({Append, Upsert, Emit, Replace, Evolve, AdvancePosition})
#: what may go wrong while a copy is removed that is of no use any more
_HARMLESS = (CdcError, ValueError, KeyError, pa.ArrowException)


@dataclass(frozen=True)
class Recorded:
    """What a target's own record has: its state, and whether the content is `published`, so that
    the target takes events. `lost` forbids to go on from it without another snapshot."""

    state: TableState
    published: bool
    lost: CdcError | None = None


@dataclass
class Copies:
    """The writers of a table's staged copies, by generation, each made when it is needed first."""

    make: Callable[[int], Writer]
    _writers: dict[int, Writer] = field(default_factory=dict)

    def writer(self, generation: int) -> Writer:
        if generation not in self._writers:
            self._writers[generation] = self.make(generation)
        return self._writers[generation]

    def open(self, generation: int) -> Writer | None:
        """None where it was not needed yet."""
        return self._writers.get(generation)

    def __iter__(self) -> Iterator[Writer]:
        return iter(self._writers.values())


class MainWriter(Protocol):
    """The target itself, beside its staged copies, as one process writes it."""

    @property
    def copies(self) -> Copies: ...

    @property
    def sends_rows(self) -> bool:
        """Whether a copy's rows are sent in the order of its files, which must not change then; in
        early delivery wave by wave, so that such a copy takes no changes. Else a publication names
        the copy's files, and early delivery has no copy of its own."""
        ...

    def newest(self, *, wait: bool) -> Recorded | None:
        """See `Writer.last_commit`."""
        ...

    def recorded(self) -> Recorded:
        """What a commit goes on from. Raises SinkConflict where there is no table."""
        ...

    def last_known(self) -> Recorded | None:
        """As of the last use."""
        ...

    def commit(self, epoch: int, build: Build) -> TableState:
        """See `Writer.commit`. A `Replace` claims the copy of its state's generation."""
        ...

    def publish(self, epoch: int, copy: TableState) -> TableState:
        """Publishes what the copy, whose state is `copy`, has; the state that the table has
        then."""
        ...

    def lost_copy(self, state: TableState) -> CdcError:
        """The copy that `state` waits for is gone."""
        ...

    def remove_copies(self, generation: int) -> bool:
        """Removes those up to a generation; whether there were any."""
        ...

    def has_news(self, copy: Writer | None) -> bool:
        """See `Writer.has_news`; `copy` is the one that the target waits for."""
        ...

    def maintain(self) -> str:
        """See `Writer.maintain`, of a published target."""
        ...

    def close(self) -> None:
        """See `Writer.close`."""
        ...

    @property
    def status(self) -> WriterStatus: ...


@dataclass
class CopyThenPublish:
    """A `Writer` of the copy until it is complete, then of `main`. Thread safe, as they are."""

    main: MainWriter
    _cleaned: bool = False

    def last_commit(self, *, wait: bool = True) -> TableState | None:
        state, lost = self.newest(wait=wait)
        if lost is not None:
            raise lost
        return state

    def newest(self, *, wait: bool = True) -> tuple[TableState | None, CdcError | None]:
        """The table's state; and what forbids to go on from it without another snapshot: the
        target, or the copy of a resnapshot, is gone."""
        main = self.main.newest(wait=wait)
        if main is None:
            return None, None
        if main.published:
            return main.state, main.lost
        copy = self.main.copies.writer(main.state.generation).last_commit(wait=wait)
        if copy is None:
            gone = self.main.lost_copy(main.state) if main.state.position is not None else None
            return main.state, main.lost or gone
        return replace(copy, epoch=max(main.state.epoch, copy.epoch)), main.lost

    def commit(self, epoch: int, build: Build) -> TableState:
        """See `Writer.commit`."""
        main = self.main.recorded()
        refuse_superseded(main.state, epoch)
        if not main.published:
            written = self._written_to_copy(main.state, epoch, build)
            if written is not None:
                return written
        return self.main.commit(epoch, build)

    def _written_to_copy(self, main: TableState, epoch: int, build: Build) -> TableState | None:
        """The copy's state, or that of its publication; None where the commit is the target's: the
        copy was complete, perhaps by another run's commit meanwhile."""
        copy, claims, complete = self.main.copies.writer(main.generation), list[Commit](), False
        if copy.last_commit() is None:
            return self._claim_instead(main, epoch, build)

        def keyed(state: TableState) -> Commit | None:
            nonlocal complete
            complete = self._is_complete(state)
            commit = None if complete else build(state)
            if commit is not None and isinstance(commit.change, Replace):
                claims.append(commit)
                return None
            return commit

        state = copy.commit(epoch, keyed)
        if claims:
            return self._claim(epoch, claims[-1])
        if not (state.consistent or (state.early and self.main.sends_rows)):
            return state
        published = self.main.publish(epoch, state)
        return None if complete else published

    def _is_complete(self, copy: TableState) -> bool:
        return is_whole(copy) if self.main.sends_rows else copy.consistent

    def _claim_instead(self, main: TableState, epoch: int, build: Build) -> TableState:
        """Where the copy is gone nothing but a resnapshot helps. A stream's batch does not go on
        from the record's state."""
        commit = None
        with suppress(TransientError):
            commit = build(main)
        if commit is None or not isinstance(commit.change, Replace):
            raise self.main.lost_copy(main)
        return self._claim(epoch, commit)

    def _claim(self, epoch: int, commit: Commit) -> TableState:
        """Claims a newer copy while an older one is not published."""

        def build(state: TableState) -> Commit | None:
            if state.generation >= commit.state.generation:
                return None
            return replace(commit, state=replace(commit.state, commit_number=state.commit_number + 1))

        return self.main.commit(epoch, build)

    def has_news(self) -> bool:
        """See `Writer.has_news`. A copy that is published is removed, which is no news."""
        main = self.main.last_known()
        waits = main is not None and not main.published
        return self.main.has_news(self.main.copies.open(main.state.generation) if main and waits else None)

    def maintain(self) -> str:
        main = self.main.last_known()
        if main is None:
            return ""
        if not main.published:
            copy = self.main.copies.open(main.state.generation)
            return copy.maintain() if copy and self._may_change(copy) else ""
        if not self._cleaned:
            self._cleaned = True
            if self._remove_copies(main.state.generation):
                return "remove staged copies"
        return self.main.maintain()

    def _may_change(self, copy: Writer) -> bool:
        """Whether the copy's files may be others than they are."""
        if not self.main.sends_rows:
            return True
        state = copy.last_commit()
        return state is not None and not is_whole(state)

    def _remove_copies(self, generation: int) -> bool:
        """Removes copies up to the published one, once per run; the next run tries what fails."""
        try:
            return self.main.remove_copies(generation)
        except _HARMLESS as error:
            table = main.state.identity.table if (main := self.main.last_known()) else ""
            _log.warning("staged copies are removed later", table=table, error=str(error))
            return False

    def warm(self) -> None:
        """See `Warming.warm`. A copy that is sent early takes no changes."""
        main = self.main.last_known()
        if main is None or (self.main.sends_rows and main.state.early):
            return
        for copy in self.main.copies:
            if isinstance(copy, Warming):
                copy.warm()

    def close(self) -> None:
        self.main.close()
        for copy in self.main.copies:
            copy.close()

    @property
    def status(self) -> WriterStatus:
        return self.main.status


def is_whole(state: TableState) -> bool:
    """Whether a staged copy that is sent, with this state, is complete, so that nothing is added to
    it any more. With early delivery its rows are sent as they were read, else as of one
    position."""
    return state.consistent or (state.early and state.position is not None)
