"""When to try again: a pause that doubles with every failure in a row, and is forgotten after a run
that lasted.

Why it is right: the pause grows without bound of failures but never beyond `backoff.max`, so that a
source which is down for a day is neither hammered nor forgotten; a run counts as stable only when
it outlived the pause before it (and a minute), so a run that dies again and again after a good
start still backs off. Pure: time comes in as unix seconds.
"""

from __future__ import annotations

from cdcsync_core.resource.spec import AutoRestart, CdcSync
from cdcsync_core.runs.status import shown_message
from cdcsync_core.runs.status_part import Restarts
from cdcsync_core.timestamps import unix_time, utc

_MIN_STABLE = 60.0


def floored(resource: CdcSync, least: float) -> CdcSync:
    """Makes pauses of at least so many seconds, whatever it asks for: each attempt makes a pod and
    its rights, in a cluster of many."""
    restart = resource.spec.auto_restart
    first, most = max(least, restart.backoff.initial), max(least, restart.backoff.max)
    backoff = restart.backoff.model_copy(update={"initial": first, "max": most})
    changed = restart.model_copy(update={"backoff": backoff})
    return resource.model_copy(update={"spec": resource.spec.model_copy(update={"auto_restart": changed})})


def delay(policy: AutoRestart, consecutive: int) -> float:
    """Seconds to wait after the `consecutive`-th failure in a row."""
    if consecutive <= 0:
        return 0.0
    doublings = min(consecutive - 1, 40)
    return min(policy.backoff.max, policy.backoff.initial * 2**doublings)


def is_stable(policy: AutoRestart, restarts: Restarts, lasted: float) -> bool:
    """Whether a run that lasted so many seconds ends the row of failures."""
    return lasted >= max(_MIN_STABLE, delay(policy, restarts.consecutive))


def after_failure(
    policy: AutoRestart, restarts: Restarts, failure: tuple[str, str], lasted: float, now: float
) -> Restarts:
    """Counts one more failure, by its reason and message; `lasted` are the seconds that the run had
    been up."""
    consecutive = 1 if is_stable(policy, restarts, lasted) else restarts.consecutive + 1
    # rounded up to the second in which it is shown, so that the pause is never cut short
    next_attempt = utc(now + delay(policy, consecutive) + 0.999)
    reason, message = failure
    return Restarts(
        consecutive=consecutive, reason=reason, message=shown_message(message), next_attempt_at=next_attempt
    )


def exhausted(policy: AutoRestart, restarts: Restarts) -> bool:
    """Whether the resource stops here."""
    if not policy.enabled:
        return restarts.consecutive > 0
    return policy.max_restarts is not None and restarts.consecutive > policy.max_restarts


def wait_left(restarts: Restarts, now: float) -> float:
    """Seconds until the next attempt may start; 0 when it may."""
    at = unix_time(restarts.next_attempt_at)
    return 0.0 if at is None else max(0.0, at - now)
