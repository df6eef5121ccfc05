"""Executors that go, or never come: what the user reads, and that no run waits without end."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from cdcsync_core.errors import Reason, TransientError
from cdcsync_kube.client import ApiError, Object
from cdcsync_spark.run.context import Draining
from cdcsync_spark.snapshot.executors import TIMEOUT, ExecutorWatch, cause, session_of, why_waiting

#: the words of Spark 4.1
_TASK = "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task 0.3 in stage 0.0 (TID 7)"
_LOST = f"{_TASK} (10.244.0.9 executor 4): ExecutorLostFailure (executor 4 exited caused by one of the running tasks) Reason: ..."
_SHUT = "Job 0 cancelled because SparkContext was shut down"
_AT_START = "java.lang.IllegalStateException: Spark context stopped while waiting for backend"
_WORKER = f"{_TASK}: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): "


def ended(code: int, reason: str = "Error", message: str = "", **status: Any) -> Object:
    terminated = {"exitCode": code, "reason": reason, "message": message}
    return {"status": {"containerStatuses": [{"name": "executor", "state": {"terminated": terminated}}], **status}}


def waiting(reason: str, message: str) -> Object:
    return {"status": {"containerStatuses": [{"state": {"waiting": {"reason": reason, "message": message}}}]}}


@pytest.mark.parametrize("text", [_LOST, _SHUT, _AT_START])
@pytest.mark.parametrize(
    ("pods", "reason", "words"),
    [
        ([ended(137), ended(137, "OOMKilled")], Reason.OUT_OF_MEMORY, "raise spec.executors.memory"),
        ([ended(52)], Reason.OUT_OF_MEMORY, "raise spec.executors.memory"),
        ([ended(137), ended(137)], Reason.EXECUTORS_LOST, "again: exit code 137 (Error); remedy"),
        ([ended(128, "StartError", "exec: no such file")], Reason.EXECUTORS_LOST, "128 (StartError: exec: no such file)"),
        ([ended(137, phase="Failed", reason="Evicted", message="low on disk")], Reason.EXECUTORS_LOST, "Evicted: low on disk"),
        ([], Reason.EXECUTORS_LOST, "no pod gives a reason"),
        (ApiError(403, "Forbidden", "no"), Reason.EXECUTORS_LOST, "cannot be asked: 403 Forbidden"),
    ],
)  # fmt: skip
def test_what_befell_executors_is_reported_and_tried_again(
    text: str, pods: list[Object] | ApiError, reason: Reason, words: str
) -> None:
    error = cause(text, Watch(pods=pods).listed)
    assert isinstance(error, TransientError)
    assert error.reason is reason
    assert words in error.message


@pytest.mark.parametrize("text", [_WORKER, f"{_TASK}: java.lang.OutOfMemoryError: Java heap space"])
def test_what_a_task_died_of_needs_no_pod(text: str) -> None:
    error = cause(text, Watch(pods=ApiError(0, "", "away")).listed)
    assert error
    assert error.reason is Reason.OUT_OF_MEMORY


@pytest.mark.parametrize("text", [f"{_TASK}: ValueError: 137", _WORKER + "Fatal Python error: Segmentation fault"])
def test_what_has_another_cause_keeps_its_own_words(text: str) -> None:
    assert cause(text, Watch(pods=[ended(137)]).listed) is None


def test_pods_that_wait_say_why() -> None:
    assert why_waiting([UNSCHEDULED, UNSCHEDULED, waiting("ImagePullBackOff", "no such image"), {}]) == (
        "Insufficient memory; ImagePullBackOff: no such image"
    )


@dataclass
class Store:
    """Spark's status store: the executors that are there, and the driver, which counts as one."""

    executors: set[str] = field(default_factory=lambda: {"driver"})

    def executorList(self, active: bool) -> Any:
        assert active
        known = [SimpleNamespace(id=lambda name=name: name) for name in sorted(self.executors)]
        return SimpleNamespace(size=lambda: len(known), apply=known.__getitem__)


Step = float | set[str] | Exception


@dataclass
class Watch:
    store: Store = field(default_factory=Store)
    now: float = 1000.0
    pods: list[Object] | ApiError = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def executors(self, *, watched: bool = True) -> ExecutorWatch:
        scala = SimpleNamespace(statusStore=lambda: self.store)
        session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: scala)))
        return ExecutorWatch(session, watched, self.listed, self.stopping, lambda: self.now)

    def listed(self) -> list[Object]:
        if isinstance(self.pods, ApiError):
            raise self.pods
        return self.pods

    def wave(self, executors: ExecutorWatch, *steps: Step) -> None:
        """Seconds pass, other executors are there, the job fails."""
        with executors.reading():
            for step in steps:
                self._do(executors, step)

    def _do(self, executors: ExecutorWatch, step: Step) -> None:
        if isinstance(step, Exception):
            raise step
        if isinstance(step, set):
            self.store.executors = {"driver", *step}
            return
        end = self.now + step
        while self.now < end:
            self.now += 2.5
            executors.check()


UNSCHEDULED = {
    "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "Insufficient memory"}]}
}


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([UNSCHEDULED], "Insufficient memory"),
        ([], "no pod gives a reason"),
        (ApiError(403, "Forbidden", "no"), "403 Forbidden"),
    ],
)
def test_executors_that_never_come_are_waited_for_and_then_reported(pods: list[Object] | ApiError, words: str) -> None:
    watch = Watch(pods=pods)
    with pytest.raises(TransientError, match=words) as caught:
        watch.wave(watch.executors(), TIMEOUT - 5, 20)
    assert caught.value.reason is Reason.EXECUTORS_LOST
    assert watch.now > 1000 + TIMEOUT


def test_one_executor_is_enough_to_go_on_and_the_last_one_counts() -> None:
    watch = Watch()
    found = watch.executors()
    none: Step = set()
    watch.wave(found, TIMEOUT - 5, {"1"}, 2 * TIMEOUT, none, TIMEOUT - 5)
    watch.pods = [ended(137, "OOMKilled"), UNSCHEDULED]
    with pytest.raises(TransientError) as caught:
        watch.wave(found, TIMEOUT + 5)
    assert caught.value.reason is Reason.OUT_OF_MEMORY, "what befell the last one is why none is there"


def test_an_executor_that_ended_long_ago_is_not_why_none_is_there() -> None:
    """Its pod is kept for its log."""
    old = ended(137, "OOMKilled")
    old["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = "2026-01-01T00:00:00Z"
    watch = Watch(pods=[old, UNSCHEDULED])
    with pytest.raises(TransientError, match="Insufficient memory") as caught:
        watch.wave(watch.executors(), 2 * TIMEOUT)
    assert caught.value.reason is Reason.EXECUTORS_LOST


def test_a_run_that_drains_waits_for_no_executor() -> None:
    watch = Watch()
    found = watch.executors()
    watch.wave(found, 20)
    watch.stopping.set()
    with pytest.raises(Draining):
        watch.wave(found, 5)
    watch.wave(found, {"1"}, 20)


def test_a_wave_that_its_executors_ended_fails_with_their_reason() -> None:
    watch = Watch(pods=[ended(137, "OOMKilled")])
    with pytest.raises(TransientError) as caught:
        watch.wave(watch.executors(), {"1"}, 5, RuntimeError(_SHUT))
    assert caught.value.reason is Reason.OUT_OF_MEMORY


def test_another_fault_of_a_wave_and_a_session_without_executors_are_left_alone() -> None:
    watch = Watch()
    with pytest.raises(RuntimeError, match="a bug"):
        watch.wave(watch.executors(), RuntimeError("a bug"))
    with pytest.raises(RuntimeError, match="shut down"):
        watch.wave(watch.executors(watched=False), 2 * TIMEOUT, RuntimeError("SparkContext was shut down"))


def test_a_session_that_its_executors_kept_from_starting() -> None:
    asked: list[dict[str, str]] = []

    def items(path: str, **selectors: str) -> list[Object]:
        asked.append({"path": path} | selectors)
        return [ended(137, "OOMKilled")]

    api: Any = SimpleNamespace(items=items)
    starting: Future[Any] = Future()
    starting.set_exception(RuntimeError(_AT_START))
    config: Any = SimpleNamespace(id="shop-1", spark={"spark.kubernetes.namespace": "ns"})
    with pytest.raises(TransientError):
        session_of(starting, config, lambda: api)
    mine = "cdcsync.io/run=shop-1,cdcsync.io/part=executor"
    assert asked == [{"path": "/api/v1/namespaces/ns/pods", "labelSelector": mine}]
    with pytest.raises(RuntimeError):
        session_of(starting, SimpleNamespace(id="shop-1", spark={}))
