"""What became of a run's executors: no run waits without end for some that cannot start, and a user
reads why they went.

Why it exists: Spark replaces executors that die and tries tasks again, and when it gives up that is
in a stack trace, or only that it was shut down; where no executor ever comes it waits silently.
Their pods have more. Spark leaves those that ended (see
`cdcsync_operator.cluster.objects.driver_pod`), so they are asked when something is wrong, and not
before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.spec import GROUP
from cdcsync_core.runs.run import RunConfig
from cdcsync_core.timestamps import unix_time
from cdcsync_kube.access import in_pod
from cdcsync_kube.client import Api, ApiError, Object
from cdcsync_spark.run.context import Draining

#: seconds without a single executor after which a run is given up: as long as a driver waits for a
#: node
TIMEOUT = 300.0
#: seconds for which the end of an executor may be why one is missing; an earlier one was replaced,
#: and its pod is still there
_RECENT = 3 * TIMEOUT
_CHECK_SECONDS = 2.0
#: a lost executor; and the only message where more failed than Spark allows
#: (spark.executor.maxNumFailures), then or at its start
_LOST = ("ExecutorLostFailure", "SparkContext was shut down", "Spark context stopped while waiting for backend")
_KILLED_WORKER = "Python worker exited unexpectedly"
#: Spark's own exit code for a heap that is full
_HEAP_IS_FULL = 52
_MORE_MEMORY = "raise spec.executors.memory, or lower spec.executors.cores or spec.snapshot.chunkSize"
_SEE_LOGS = "see the logs of the executors' pods, which are kept with the driver's"

Pods = Callable[[], list[Object]]


def cause(text: str, pods: Pods) -> CdcError | None:
    """What an exception's words mean where executors are the matter, by what their pods say; else
    None."""
    if "Lost task" in text and "java.lang.OutOfMemoryError" in text:
        return fail(Reason.OUT_OF_MEMORY, "the heap of an executor is full", remedy=_MORE_MEMORY)
    if _KILLED_WORKER in text and "Fatal Python error" not in text:
        found = "a task's Python process was killed again and again, as one is that needs more than its pod's memory"
        return fail(Reason.OUT_OF_MEMORY, found, remedy=_MORE_MEMORY)
    if not any(words in text for words in _LOST):
        return None
    return _of_ended(_listed(pods))


def _of_ended(pods: list[Object] | str) -> CdcError:
    if isinstance(pods, str):
        return fail(Reason.EXECUTORS_LOST, f"the executors ended again and again; their pods cannot be asked: {pods}")
    ended = [t for pod in pods for t in _ends(pod)]
    if any(t.get("reason") == "OOMKilled" or t.get("exitCode") == _HEAP_IS_FULL for t in ended):
        return fail(Reason.OUT_OF_MEMORY, "the executors ran out of memory again and again", remedy=_MORE_MEMORY)
    codes = [f"exit code {t.get('exitCode')} ({_reason(t)})" for t in ended if t.get("exitCode")]
    evictions = [_reason(pod["status"]) for pod in pods if (pod.get("status") or {}).get("reason")]
    why = "; ".join(dict.fromkeys([*evictions, *codes])) or "no pod gives a reason"
    return fail(Reason.EXECUTORS_LOST, f"the executors ended again and again: {why}", remedy=_SEE_LOGS)


def _ends(pod: Object) -> list[dict[str, Any]]:
    """How its containers ended not long ago."""
    since = time.time() - _RECENT
    return [t for t in _states(pod, "terminated") if (unix_time(t.get("finishedAt")) or since) >= since]


def _states(pod: Object, name: str) -> list[dict[str, Any]]:
    containers = (pod.get("status") or {}).get("containerStatuses") or []
    return [c["state"][name] for c in containers if name in (c.get("state") or {})]


def _reason(state: dict[str, Any]) -> str:
    return ": ".join(filter(None, (state.get("reason"), state.get("message"))))


def _listed(pods: Pods) -> list[Object] | str:
    """The pods, or why they cannot be listed."""
    try:
        return pods()
    except ApiError as error:
        return str(error)


def why_waiting(pods: list[Object] | str) -> str:
    """Why pods that wait do not run, each reason once."""
    if isinstance(pods, str):
        return f"their pods cannot be asked: {pods}"
    conditions = [c for pod in pods for c in (pod.get("status") or {}).get("conditions") or []]
    reasons = [c.get("message", "") for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"]
    reasons += [_reason(w) for pod in pods for w in _states(pod, "waiting")]
    return "; ".join(dict.fromkeys(filter(None, reasons))) or "no pod gives a reason"


@dataclass
class ExecutorWatch:
    """Watches the executors of `session`; none are watched where it works by itself. `pods` lists
    theirs; `clock` counts seconds."""

    session: SparkSession
    watched: bool
    pods: Pods
    stopping: threading.Event
    clock: Callable[[], float] = time.monotonic
    _checked_at: float | None = None
    _seen_at: float | None = None

    def check(self) -> None:
        """Often, while a wave runs. Raises TransientError when none has been there for too long;
        Draining if none is while we drain."""
        now = self.clock()
        if not self.watched or (self._checked_at is not None and now - self._checked_at < _CHECK_SECONDS):
            return
        self._checked_at = now
        if self._seen_at is None or self._is_there():
            self._seen_at = now
        waited = now - self._seen_at
        if waited and self.stopping.is_set():
            raise Draining
        if waited > TIMEOUT:
            raise self._missing(waited)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A wave begins; an exception of Spark that its executors caused leaves as their error."""
        self._seen_at = None
        try:
            yield
        except (CdcError, Draining):
            raise
        except Exception as e:
            reason = cause(str(e), self.pods) if self.watched else None
            if reason is None:
                raise
            raise reason from e

    def _is_there(self) -> bool:
        """Whether one is."""
        executors = self.session.sparkContext._jsc.sc().statusStore().executorList(True)
        return any(executors.apply(i).id() != "driver" for i in range(executors.size()))

    def _missing(self, seconds: float) -> CdcError:
        pods = _listed(self.pods)
        if isinstance(pods, list) and any(_ends(pod) for pod in pods):
            return _of_ended(pods)
        return fail(
            Reason.EXECUTORS_LOST,
            f"no executor has been there for {seconds:.0f} s: {why_waiting(pods)}",
            needed="room for pods of spec.executors, within the namespace's quota",
            remedy="ask for less in spec.executors, or make room",
        )


def session_of(starting: Future[SparkSession], config: RunConfig, connect: Callable[[], Api] = in_pod) -> SparkSession:
    """The session; where its executors kept it from starting, their error. `connect` reaches the
    API server."""
    try:
        return starting.result()
    except Exception as e:
        reason = cause(str(e), _pods(config, connect)) if config.spark else None
        if reason is None:
            raise
        raise reason from e


def executors_of(session: SparkSession, config: RunConfig, stopping: threading.Event) -> ExecutorWatch:
    """None are watched where the run has no Spark settings of a cluster."""
    return ExecutorWatch(session, bool(config.spark), _pods(config), stopping)


def _pods(config: RunConfig, connect: Callable[[], Api] = in_pod) -> Pods:
    def listed() -> list[Object]:
        path = f"/api/v1/namespaces/{config.spark['spark.kubernetes.namespace']}/pods"
        return list(connect().items(path, labelSelector=f"{GROUP}/run={config.id},{GROUP}/part=executor"))

    return listed
