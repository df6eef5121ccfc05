"""Numbers in Prometheus' text format: what the operator and the drivers show. Pure.

Source of the format: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: labels and the value
Sample = tuple[Mapping[str, str], float]


def block(name: str, kind: str, about: str, samples: Iterable[Sample]) -> list[str]:
    """The lines of one metric; none where nothing is known of it. `kind` is `gauge` or `counter`."""
    found = list(samples)
    if not found:
        return []
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *(f"{name}{_labels(la)} {v:.16g}" for la, v in found)]


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    shown = ",".join(f'{k}="{v}"' for k, v in labels.items())  # values are names of Kubernetes objects or phases
    return f"{{{shown}}}"
