"""What a bundle leaves out of objects and logs, so that it can be handed to others.

Why it is right: no Secret is asked for; of a pod only what it runs and how it fares are taken; and
values in which a spec can hide one (variables, arguments, `sparkConf`, annotations, properties of
brokers and catalogs) are left out by their place, whatever they contain. So are the keys of rows at
which the ranges of a table that is being read begin and end. Texts lose what has the
form of credentials on top. Pure.
"""

from __future__ import annotations

import re
from typing import Any

HIDDEN = "(hidden)"
#: maps whose values are hidden, and lists whose items are; names stay
_MAPS = frozenset({"sparkConf", "annotations", "topicConfig", "producerConfig", "properties", "volumeAttributes"})
_LISTS = frozenset({"args", "command", "start", "end"})
#: before the host of an address, where a password may have an at sign or a slash, and behind its
#: path
_USER = re.compile(r"(?<=://)[^\s\"']{1,1000}(?=@)")
_QUERY = re.compile(r"(://[^\s\"'?]{1,1000}\?)[^\s\"']+")
_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S)
#: a value in quotes (the third group is in it), also in a text of JSON, whose quotes have
#: backslashes; a statement that was cut may end within one
_QUOTED = (
    r"(\\+)\"[^\n]*?(?:(?<!\\)\3\"|(?m:$))|\"(?:[^\"\\\n]|\\.)*(?:\"|\\?(?m:$))|'(?:[^'\\\n]|\\.|'')*(?:'|\\?(?m:$))"
)
#: bounded, as all of these are: a long line costs time in proportion to its length
_ASSIGNED = re.compile(
    r"(?i)((?:password|passwd|passphrase|pwd|secret|token|credential|signature|jaas[._]config|authorization"
    r"|(?:access|account|api|private)[._-]?key)[\w.-]{0,100}\\*[\"']?\s{0,9}[=:]\s{0,9})"
    rf"({_QUOTED}|(?:bearer |basic )?[^\s,;}}&\"']+)"
)
#: a login's header, and clauses of SQL
_CLAUSE = re.compile(
    r"(?i)(\bbearer\s{1,9}|\bidentified\s{1,9}(?:with\s{1,9}\S{1,100}\s{1,9})?(?:by|as)\s{1,9}(?:password\s{1,9})?"
    r"|\bpassword\s{1,9}(?=\\*[\"']))"
    rf"({_QUOTED}|[\w.~+/=-]{{8,}})"
)


def of_text(text: str) -> str:
    text = _QUERY.sub(rf"\1{HIDDEN}", _USER.sub(HIDDEN, _KEY.sub(HIDDEN, text)))
    return _CLAUSE.sub(rf"\1{HIDDEN}", _ASSIGNED.sub(rf"\1{HIDDEN}", text))


def of_object(value: Any, name: str = "") -> Any:
    """A spec or a status, the same but for what is hidden."""
    if isinstance(value, dict):
        if name in _MAPS:
            return dict.fromkeys(value, HIDDEN)
        hides = "value" in value and "name" in value
        return {k: HIDDEN if hides and k == "value" else of_object(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [HIDDEN for _ in value] if name in _LISTS else [of_object(v) for v in value]
    return of_text(value) if isinstance(value, str) else value


def of_sync(sync: dict[str, Any]) -> dict[str, Any]:
    about = {k: v for k, v in sync["metadata"].items() if k != "managedFields"}
    return of_object({"apiVersion": sync["apiVersion"], "kind": sync["kind"], "metadata": about}) | {
        part: of_object(sync.get(part) or {}) for part in ("spec", "status")
    }


def of_pod(pod: dict[str, Any]) -> dict[str, Any]:
    """What it runs, and how it fares."""
    about, spec = pod["metadata"], pod.get("spec") or {}
    containers = [{k: c[k] for k in ("name", "image", "resources") if k in c} for c in spec.get("containers") or []]
    return {
        "metadata": {k: about.get(k) for k in ("name", "labels", "creationTimestamp", "deletionTimestamp")},
        "spec": {k: spec.get(k) for k in ("nodeName", "priorityClassName", "tolerations")} | {"containers": containers},
        "status": of_object(pod.get("status") or {}),
    }


def of_event(event: dict[str, Any]) -> dict[str, Any]:
    names = ("type", "reason", "message", "count", "firstTimestamp", "lastTimestamp", "eventTime")
    return dict(of_object({name: event.get(name) for name in names}))
