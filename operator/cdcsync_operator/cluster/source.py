"""The source's calls on a cluster: of many tenants, in one process, so each within bounds.

Why it is right: whatever a source does, a call ends within a wall clock's time, and takes no more
than its namespace's share of memory and of what is asked at once (`question`, `room`, `shares`); a
sync that is closed ends its calls. A source must let us in before it has one of the few slots: a
login has slots of its own, which are many, so sources that are silent keep none that answers
waiting. A plan takes a slot to connect and for each split that it finds,
not while its shards are written, and its connection is closed with it. A sink is checked in a
process of its own (`sink_process`), three at once. What waits does so in a bounded number of
threads of its namespace (`threads`).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.position import LogOffset
from cdcsync_core.resource.spec import CdcSync
from cdcsync_mysql.readiness.preflight import Preflight
from cdcsync_mysql.sessions.question import LOGIN_SECONDS, Question, out_of_time
from cdcsync_operator.cluster.quota.room import ANSWERS, Room, RoomBounds
from cdcsync_operator.cluster.quota.shares import Shares
from cdcsync_operator.cluster.quota.sink_process import check_apart
from cdcsync_operator.cluster.quota.threads import NamespaceThreads
from cdcsync_operator.reconcile import source_calls
from cdcsync_operator.reconcile.planning import Splits
from cdcsync_operator.reconcile.preflight import PreflightOutcome, SourceCalls
from cdcsync_operator.reconcile.sink_calls import check_sink_from_cluster


@dataclass(frozen=True)
class SourceBounds:
    """Seconds of each call, and bytes that are held of answers."""

    #: a preflight of ten thousand tables takes a tenth of it on an idle machine
    preflight_seconds: float = 300.0
    #: to find where the binlog ends, and how long a file of it is kept
    position_seconds: float = 60.0
    #: more than the statement may take by itself
    split_seconds: float = 120.0
    answers: RoomBounds = ANSWERS


class ClusterSource:
    """`secrets`, the folder of a sync's Secrets, names the sync. No address in `refused_networks()`
    is spoken with, as they are when a question begins."""

    def __init__(
        self, refused_networks: Callable[[], tuple[str, ...]] = tuple, bounds: SourceBounds = SourceBounds()
    ) -> None:
        self._bounds = bounds
        self._refused = refused_networks
        self._logins = Shares(64)
        self._preflights, self._plans = Shares(), Shares()
        self._sinks = Shares(3)
        self._threads = NamespaceThreads()
        self._answers = Room(bounds.answers)
        self._asked: dict[Path, set[Question]] = {}
        self._lock = threading.Lock()

    @property
    def calls(self) -> SourceCalls:
        return SourceCalls(
            self.preflight, self.current, self.planning, self.give_up, self.kept_until, self._threads.start
        )

    def preflight(self, resource: CdcSync, secrets: Path, unread: frozenset[str] | None = None) -> PreflightOutcome:
        namespace = resource.metadata.namespace
        with self._question(resource, secrets) as question:
            preflight = self._looked_at(resource, secrets, unread, question)
            with self._sinks.held(namespace):
                sink = check_sink_from_cluster(resource, secrets, lambda lake: check_apart(lake, question))
        return source_calls.outcome(resource, preflight, sink)

    def _looked_at(
        self, resource: CdcSync, secrets: Path, unread: frozenset[str] | None, question: Question
    ) -> Preflight:
        seconds = self._bounds.preflight_seconds
        try:
            self._log_in(resource, secrets, question, seconds)
        except CdcError as error:
            if question.stopped:
                raise out_of_time() from error
            return source_calls.not_reached(error)
        with self._preflights.held(resource.metadata.namespace):
            return source_calls.preflight_in_time(resource, secrets, unread, question, seconds)

    def _log_in(self, resource: CdcSync, secrets: Path, question: Question, seconds: float) -> None:
        """Raises CdcError of a source that does not let us in within `seconds` and those of a
        login to each host."""
        logins = LOGIN_SECONDS * len(resource.spec.source.servers)
        with self._logins.held(resource.metadata.namespace), question.within(min(logins, seconds)):
            source_calls.log_in(resource, secrets, question)

    def current(self, resource: CdcSync, secrets: Path) -> LogOffset:
        with self._placed(resource, secrets) as question:
            return source_calls.current(resource, secrets, question)

    def kept_until(self, resource: CdcSync, secrets: Path, file: str) -> float | None:
        with self._placed(resource, secrets) as question:
            return source_calls.kept_until(resource, secrets, file, question)

    @contextmanager
    def _placed(self, resource: CdcSync, secrets: Path) -> Iterator[Question]:
        """For a question about places of the binlog."""
        seconds = self._bounds.position_seconds
        with self._question(resource, secrets) as question:
            self._log_in(resource, secrets, question, seconds)
            with self._preflights.held(resource.metadata.namespace), question.within(seconds):
                yield question

    @contextmanager
    def planning(self, resource: CdcSync, secrets: Path) -> Iterator[Splits]:
        namespace = resource.metadata.namespace
        with self._question(resource, secrets) as question, ExitStack() as connection:
            self._log_in(resource, secrets, question, self._bounds.split_seconds)
            with self._planned(namespace, question):
                splits = connection.enter_context(source_calls.planning(resource, secrets, question))
            yield lambda table, frontier: self._bounded(splits(table, frontier), namespace, question)

    def _bounded(self, splits: Iterator[Split], namespace: str, question: Question) -> Iterator[Split]:
        while True:
            with self._planned(namespace, question):
                split = next(splits, None)
            if split is None:
                return
            yield split

    @contextmanager
    def _planned(self, namespace: str, question: Question) -> Iterator[None]:
        with self._plans.held(namespace), question.within(self._bounds.split_seconds):
            yield

    def give_up(self, secrets: Path) -> None:
        """Ends what is asked for the sync; what waits for a slot opens no connection when it has
        one."""
        with self._lock:
            asked = list(self._asked.get(secrets, ()))
        for question in asked:
            question.stop()

    @contextmanager
    def _question(self, resource: CdcSync, secrets: Path) -> Iterator[Question]:
        namespace, holder = resource.metadata.namespace, object()
        with ExitStack() as stack:
            stack.callback(self._answers.free, namespace, holder)
            take = functools.partial(self._answers.put, namespace, holder)
            question = stack.enter_context(Question(self._refused(), take=take, bound=self._answers.bound(namespace)))
            with self._lock:
                self._asked.setdefault(secrets, set()).add(question)
            try:
                yield question
            except CdcError as error:
                if question.stopped:
                    raise out_of_time() from error
                raise
            finally:
                with self._lock:
                    self._asked[secrets].discard(question)
                    if not self._asked[secrets]:
                        del self._asked[secrets]
