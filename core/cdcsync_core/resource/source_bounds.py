"""The bounds that the owner of a source sets for its snapshots: annotations of the Secret with the
source's account.

Why it exists: who writes the spec of a CdcSync is not always who answers for the server; the owner
of the account is. Why it is right: the stricter of the two counts, so the spec lowers a bound and
never raises it. An annotation that is no value of its field keeps runs from starting, because a
bound that is not understood is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cdcsync_core.quoting import quoted
from cdcsync_core.resource.quantity import parse_seconds, parse_size
from cdcsync_core.resource.spec import CdcSync

ROWS_ANNOTATION = "cdcsync.io/max-rows-per-second"
BYTES_ANNOTATION = "cdcsync.io/max-bytes-per-second"
THREADS_ANNOTATION = "cdcsync.io/max-threads-running"
HISTORY_ANNOTATION = "cdcsync.io/max-history-list-length"
LAG_ANNOTATION = "cdcsync.io/max-replica-lag"
_MOST_DIGITS = 9


@dataclass(frozen=True)
class _Bound:
    """`field` of the section that `of_load` says; `read` raises ValueError."""

    field: str
    read: Callable[[str], float]
    needed: str
    of_load: bool = False

    def of(self, text: str) -> float | None:
        """None for a text that is no bound."""
        try:
            return self.read(text)
        except ValueError:
            return None


def _whole(field: str, least: int, *, of_load: bool = False) -> _Bound:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text) >= least):
            raise ValueError(text)
        return int(text)

    return _Bound(field, read, f"a whole number from {least} on, of at most {_MOST_DIGITS} digits", of_load)


def _bytes(text: str) -> int:
    size = parse_size(text)
    if not 2**16 <= size <= 2**40:
        raise ValueError(text)
    return size


def _seconds(text: str) -> float:
    seconds = parse_seconds(float(text) if text.isascii() and text.isdigit() else text)
    if not 1 <= seconds <= 86_400:
        raise ValueError(text)
    return seconds


_BOUNDS = {
    ROWS_ANNOTATION: _whole("max_rows_per_second", 100),
    BYTES_ANNOTATION: _Bound("max_bytes_per_second", _bytes, "bytes, or a size like 20Mi, between 64Ki and 1Ti"),
    THREADS_ANNOTATION: _whole("threads_running", 1, of_load=True),
    HISTORY_ANNOTATION: _whole("history_list_length", 1, of_load=True),
    LAG_ANNOTATION: _Bound(
        "replica_lag", _seconds, "seconds, or a duration like 30s, between 1s and 24h", of_load=True
    ),
}


def bounded(resource: CdcSync, annotations: Mapping[str, str]) -> CdcSync:
    """The resource within the bounds of its source's Secret; an annotation that `unreadable` names
    sets none."""
    read = [(bound, bound.of(annotations[name])) for name, bound in _BOUNDS.items() if name in annotations]
    given = [(bound, number) for bound, number in read if number is not None]
    if not given:
        return resource
    spec = resource.spec.snapshot
    of_load = {b.field: _least(getattr(spec.max_load, b.field), number) for b, number in given if b.of_load}
    own = {b.field: _least(getattr(spec, b.field), number) for b, number in given if not b.of_load}
    snapshot = spec.model_copy(update=own | {"max_load": spec.max_load.model_copy(update=of_load)})
    return resource.model_copy(update={"spec": resource.spec.model_copy(update={"snapshot": snapshot})})


def unreadable(resource: CdcSync, annotations: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """A phrase for the source's Secret if one of its bounds is no value of its field;
    `annotations` are those of Secrets, by name."""
    secret = resource.spec.source.credentials_secret_ref.name
    own = annotations.get(secret, {})
    faults = [
        f"its annotation {name} is {quoted(own[name][:64])}; needed: {bound.needed}"
        for name, bound in _BOUNDS.items()
        if name in own and bound.of(own[name]) is None
    ]
    return {secret: f"Secret {secret}: {faults[0]}"} if faults else {}


def _least(*bounds: float | None) -> float | None:
    return min((bound for bound in bounds if bound is not None), default=None)
