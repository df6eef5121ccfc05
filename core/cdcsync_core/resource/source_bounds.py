"""The bounds that the owner of a source sets for its snapshots: annotations of the Secret with the
source's account.

Why it exists: who writes the spec of a CdcSync is not always who answers for the server; the owner
of the account is. Why it is right: the stricter of the two counts, so the spec lowers a bound and
never raises it. An annotation that is no number of its field keeps runs from starting, because a
bound that is not understood is not kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdcsync_core.quoting import quoted
from cdcsync_core.resource.spec import CdcSync

ROWS_ANNOTATION = "cdcsync.io/max-rows-per-second"
THREADS_ANNOTATION = "cdcsync.io/max-threads-running"
HISTORY_ANNOTATION = "cdcsync.io/max-history-list-length"
_OF_LOAD = {THREADS_ANNOTATION: "threads_running", HISTORY_ANNOTATION: "history_list_length"}
#: annotation -> its least number
_LEAST = {ROWS_ANNOTATION: 100} | dict.fromkeys(_OF_LOAD, 1)
_MOST_DIGITS = 9


def bounded(resource: CdcSync, annotations: Mapping[str, str]) -> CdcSync:
    """The resource within the bounds of its source's Secret; an annotation that `unreadable` names
    sets none."""
    texts = {name: annotations[name] for name in _LEAST if name in annotations}
    given = {name: int(text) for name, text in texts.items() if not _fault(name, text)}
    if not given:
        return resource
    spec, load = resource.spec.snapshot, resource.spec.snapshot.max_load
    of_load = {field: _least(getattr(load, field), given.get(name)) for name, field in _OF_LOAD.items()}
    rows = _least(spec.max_rows_per_second, given.get(ROWS_ANNOTATION))
    snapshot = spec.model_copy(
        update={"max_rows_per_second": rows, "max_load": load.model_copy(update=of_load)},
    )
    return resource.model_copy(update={"spec": resource.spec.model_copy(update={"snapshot": snapshot})})


def unreadable(resource: CdcSync, annotations: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """A phrase for the source's Secret if one of its bounds is no number of its field;
    `annotations` are those of Secrets, by name."""
    secret = resource.spec.source.credentials_secret_ref.name
    own = annotations.get(secret, {})
    faults = [fault for name in _LEAST if name in own and (fault := _fault(name, own[name]))]
    return {secret: f"Secret {secret}: {faults[0]}"} if faults else {}


def _fault(name: str, text: str) -> str:
    """A phrase, empty where the text is a bound."""
    if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text) >= _LEAST[name]:
        return ""
    needed = f"a whole number from {_LEAST[name]} on, of at most {_MOST_DIGITS} digits"
    return f"its annotation {name} is {quoted(text[:64])}; needed: {needed}"


def _least(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)
