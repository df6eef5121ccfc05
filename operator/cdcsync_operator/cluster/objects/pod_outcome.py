"""What a driver's pod shows of its run: whether it lives, and for which of the product's reasons it
ended.

A pod that cannot start is not a run that failed yet: the cluster may make room. It counts as failed
after a timeout, so that its reason stands in the status and another attempt is made. A run is
over with its driver's container (it is never restarted), though other containers of the pod, a
proxy or a shipper of logs, may go on until the pod is deleted. Pure; times are unix seconds.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from cdcsync_core.errors import Reason
from cdcsync_core.quoting import quoted
from cdcsync_core.runs.run import ExitCode, RunKind
from cdcsync_core.runs.run_size import READERS
from cdcsync_operator.cluster.objects.run_objects import KIND_LABEL
from cdcsync_operator.decision.observed import Exit

Object = dict[str, Any]

#: seconds that a pod may wait for a node (a cluster may have to grow), and for its image
UNSCHEDULABLE_TIMEOUT = 300.0
#: seconds after which a pod that no node takes is reported, with the scheduler's message, while it
#: is waited for
UNSCHEDULED_SHOWN = 10.0
IMAGE_TIMEOUT = 60.0
#: seconds until a pod must run that has its node: for large images, slow volumes, and containers
#: that come before the driver's
START_TIMEOUT = 900.0
#: seconds after its grace for which a pod may still be there: then its node does not answer any
#: more
LOST_NODE_TIMEOUT = 60.0
_NO_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_KILLED = 137
#: an exit code beyond this is the number of a signal
_SIGNALLED = 128
_OF_STREAMS = frozenset(kind.value for kind in RunKind if kind not in READERS)
#: reasons of a driver that only saw its JVM or a worker end: the kernel need not kill the whole
#: container
_UNEXPLAINED = frozenset({Reason.INTERNAL_ERROR.value})


def outcome(pod: Object, now: float, reported: Exit | None = None) -> Exit | None:
    """Why the run is over; None while it may still get somewhere. `reported` is the exit in the
    driver's report."""
    status = pod.get("status") or {}
    if _is_over(status) or _is_outlived(status):
        return _ended(pod, reported)
    if _is_silent(pod, now):
        silent = f"the driver's pod does not end: its node does not answer{_disruption(status)}"
        return reported or _retry(Reason.DRIVER_LOST, silent)
    return _stuck(pod, now)


def waiting(driver: Object | None, executors: Iterable[Object], now: float) -> tuple[str, str]:
    """The reason and the scheduler's messages for pods that no node takes, or the kubelet's for a
    driver whose image it cannot pull; ("", "") where there are none.

    Nothing has failed yet: a cluster may have to grow, and a registry may answer again.
    """
    refused = [state for state in _waiting((driver or {}).get("status") or {}) if state.get("reason") in _NO_IMAGE]
    if refused:
        why = f"{refused[0]['reason']}: {quoted(str(refused[0].get('message', '')))}"
        return Reason.IMAGE_PULL_FAILED.value, f"the image of the driver's pod is not there yet: {why}"
    if driver and (messages := _scheduler_messages([driver], now)):
        return Reason.DRIVER_UNSCHEDULABLE.value, f"no node takes the driver's pod: {'; '.join(messages)}"
    waits = [pod for pod in executors if _scheduler_messages([pod], now)]
    if not waits:
        return "", ""
    texts = "; ".join(_scheduler_messages(waits, now))
    return Reason.EXECUTORS_UNSCHEDULABLE.value, f"no node takes {len(waits)} of the executors' pods: {texts}"


def _scheduler_messages(pods: Iterable[Object], now: float) -> list[str]:
    """Each once."""
    refused = [
        message
        for pod in pods
        if now - (_seconds(pod["metadata"].get("creationTimestamp")) or now) > UNSCHEDULED_SHOWN
        and (pod.get("status") or {}).get("phase") == "Pending"
        and (message := _unscheduled(pod["status"]))
    ]
    return list(dict.fromkeys(quoted(str(message.get("message", ""))) for message in refused))


def in_grace(pod: Object, now: float) -> bool:
    """Whether a pod that was asked to go has containers yet that may take the time it was given."""
    return not _is_over(pod.get("status") or {}) and not _is_silent(pod, now)


def _is_over(status: Object) -> bool:
    return status.get("phase") in ("Succeeded", "Failed")


def _is_outlived(status: Object) -> bool:
    """Whether the driver has ended and another container goes on. Where none does, the pod's phase
    follows, and with it the cluster's own reason."""
    others = (c for c in status.get("containerStatuses") or [] if c.get("name") != "driver")
    return next(_terminated(status), None) is not None and any("running" in (c.get("state") or {}) for c in others)


def _is_silent(pod: Object, now: float) -> bool:
    """Asked to go, and still there when its grace is long over."""
    grace_ends = _seconds(pod["metadata"].get("deletionTimestamp"))
    return grace_ends is not None and now - grace_ends > LOST_NODE_TIMEOUT


def _ended(pod: Object, reported: Exit | None) -> Exit:
    status: Object = pod.get("status") or {}
    terminated = next(_terminated(status), {})
    code, reason = int(terminated.get("exitCode", -1)), str(terminated.get("reason", ""))
    message = str(terminated.get("message", ""))
    report = reported or _termination_message(message)
    if reason == "OOMKilled" and (report is None or report.reason in _UNEXPLAINED):
        last = f"its exit report: {report.message}" if report else _last_line(message)
        return _retry(Reason.OUT_OF_MEMORY, _out_of_memory(pod, last))
    if report is not None and report.code != ExitCode.DONE:
        return report
    if evicted := _evicted(status):
        return _retry(Reason.DRIVER_LOST, evicted)
    if report is not None or status.get("phase") == "Succeeded" or code == ExitCode.DONE:
        return report or Exit(ExitCode.DONE)
    if not terminated:
        return _retry(Reason.DRIVER_LOST, "the driver's pod failed without a reason")
    return _retry(Reason.DRIVER_LOST, f"the driver {_how(code)} without an exit report; see the driver log")


def _how(code: int) -> str:
    """A library that aborts, as Kafka's client for an answer that it cannot hold, ends the process
    by a signal."""
    if code == _KILLED:
        return "was killed"
    signals = {_SIGNALLED + each.value: each.name for each in signal.Signals}
    return f"was ended by {signals[code]}" if code in signals else f"ended with code {code}"


def _out_of_memory(pod: Object, last: str) -> str:
    """Names the limit that was too small, what the driver wrote last, and the field."""
    containers = (pod.get("spec") or {}).get("containers") or []
    limits = [(c.get("resources") or {}).get("limits") or {} for c in containers if c.get("name") == "driver"]
    limit = next((f" of {of_container['memory']}" for of_container in limits if "memory" in of_container), "")
    kind = (pod["metadata"].get("labels") or {}).get(KIND_LABEL, "")
    field = "spec.stream.driver.memory" if kind in _OF_STREAMS else "spec.driver.memory"
    return f"the driver's pod ran out of its memory{limit}{f' ({last})' if last else ''}; remedy: raise {field}"


def _last_line(log: str) -> str:
    """The driver log's, which the termination message has the end of."""
    last = next((line for line in reversed(log.splitlines()) if line.strip()), "")
    return f"the last line of its log: {quoted(last.strip())}" if last else ""


def _evicted(status: Object) -> str:
    """The cluster's own reason why the pod failed: evicted, refused by its node, its node shut
    down or lost; else empty.

    A driver that had time to drain reports that it is done, which is not why it ended; a pod whose
    kubelet evicted it has then succeeded, and only the condition shows it.
    """
    if status.get("phase") != "Failed" and _disruptor(status) != "TerminationByKubelet":
        return ""
    why = ": ".join(filter(None, (status.get("reason"), status.get("message"))))
    by = _disruption(status)
    return f"the driver's pod was evicted{': ' if why else ''}{why}{by}" if why or by else ""


def _disruption(status: Object) -> str:
    """Says by whom a pod was evicted, as a remark: the taints of a node, preemption, a drain, the
    collector of lost pods."""
    by = _disruptor(status)
    return f" ({by}: {_disruption_condition(status).get('message', '')})" if by else ""


def _disruptor(status: Object) -> str:
    return str(_disruption_condition(status).get("reason", ""))


def _disruption_condition(status: Object) -> Object:
    conditions = status.get("conditions") or []
    return next((c for c in conditions if c["type"] == "DisruptionTarget" and c["status"] == "True"), {})


def _termination_message(message: str) -> Exit | None:
    """A driver leaves its exit as JSON in its termination message; anything else there is the end
    of the driver log."""
    try:
        report = json.loads(message)
        return Exit(int(report["code"]), str(report["reason"]), " ".join(str(report["message"]).split()))
    except (ValueError, KeyError, TypeError):
        return None


def _stuck(pod: Object, now: float) -> Exit | None:
    status = pod.get("status") or {}
    created = _seconds(pod["metadata"].get("creationTimestamp"))
    if created is None:
        return None
    for state in _waiting(status):
        if state.get("reason") in _NO_IMAGE and now - created > IMAGE_TIMEOUT:
            return _retry(Reason.IMAGE_PULL_FAILED, f"{state['reason']}: {state.get('message', '')}")
        if (
            state.get("reason") in ("CreateContainerConfigError", "CreateContainerError")
            and now - created > IMAGE_TIMEOUT
        ):
            return _retry(Reason.DRIVER_LOST, f"the driver's container cannot be created: {state.get('message', '')}")
    refused = _unscheduled(status)
    if refused and now - created > UNSCHEDULABLE_TIMEOUT:
        return _retry(Reason.DRIVER_UNSCHEDULABLE, f"no node takes the driver's pod: {refused.get('message', '')}")
    if status.get("phase") == "Pending" and now - created > START_TIMEOUT:
        return _retry(Reason.DRIVER_LOST, _not_begun(status))
    return None


def _not_begun(status: Object) -> str:
    waits = next(_waiting(status), {})
    why = ": ".join(filter(None, (waits.get("reason"), waits.get("message")))) or "its node does not begin it"
    return f"the driver's pod has not started for {START_TIMEOUT / 60:.0f} minutes: {why}; see the events of the pod"


def _unscheduled(status: Object) -> Object | None:
    conditions = status.get("conditions") or []
    return next((c for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), None)


def _waiting(status: Object) -> Iterator[Object]:
    for container in (status.get("initContainerStatuses") or []) + (status.get("containerStatuses") or []):
        if "waiting" in (container.get("state") or {}):
            yield container["state"]["waiting"]


def _terminated(status: Object) -> Iterator[Object]:
    for container in status.get("containerStatuses") or []:
        if container.get("name") == "driver" and "terminated" in (container.get("state") or {}):
            yield container["state"]["terminated"]


def _retry(reason: Reason, message: str) -> Exit:
    return Exit(ExitCode.RETRY, reason.value, " ".join(message.split()))


def _seconds(text: str | None) -> float | None:
    return datetime.fromisoformat(text).timestamp() if text else None
