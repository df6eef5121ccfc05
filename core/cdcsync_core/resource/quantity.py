"""Sizes, durations and CPU as manifests write them: `64Mi`, `2Gi`, `30s`, `1m30s`, `250m`.

Why it exists: the resource is read on a laptop and on a cluster and must mean the same there, so
the forms are those of Kubernetes (resource quantities:
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/) and of Go's
durations. Why it is right: a text is matched in full or refused, as is one that is longer than the
CRD allows; a plain number is bytes or seconds, so that what is written out parses to the same
value.
"""

from __future__ import annotations

import re
from typing import Any

_UNITS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
#: characters of a text, `maxLength` of the CRD
_MOST, _MOST_OF_CPU = 32, 16
_SIZE = re.compile(r"([0-9]+)([a-zA-Z]*)")
_CPU = re.compile(r"([0-9]+)(?:\.([0-9]{1,3}))?(m?)")
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")


def parse_size(value: Any) -> int:
    """Bytes of `64Mi`, `2G`, `1048576` or an integer. Raises ValueError for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) and len(value) <= _MOST else None
    if not match or match[2] not in _UNITS:
        raise ValueError(f"a size, a whole number with one of Ki, Mi, Gi, Ti, k, M, G, T, at most {_MOST} characters")
    return int(match[1]) * _UNITS[match[2]]


def parse_cpu(value: Any) -> int:
    """Thousandths of a CPU of `250m`, `0.25`, `"2"` or a whole number of CPUs. Raises ValueError
    for anything else."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    match = _CPU.fullmatch(text) if isinstance(text, str) and len(text) <= _MOST_OF_CPU else None
    if not match or (match[2] and match[3]):
        raise ValueError(f"CPUs as a text or a whole number, like 250m, 0.25 or 2, at most {_MOST_OF_CPU} characters")
    return int(match[1]) if match[3] else 1000 * int(match[1]) + int((match[2] or "").ljust(3, "0"))


def show_cpu(millicores: int) -> str:
    """As `parse_cpu` reads it: `2`, `250m`."""
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


def parse_seconds(value: Any) -> float:
    """Seconds of `30s`, `500ms`, `1m30s`, `2h` or a number. Raises ValueError for anything else."""
    needed = f"a duration, numbers with one of ms, s, m, h, at most {_MOST} characters"
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(needed) from None
    if not isinstance(value, str) or len(value) > _MOST or not _DURATION.fullmatch(value):
        raise ValueError(needed)
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(value))


def show_seconds(seconds: float) -> str:
    """A duration for people: `0.8 s`, `42 s`, `3 min 20 s`, `2 h 5 min`."""
    if round(seconds, 1) < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
