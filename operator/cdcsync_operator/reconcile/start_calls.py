"""The check of `spec.start` by `cdcsync check`: whether the source's binlog holds the start.

A search of the binlog belongs to the Spark side, so a process of its own is asked for it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cdcsync_core.quoting import quoted
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.start_check import StartAnswer, StartQuestion
from cdcsync_mysql.checks import Check, passed, refused, warned

_NAME = "start"
_SEARCH = (sys.executable, "-m", "cdcsync_spark.app.start_check")
#: a file of the binlog is read up to the start: 1 GiB takes less than a minute
_SECONDS = 600.0
_TAIL = 500


def check_start(resource: CdcSync, secrets: Path) -> list[Check]:
    """Nothing for a start that needs no search."""
    if resource.spec.start.from_ in ("snapshot", "latest"):
        return []
    question = StartQuestion(resource.to_dict(), str(secrets))
    try:
        answered = subprocess.run(
            _SEARCH, input=question.to_json(), capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        answer = StartAnswer.from_json(answered.stdout)
    except subprocess.TimeoutExpired:
        return [warned(_NAME, f"the search did not end within {_SECONDS:.0f} s", "a place that the binlog holds")]
    except (ValueError, KeyError, TypeError):
        ended = quoted(answered.stderr[-_TAIL:])
        return [warned(_NAME, f"the search ended without an answer: {ended}", "the extra spark", "report this")]
    if answer.error is not None:
        return [refused(_NAME, answer.error)]
    return [passed(_NAME, f"the binlog holds it: content begins {answer.place}")]
